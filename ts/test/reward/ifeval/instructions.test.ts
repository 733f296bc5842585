import { describe, expect, it } from 'vitest'
import {
  IFEVAL_INSTRUCTION_IDS,
  IFEVAL_LANGUAGES,
  type IfEvalKwargs,
  ifEvalCheck,
} from '../../../src/reward/ifeval/index.js'
import {
  IFEVAL_ARGUMENT_LENGTH_MAX,
  IFEVAL_KEYWORD_LENGTH_MAX,
  IFEVAL_KEYWORDS_MAX,
} from '../../../src/reward/ifeval/instructions.js'

const codeOf = (id: string, kwargs: IfEvalKwargs | null) => {
  try {
    return typeof ifEvalCheck(id, kwargs)
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : error
  }
}

describe('instructions', () => {
  it('are 25, in 30 languages', () => {
    expect(new Set(IFEVAL_INSTRUCTION_IDS).size).toBe(25)
    expect(new Set(IFEVAL_LANGUAGES).size).toBe(30)
  })

  it.each<[string, IfEvalKwargs, string, boolean]>([
    ['keywords:existence', { keywords: ['cat', 'dog'] }, 'the Category dogma', true],
    ['keywords:existence', { keywords: ['a+b'] }, 'so a+b is it', true],
    ['keywords:existence', { keywords: ['.*'] }, 'anything', false],
    ['keywords:frequency', { keyword: 'cat', frequency: 3, relation: 'at least' }, 'cat Cat scatter', true],
    ['keywords:frequency', { keyword: 'cat', frequency: 3, relation: 'less than' }, 'cat cat', true],
    ['keywords:forbidden_words', { forbidden_words: ['cat'] }, 'scatter cat_s cat\u00e9', true],
    ['keywords:forbidden_words', { forbidden_words: ['cat'] }, 'a CAT.', false],
    ['keywords:forbidden_words', { forbidden_words: ['c++'] }, 'c++x', false],
    ['keywords:forbidden_words', { forbidden_words: ['C++'] }, 'I write c++.', false],
    ['keywords:forbidden_words', { forbidden_words: ['C++'] }, 'abc++ or C+', true],
    ['keywords:forbidden_words', { forbidden_words: ['.NET'] }, 'the .net way', false],
    ['keywords:forbidden_words', { forbidden_words: ['.NET'] }, 'the .nets', true],
    ['keywords:letter_frequency', { letter: 'A', let_frequency: 2, let_relation: 'at least' }, 'AaBb', true],
    ['keywords:letter_frequency', { letter: '#', let_frequency: 2, let_relation: 'at least' }, '#a #', true],
    ['language:response_language', { language: 'fr' }, 'Il fait beau dans le parc.', true],
    ['language:response_language', { language: 'fr' }, '12345', true],
    [
      'length_constraints:number_sentences',
      { num_sentences: 3, relation: 'less than' },
      'Mr. Smith left. He came back.',
      true,
    ],
    ['length_constraints:number_words', { num_words: 7, relation: 'at least' }, "don't stop, it's 3.5", true],
    ['detectable_format:constrained_response', {}, 'Well. My answer is no. Yes', true],
    ['detectable_format:constrained_response', {}, 'my answer is no.', false],
    ['combination:repeat_prompt', { prompt_to_repeat: 'Do X' }, ' do x  then', true],
    ['startend:end_checker', { end_phrase: 'The end.' }, '"the End."', true],
    ['startend:quotation', {}, ' "hi" ', true],
    ['startend:quotation', {}, '"', false],
    [
      'change_case:capital_word_frequency',
      { capital_frequency: 2, capital_relation: 'less than' },
      'A b c',
      true,
    ],
    ['change_case:english_capital', {}, 'THIS IS AN ENGLISH SENTENCE WITH CAPITALS.', true],
    ['change_case:english_lowercase', {}, 'das ist ein einfacher deutscher satz', false],
    ['punctuation:no_comma', {}, 'full-width\uff0c only', true],
  ])('%s %j in %j is %j', (id, kwargs, text, follows) => {
    expect(ifEvalCheck(id, kwargs)(text)).toBe(follows)
  })

  it('asks each time anew: a check keeps nothing of the text before', () => {
    const check = ifEvalCheck('keywords:frequency', { keyword: 'x', frequency: 1, relation: 'at least' })
    expect([check('ax'), check('x'), check('')]).toEqual([true, true, false])
  })

  it('takes null for absent, as tables have it', () => {
    expect(codeOf('punctuation:no_comma', null)).toBe('function')
    expect(codeOf('length_constraints:number_paragraphs', { num_paragraphs: 2, relation: null })).toBe(
      'function',
    )
  })

  it.each<[string, IfEvalKwargs, string]>([
    ['keywords:everything', {}, 'UNKNOWN_NAME'],
    ['punctuation:no_comma', { relation: 'at least' }, 'UNKNOWN_NAME'],
    ['length_constraints:number_words', { num_words: 5 }, 'UNKNOWN_NAME'],
    ['length_constraints:number_words', { num_words: 5, relation: 'more than' }, 'UNKNOWN_NAME'],
    ['length_constraints:number_words', { num_words: 0, relation: 'at least' }, 'OUT_OF_RANGE'],
    ['length_constraints:number_words', { num_words: '5', relation: 'at least' }, 'OUT_OF_RANGE'],
    [
      'length_constraints:nth_paragraph_first_word',
      { num_paragraphs: 2, nth_paragraph: 3, first_word: 'a' },
      'OUT_OF_RANGE',
    ],
    ['language:response_language', { language: 'xx' }, 'UNKNOWN_NAME'],
    ['keywords:existence', {}, 'MALFORMED'],
    ['keywords:existence', { keywords: [] }, 'MALFORMED'],
    ['keywords:existence', { keywords: ['a', 1] }, 'MALFORMED'],
    [
      'keywords:letter_frequency',
      { letter: 'ab', let_frequency: 1, let_relation: 'at least' },
      'OUT_OF_RANGE',
    ],
    ['combination:repeat_prompt', {}, 'MALFORMED'],
    ['startend:end_checker', { end_phrase: ' ' }, 'MALFORMED'],
  ])('refuses %s with %j as %s', (id, kwargs, code) => {
    expect(codeOf(id, kwargs)).toBe(code)
  })

  it('takes arguments of the longest length and refuses longer ones', () => {
    const keywords = (count: number, length: number) =>
      codeOf('keywords:existence', { keywords: Array(count).fill('x'.repeat(length)) })
    expect(keywords(IFEVAL_KEYWORDS_MAX, IFEVAL_KEYWORD_LENGTH_MAX)).toBe('function')
    expect(keywords(IFEVAL_KEYWORDS_MAX + 1, 1)).toBe('LIMIT_EXCEEDED')
    expect(keywords(1, IFEVAL_KEYWORD_LENGTH_MAX + 1)).toBe('LIMIT_EXCEEDED')
    const phrase = (length: number) => codeOf('startend:end_checker', { end_phrase: 'x'.repeat(length) })
    expect(phrase(IFEVAL_ARGUMENT_LENGTH_MAX)).toBe('function')
    expect(phrase(IFEVAL_ARGUMENT_LENGTH_MAX + 1)).toBe('LIMIT_EXCEEDED')
  })

  it('reads JSON as Python or strictly', () => {
    const check = (json: 'python' | 'strict') =>
      ifEvalCheck('detectable_format:json_format', {}, { json })('NaN')
    expect([check('python'), check('strict')]).toEqual([true, false])
  })
})
