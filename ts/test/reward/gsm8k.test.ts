import { describe, expect, it } from 'vitest'
import { GSM8KRewardParser, gsm8kTruth, normalizeGsm8kAnswer } from '../../src/reward/index.js'

describe('GSM8K', () => {
  it.each([
    ['1,234', '1234'],
    ['$120', '120'],
    ['$120.50', '120.5'],
    ['120.00', '120'],
    ['120.', '120'],
    [' 42 ', '42'],
    ['100%', '100'],
    ['0.10', '0.1'],
    ['-0.0', '-0'],
    ['1e3', '1e3'],
    ['00012', '00012'],
    ['+5', '+5'],
    ['.5', '.5'],
    ['1.000,00', '1'],
    ['36 snakes', '36 snakes'],
    ['10', '10'],
  ])('normalises %j to %j', (answer, normal) => {
    expect(normalizeGsm8kAnswer(answer)).toBe(normal)
  })

  it.each([
    ['+5', '5'],
    ['.5', '0.5'],
    ['-0', '0'],
    ['007', '7'],
  ])('takes %j for %j as a number but not as a text', (said, right) => {
    const reward = (compare: 'numeric' | 'text') =>
      new GSM8KRewardParser({ compare }).score(`<answer>${said}</answer>`, `#### ${right}`).success
    expect([reward('numeric'), reward('text')]).toEqual([true, false])
  })

  it('compares an answer that is not a number as text', () => {
    const score = (said: string, right: string) =>
      new GSM8KRewardParser().score(`<answer>${said}</answer>`, `#### ${right}`).success
    expect(score('3:30', '3:30')).toBe(true)
    expect(score('36 snakes', '36')).toBe(false)
  })

  it.each(['no mark', '', '#### ', '#### 1\n#### 2', '####42'])('refuses %j as ground truth', (answer) => {
    expect(() => gsm8kTruth(answer)).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
    const score = () => new GSM8KRewardParser().score('no answer at all', answer)
    expect(score).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
  })
})
