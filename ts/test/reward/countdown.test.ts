import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { COUNTDOWN_EXPRESSION_LENGTH_MAX, COUNTDOWN_NUMBERS_MAX } from '../../src/reward/countdown.js'
import { isCountdownSolution, parseCountdown } from '../../src/reward/index.js'

const solves = (expression: string, target: number, ...numbers: number[]) =>
  isCountdownSolution(expression, { target, numbers })

/** An expression of `numbers` in order, with what it is worth; `undefined` where it divides by zero. */
function expressionOf(
  numbers: readonly number[],
  signs: readonly number[],
): readonly [string, number | undefined] {
  return numbers.slice(1).reduce<readonly [string, number | undefined]>(
    ([text, value], number, index) => {
      const sign = '+-*/'.charAt((signs[index] ?? 0) % 4)
      const worth = {
        '+': (v: number) => v + number,
        '-': (v: number) => v - number,
        '*': (v: number) => v * number,
        '/': (v: number) => v / number,
      }
      const next =
        value === undefined || (sign === '/' && number === 0)
          ? undefined
          : worth[sign as keyof typeof worth](value)
      return [`(${text} ${sign} ${number})`, next]
    },
    [String(numbers[0]), numbers[0]],
  )
}

describe('countdown', () => {
  it.each<[string, number, number[], boolean]>([
    ['(25 + 3) * 4', 112, [25, 3, 4], true],
    ['25 + 3', 100, [25, 3, 4], false],
    ['25 + 25', 50, [25, 3, 4], false],
    ['import os', 0, [1, 2], false],
    ['2**3', 8, [2, 3], false],
    ['7//2', 3, [7, 2], false],
    ['2.5*2', 5, [2, 5, 2], false],
    ['-(1-3)', 2, [1, 3], true],
    ['--5', 5, [5], true],
    ['1/3*3', 1, [1, 3, 3], true],
    ['(2)(3)', 6, [2, 3], false],
    ['2 3', 6, [2, 3], false],
    ['05+1', 6, [5, 1], false],
    ['5/0', 0, [5, 0], false],
    ['5/(3-3)', 0, [5, 3, 3], false],
    ['1+\n2', 3, [1, 2], true],
    ['(1\t+\r\n2)\n', 3, [1, 2], true],
    ['1\n2', 12, [1, 2], false],
    ['', 0, [1], false],
    ['(1', 1, [1], false],
    ['1)', 1, [1], false],
    ['1+', 1, [1], false],
    ['99**99**99', 1, [99, 99, 99], false],
    ['3-5', -2, [3, 5], true],
  ])('%j for %d of %j is %j', (expression, target, numbers, isSolution) => {
    expect(solves(expression, target, ...numbers)).toBe(isSolution)
  })

  it('agrees with sums in floating point on random expressions', () => {
    const numbers = fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1, maxLength: 6 })
    const signs = fc.array(fc.nat(), { minLength: 6, maxLength: 6 })
    fc.assert(
      fc.property(numbers, signs, (list, kinds) => {
        const [expression, value] = expressionOf(list, kinds)
        const target = value === undefined ? 0 : Math.round(value)
        const isWhole = value !== undefined && Math.abs(value - target) < 1e-9
        expect(solves(expression, target, ...list)).toBe(isWhole)
        expect(solves(expression, target + 1, ...list)).toBe(false)
      }),
      { seed: 1, numRuns: 500 },
    )
  })

  it('uses each number once at most, or exactly once where asked to', () => {
    const problem = { target: 3, numbers: [1, 2, 5] }
    expect(isCountdownSolution('1+2', problem)).toBe(true)
    expect(isCountdownSolution('1+2', problem, 'exactlyOnce')).toBe(false)
    expect(isCountdownSolution('1+2+5', { ...problem, target: 8 }, 'exactlyOnce')).toBe(true)
  })

  it('takes nested parentheses up to the longest expression, and nothing longer', () => {
    const nested = (length: number) => `${'('.repeat((length - 1) / 2)}7${')'.repeat((length - 1) / 2)}`
    expect(solves(nested(COUNTDOWN_EXPRESSION_LENGTH_MAX - 1), 7, 7)).toBe(true)
    const signs = (length: number) => `${'-'.repeat(length - 1)}7`
    expect(solves(signs(COUNTDOWN_EXPRESSION_LENGTH_MAX), -7, 7)).toBe(true)
    expect(solves(signs(COUNTDOWN_EXPRESSION_LENGTH_MAX + 1), 7, 7)).toBe(false)
  })

  it('reads a problem, with a negative target too, and refuses other texts', () => {
    expect(parseCountdown('target=-7, numbers=3')).toEqual({ target: -7, numbers: [3] })
    const list = (count: number) => `target=1, numbers=${Array(count).fill(1).join()}`
    expect(parseCountdown(list(COUNTDOWN_NUMBERS_MAX)).numbers).toHaveLength(COUNTDOWN_NUMBERS_MAX)
    const refused = (answer: string) => {
      try {
        return parseCountdown(answer)
      } catch (error) {
        return error instanceof Error && 'code' in error ? error.code : error
      }
    }
    expect(refused(list(COUNTDOWN_NUMBERS_MAX + 1))).toBe('LIMIT_EXCEEDED')
    expect(refused('target=9999999999999999, numbers=1')).toBe('OUT_OF_RANGE')
    const wrong = [
      '',
      'target=, numbers=1',
      'target=1, numbers=',
      'target=1, numbers=1,,2',
      'target=1.5, numbers=1',
      '42',
    ]
    expect(wrong.map(refused)).toEqual(wrong.map(() => 'MALFORMED'))
  })
})
