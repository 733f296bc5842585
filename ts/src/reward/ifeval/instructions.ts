/**
 * The 25 instructions of IFEval that a program can verify ([paper](https://arxiv.org/abs/2311.07911)).
 * docs/rewards.md explains their arguments, which are checked once, when a check is created; missing ones are
 * errors, never drawn.
 */

import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { countOf, escapeExpression, isLower, isUpper, strip, stripLetters, WORD_LETTERS } from '../text.js'
import {
  countBlankSeparated,
  countBullets,
  countHighlights,
  countParagraphs,
  countPlaceholders,
  countSections,
  firstWordOfParagraph,
  hasPostscript,
  hasTitle,
  hasTwoResponses,
  isJson,
} from './format-counts.js'
import { detectLanguage } from './language.js'
import { splitSentences } from './sentences.js'
import { wordTokens } from './word-tokens.js'

/** Every instruction that can be verified. */
export const IFEVAL_INSTRUCTION_IDS = [
  'keywords:existence',
  'keywords:frequency',
  'keywords:forbidden_words',
  'keywords:letter_frequency',
  'language:response_language',
  'length_constraints:number_sentences',
  'length_constraints:number_paragraphs',
  'length_constraints:number_words',
  'length_constraints:nth_paragraph_first_word',
  'detectable_content:number_placeholders',
  'detectable_content:postscript',
  'detectable_format:number_bullet_lists',
  'detectable_format:constrained_response',
  'detectable_format:number_highlighted_sections',
  'detectable_format:multiple_sections',
  'detectable_format:json_format',
  'detectable_format:title',
  'combination:two_responses',
  'combination:repeat_prompt',
  'startend:end_checker',
  'startend:quotation',
  'change_case:capital_word_frequency',
  'change_case:english_capital',
  'change_case:english_lowercase',
  'punctuation:no_comma',
] as const

/** The name of an instruction that can be verified. */
export type IfEvalInstructionId = (typeof IFEVAL_INSTRUCTION_IDS)[number]

/** Languages of `language:response_language`, as two letters. */
export const IFEVAL_LANGUAGES = [
  ...['en', 'es', 'pt', 'ar', 'hi', 'fr', 'ru', 'de', 'ja', 'it', 'bn', 'uk', 'th', 'ur', 'ta'],
  ...['te', 'bg', 'ko', 'pl', 'he', 'fa', 'vi', 'ne', 'sw', 'kn', 'mr', 'gu', 'pa', 'ml', 'fi'],
] as const

/** Arguments of an instruction by name, as in the dataset; `null` is the same as absent. */
export type IfEvalKwargs = Readonly<Record<string, unknown>>

/** Returns true if a text follows one instruction. A pure function. */
export type IfEvalCheck = (text: string) => boolean

/** Options where the original leaves a choice. */
export interface IfEvalCheckOptions {
  /**
   * JSON that `detectable_format:json_format` accepts: that of Python's parser, with `NaN` and infinities, or
   * standard JSON.
   * @default 'python'
   */
  readonly json?: 'python' | 'strict'
}

/** Maximum number of UTF-16 units of a phrase or prompt in the arguments of an instruction. */
export const IFEVAL_ARGUMENT_LENGTH_MAX = 16_384

/** Maximum number of UTF-16 units of a keyword, which is searched at every position of a text. */
export const IFEVAL_KEYWORD_LENGTH_MAX = 256

/** Maximum number of keywords of one instruction. */
export const IFEVAL_KEYWORDS_MAX = 256

/**
 * Creates the check of one instruction.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown instruction, argument, relation or language; `OUT_OF_RANGE` or
 * `MALFORMED` for an argument that is missing or wrong; `LIMIT_EXCEEDED` for one that is too long.
 *
 * @example
 * ```ts
 * import { ifEvalCheck } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * const isLong = ifEvalCheck('length_constraints:number_words', { num_words: 7, relation: 'at least' })
 * assert.ok(isLong("don't stop, it's 3.5"))
 * assert.ok(!isLong('one two'))
 * assert.throws(() => ifEvalCheck('length_constraints:number_words', {}), { code: 'OUT_OF_RANGE' })
 * ```
 */
export function ifEvalCheck(
  id: string,
  kwargs: IfEvalKwargs | null = {},
  options: IfEvalCheckOptions = {},
): IfEvalCheck {
  checkKnownKeys('options', options, ['json'])
  const known = IFEVAL_INSTRUCTION_IDS.find((name) => name === id)
  if (known === undefined) {
    throw new FulmarError(
      'UNKNOWN_NAME',
      `instruction must be one of IFEVAL_INSTRUCTION_IDS: got ${describeValue(id)}`,
    )
  }
  const given = Object.entries(kwargs ?? {}).filter(([, value]) => value !== null && value !== undefined)
  const reader = new ArgumentReader(known, Object.fromEntries(given))
  const check = INSTRUCTIONS[known](reader, options)
  reader.end()
  return check
}

type MakeCheck = (kwargs: ArgumentReader, options: IfEvalCheckOptions) => IfEvalCheck

const INSTRUCTIONS: Readonly<Record<IfEvalInstructionId, MakeCheck>> = {
  'keywords:existence': (kwargs) => {
    const keywords = kwargs.texts('keywords').map((keyword) => expressionOf(keyword, 'iu'))
    return (text) => keywords.every((keyword) => keyword.test(text))
  },
  'keywords:frequency': (kwargs) => {
    const keyword = expressionOf(kwargs.text('keyword', IFEVAL_KEYWORD_LENGTH_MAX), 'giu')
    const holds = kwargs.comparison('frequency', 'relation')
    return (text) => holds(text.match(keyword)?.length ?? 0)
  },
  'keywords:forbidden_words': (kwargs) => {
    const words = kwargs.texts('forbidden_words').map(wholeWord)
    return (text) => !words.some((word) => word.test(text))
  },
  'keywords:letter_frequency': (kwargs) => {
    const letter = kwargs.letter('letter').toLowerCase()
    const holds = kwargs.comparison('let_frequency', 'let_relation')
    return (text) => holds(countOf(text.toLowerCase(), letter))
  },
  'language:response_language': (kwargs) => {
    const language = kwargs.oneOf('language', IFEVAL_LANGUAGES)
    return (text) => (detectLanguage(text) ?? language) === language
  },
  'length_constraints:number_sentences': (kwargs) => {
    const holds = kwargs.comparison('num_sentences', 'relation')
    return (text) => holds(splitSentences(text).length)
  },
  'length_constraints:number_paragraphs': (kwargs) => {
    const count = kwargs.count('num_paragraphs')
    return (text) => countParagraphs(text) === count
  },
  'length_constraints:number_words': (kwargs) => {
    const holds = kwargs.comparison('num_words', 'relation')
    return (text) => holds(text.match(WORD)?.length ?? 0)
  },
  'length_constraints:nth_paragraph_first_word': (kwargs) => {
    const count = kwargs.count('num_paragraphs')
    const nth = kwargs.count('nth_paragraph', count)
    const word = kwargs.text('first_word').toLowerCase()
    return (text) => firstWordOfParagraph(text, nth) === word && countBlankSeparated(text) === count
  },
  'detectable_content:number_placeholders': (kwargs) => {
    const count = kwargs.count('num_placeholders')
    return (text) => countPlaceholders(text) >= count
  },
  'detectable_content:postscript': (kwargs) => {
    const marker = strip(kwargs.text('postscript_marker'))
    return (text) => hasPostscript(text, marker)
  },
  'detectable_format:number_bullet_lists': (kwargs) => {
    const count = kwargs.count('num_bullets')
    return (text) => countBullets(text) === count
  },
  'detectable_format:constrained_response': () => (text) => ANSWERS.some((answer) => text.includes(answer)),
  'detectable_format:number_highlighted_sections': (kwargs) => {
    const count = kwargs.count('num_highlights')
    return (text) => countHighlights(text) >= count
  },
  'detectable_format:multiple_sections': (kwargs) => {
    const name = strip(kwargs.text('section_spliter', IFEVAL_KEYWORD_LENGTH_MAX))
    const count = kwargs.count('num_sections')
    return (text) => countSections(text, name) >= count
  },
  'detectable_format:json_format':
    (_kwargs, { json = 'python' }) =>
    (text) =>
      isJson(text, json),
  'detectable_format:title': () => hasTitle,
  'combination:two_responses': () => hasTwoResponses,
  'combination:repeat_prompt': (kwargs) => {
    const prompt = strip(kwargs.text('prompt_to_repeat')).toLowerCase()
    return (text) => strip(text).toLowerCase().startsWith(prompt)
  },
  'startend:end_checker': (kwargs) => {
    const phrase = strip(kwargs.text('end_phrase')).toLowerCase()
    return (text) => stripLetters(strip(text), '"').toLowerCase().endsWith(phrase)
  },
  'startend:quotation': () => (text) => {
    const bare = strip(text)
    return bare.length > 1 && bare.startsWith('"') && bare.endsWith('"')
  },
  'change_case:capital_word_frequency': (kwargs) => {
    const holds = kwargs.comparison('capital_frequency', 'capital_relation')
    return (text) => holds(wordTokens(text).filter(isUpper).length)
  },
  'change_case:english_capital': () => (text) => isUpper(text) && isEnglish(text),
  'change_case:english_lowercase': () => (text) => isLower(text) && isEnglish(text),
  'punctuation:no_comma': () => (text) => !text.includes(','),
}

const ANSWERS = ['My answer is yes.', 'My answer is no.', 'My answer is maybe.']

const WORD = new RegExp(`[${WORD_LETTERS}]+`, 'gu')

/**
 * Returns a pattern of a keyword inside any text, matched literally; the original takes it as a regular
 * expression.
 */
function expressionOf(keyword: string, flags: string): RegExp {
  return new RegExp(escapeExpression(keyword), flags)
}

/**
 * Returns a pattern of a whole word. Equals Python's `\bword\b` for a word that begins and ends with a
 * letter; next to another character, as at the end of `C++`, anything may follow, where `\b` would need a
 * letter.
 */
function wholeWord(word: string): RegExp {
  const letter = `[${WORD_LETTERS}]`
  const before = new RegExp(`^${letter}`, 'u').test(word) ? `(?<!${letter})` : ''
  const after = new RegExp(`${letter}$`, 'u').test(word) ? `(?!${letter})` : ''
  return new RegExp(before + escapeExpression(word) + after, 'iu')
}

/** Takes a text of unknown language as English, as the original does. */
function isEnglish(text: string): boolean {
  return (detectLanguage(text) ?? 'en') === 'en'
}

/** Reads the arguments of one instruction, with an error for each that is missing or invalid. */
class ArgumentReader {
  readonly #place: string
  readonly #values: Readonly<Record<string, unknown>>
  readonly #asked: string[] = []

  constructor(place: string, values: Readonly<Record<string, unknown>>) {
    this.#place = place
    this.#values = values
  }

  /** A positive integer. */
  count(name: string, max = Number.MAX_SAFE_INTEGER): number {
    const value = this.#take(name)
    // Datasets that were stored in a table may have 3.0 for 3.
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 1 && value <= max) return value
    const rule = max === Number.MAX_SAFE_INTEGER ? 'a positive integer' : `an integer from 1 to ${max}`
    return this.#refuse('OUT_OF_RANGE', name, rule, value)
  }

  /** Reads a count and its comparison. */
  comparison(countName: string, relationName: string): (count: number) => boolean {
    const bound = this.count(countName)
    const relation = this.oneOf(relationName, ['less than', 'at least'])
    return relation === 'less than' ? (count) => count < bound : (count) => count >= bound
  }

  text(name: string, lengthMax = IFEVAL_ARGUMENT_LENGTH_MAX): string {
    const value = this.#take(name)
    return this.#isText(name, value, lengthMax) ? value : this.#refuse('MALFORMED', name, 'a text', value)
  }

  texts(name: string): readonly string[] {
    const value = this.#take(name)
    if (Array.isArray(value) && value.length > IFEVAL_KEYWORDS_MAX) {
      this.#refuse('LIMIT_EXCEEDED', name, `at most ${IFEVAL_KEYWORDS_MAX} texts`, value)
    }
    const texts: unknown[] = Array.isArray(value) ? value : []
    const areTexts =
      texts.length > 0 && texts.every((text) => this.#isText(name, text, IFEVAL_KEYWORD_LENGTH_MAX))
    return areTexts ? texts.map(String) : this.#refuse('MALFORMED', name, 'a list of texts', value)
  }

  letter(name: string): string {
    const value = strip(this.text(name))
    return [...value].length === 1 ? value : this.#refuse('OUT_OF_RANGE', name, 'one letter', value)
  }

  oneOf<Choice extends string>(name: string, choices: readonly Choice[]): Choice {
    const value = this.#take(name)
    const choice = choices.find((candidate) => candidate === value)
    return choice ?? this.#refuse('UNKNOWN_NAME', name, `one of ${choices.join(', ')}`, value)
  }

  /** Rejects unknown arguments. */
  end(): void {
    checkKnownKeys(this.#place, this.#values, this.#asked)
  }

  #isText(name: string, value: unknown, lengthMax: number): value is string {
    if (typeof value !== 'string' || strip(value) === '') return false
    if (value.length <= lengthMax) return true
    return this.#refuse('LIMIT_EXCEEDED', name, `at most ${lengthMax} UTF-16 units`, value)
  }

  #take(name: string): unknown {
    this.#asked.push(name)
    return this.#values[name]
  }

  #refuse(
    code: 'OUT_OF_RANGE' | 'MALFORMED' | 'UNKNOWN_NAME' | 'LIMIT_EXCEEDED',
    name: string,
    rule: string,
    value: unknown,
  ): never {
    throw new FulmarError(code, `${this.#place}.${name} must be ${rule}: got ${describeValue(value)}`)
  }
}
