import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  extractBoxed,
  extractMathAnswer,
  isSameMath,
  MATHRewardParser,
  mathTruth,
} from '../../src/reward/index.js'

describe('MATH', () => {
  it.each([
    ['The answer is $\\boxed{42}$.', '42'],
    ['\\boxed{1} then \\boxed{\\frac{1}{2}}.', '\\frac{1}{2}'],
    ['\\boxed{\\frac{1}{2}', '\\frac{1}{2}'],
    [' none ', 'none'],
    ['\\boxed{ 7\n}', '7'],
  ])('finds the answer of %j', (solution, answer) => {
    expect(extractBoxed(solution)).toBe(answer)
  })

  it.each([
    ['Answer: $34$', '34'],
    ['so \\boxed{34}. Answer: 35', '34'],
    ['Answer: 1\nAnswer: 2 \nmore', '2'],
    ['it mentions 34', undefined],
  ])('finds the answer in free text %j', (text, answer) => {
    expect(extractMathAnswer(text)).toBe(answer)
  })

  it.each([
    ['1,000', '1000', true, true],
    ['\\frac12', '\\frac{1}{2}', false, true],
    ['0.5', '1/2', false, true],
    ['-\\frac{1}{2}', '-0.50', false, true],
    ['\\dfrac{3}{6}', '\\tfrac12', false, true],
    ['336', '336^\\circ', false, true],
    ['335', '336^\\circ', false, false],
    ['12\\text{ cm}', '12', false, true],
    ['\\text{east}', 'east', false, true],
    ['50\\%', '50', false, true],
    ['1/0', '2/0', false, false],
    ['x+1', 'x + 1', true, true],
    ['\tx+1\n', 'x + 1', true, true],
    ['x+1', '1+x', false, false],
    ['', '\\text{ }', false, false],
  ])('compares %j with %j: as text %j, by value %j', (predicted, truth, text, value) => {
    expect([isSameMath(predicted, truth, 'text'), isSameMath(predicted, truth)]).toEqual([text, value])
  })

  it('knows equal fractions however they are written', () => {
    const part = fc.integer({ min: 1, max: 9999 })
    fc.assert(
      fc.property(part, part, part, (a, b, factor) => {
        expect(isSameMath(`\\frac{${a}}{${b}}`, `${a * factor}/${b * factor}`)).toBe(true)
        expect(isSameMath(`${a}/${b}`, `${a + 1}/${b}`)).toBe(false)
      }),
      { seed: 1, numRuns: 200 },
    )
  })

  it('refuses a truth of nothing', () => {
    expect(() => mathTruth('\\boxed{ }')).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
    expect(() => new MATHRewardParser().score('', ' ')).toThrow(
      expect.objectContaining({ code: 'MALFORMED' }),
    )
  })
})
