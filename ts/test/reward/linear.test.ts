/**
 * Tests what all scorers promise together: no text of a policy makes one throw or takes more than a step or so a letter. Steps are not
 * counted but bounded by form: no regular expression of the room can look at a letter again and again, and long texts of every kind that
 * makes such expressions slow are scored. A scorer whose cost grew with the square of the length would need minutes for them.
 */

import { readdirSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { IfEvalScorer, ifEvalChecks } from '../../src/reward/ifeval/index.js'
import {
  CountdownRewardParser,
  extractMathAnswer,
  GSM8KRewardParser,
  isSameMath,
  MATHRewardParser,
  thinkFormatReward,
} from '../../src/reward/index.js'

const room = new URL('../../src/reward/', import.meta.url)

/** Every instruction, with arguments. */
const instructions = {
  instructionIdList: [
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
  ],
  kwargs: [
    { keywords: ['aa', '*a'] },
    { keyword: 'aaa', frequency: 3, relation: 'at least' },
    { forbidden_words: ['a', '((('] },
    { letter: 'a', let_frequency: 1, let_relation: 'less than' },
    { language: 'de' },
    { num_sentences: 2, relation: 'at least' },
    { num_paragraphs: 2 },
    { num_words: 2, relation: 'at least' },
    { num_paragraphs: 2, nth_paragraph: 2, first_word: 'a' },
    { num_placeholders: 3 },
    { postscript_marker: 'P.P.S' },
    { num_bullets: 2 },
    null,
    { num_highlights: 2 },
    { section_spliter: 'a', num_sections: 2 },
    null,
    null,
    null,
    { prompt_to_repeat: 'aaa' },
    { end_phrase: 'aaa' },
    null,
    { capital_frequency: 2, capital_relation: 'at least' },
    null,
    null,
    null,
  ],
}

const checks = ifEvalChecks(instructions)

function scoreAll(text: string): void {
  const parsers = [new GSM8KRewardParser(), new MATHRewardParser(), new CountdownRewardParser()]
  const truths = ['#### 1', '\\boxed{1}', 'target=1, numbers=1,2']
  for (const response of [text, `<answer>${text}</answer>`, `<think>${text}`]) {
    const rewards = parsers.map((parser, index) => parser.score(response, truths[index] ?? '').reward)
    expect(rewards.every((reward) => reward >= 0 && reward <= 1)).toBe(true)
    thinkFormatReward(response)
  }
  extractMathAnswer(text)
  isSameMath(text, `${text}1`)
  expect(checks.map((follows) => typeof follows(text))).toEqual(checks.map(() => 'boolean'))
}

describe('every scorer', () => {
  it('takes any text, IFEval its eight readings too', () => {
    const mark = fc.constantFrom(
      ...'*[]<>-.?!\'"`(){}\\/,:;#$%&@_ \n\t',
      '<answer>',
      '</answer>',
      '<think>',
      '***',
      '```',
      '\\frac',
      '. . .',
    )
    const piece = fc.oneof(mark, fc.string({ unit: 'binary', maxLength: 4 }), fc.string({ maxLength: 5 }))
    const texts = fc.array(piece, { maxLength: 40 }).map((pieces) => pieces.join(''))
    fc.assert(
      fc.property(texts, (text) => {
        scoreAll(text)
        const { score } = new IfEvalScorer().score(`<answer>${text}</answer>`, instructions)
        expect(score.instLevelLooseAcc).toHaveLength(25)
      }),
      { seed: 1, numRuns: 300 },
    )
  })

  it.each([
    'a',
    ' ',
    '\n',
    '.',
    '. ',
    '...',
    '?!',
    "'",
    '"',
    '`',
    '[',
    '[\n',
    '*',
    '* ',
    '**',
    '***',
    '<<',
    '<< ',
    '<<a\n',
    '>>',
    '-',
    '- ',
    '--',
    '(',
    ')',
    '{',
    '}',
    '1',
    '1,',
    ',',
    ':',
    'a.',
    'a. ',
    'A. ',
    'p.',
    "'t",
    '\\',
    '\\frac',
    '\\text{',
    '\\boxed{',
    '<think>',
    '<answer>',
    '</answer>',
    '@a',
    'a@',
    'http://',
    '#### ',
    '\u00e9',
    'A',
    'AB ',
    '\ud800',
    '\u{1f600}',
    '\u4e00',
    'Section 1',
    '```json',
    '0',
    '1+',
    '-1',
    '\t',
    '\u00a0',
    ' \n',
    'a\n\n',
    '"\\',
    'NaN',
    'Answer:',
  ])('takes 100 KB of %j', (piece) => {
    scoreAll(piece.repeat(Math.ceil(100_000 / piece.length)))
  })

  it('uses no expression that can look at a letter again and again', () => {
    const files = readdirSync(room, { recursive: true, encoding: 'utf8' }).filter((file) =>
      file.endsWith('.ts'),
    )
    const expressions = files.flatMap((file) => expressionsIn(readFileSync(new URL(file, room), 'utf8')))
    expect(expressions.length).toBeGreaterThan(40)
    expect(expressions.filter((expression) => !isLinear(expression))).toEqual([])
    const slow = ['a*b', '(a+)+', '<<[^\\n]+>>', '\\s*$', '^a*b*$']
    expect(slow.filter(isLinear)).toEqual([])
  })
})

/** Regular expressions of a source text: those between slashes, and the texts that `new RegExp` is given. */
function expressionsIn(source: string): readonly string[] {
  const code = source.replace(/\/\*\*[\s\S]*?\*\/|\/\/[^\n]*/g, '')
  const literals = [
    ...code.matchAll(/[(,=[:?&|!]\s*\/((?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)\/[dgimsuvy]*/g),
  ]
  const made = [...code.matchAll(/new RegExp\(\s*`([^`]*)`/g)]
  return [...literals, ...made].map((match) => match[1] ?? '')
}

/**
 * Returns true if a search costs a bounded number of steps per letter: each branch has no quantifier without
 * a bound, or a single one of one letter at
 * its very end, or, where it is tied to the beginning of the text, before the text's end.
 */
function isLinear(expression: string): boolean {
  const bare = expression
    .replace(/\$\{[^}]*\}/g, 'x')
    .replace(/\\[pP]\{[^}]*\}|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\./gi, 'x')
  const letters = bare.replace(/\[(?:[^\]])*\]/g, 'x').replace(/\{[0-9]+,[0-9]+\}/g, '')
  return letters.split('|').every((branch) => {
    const isWhole = branch.startsWith('^') && branch.endsWith('$')
    const free = branch.replace(isWhole ? /[^)][*+]\)?\$$/ : /[^)][*+]$/, '')
    return !/[*+]|\{[0-9]+,\}/.test(free)
  })
}
