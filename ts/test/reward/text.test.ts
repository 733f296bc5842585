import { describe, expect, it } from 'vitest'
import {
  checkRewardText,
  countOf,
  escapeExpression,
  isLower,
  isUpper,
  REWARD_TEXT_LENGTH_MAX,
  strip,
  stripEnd,
  stripLetters,
} from '../../src/reward/text.js'

describe('text', () => {
  it('takes a text of the longest length and refuses one letter more', () => {
    expect(() => checkRewardText('response', 'x'.repeat(REWARD_TEXT_LENGTH_MAX))).not.toThrow()
    const long = () => checkRewardText('response', 'x'.repeat(REWARD_TEXT_LENGTH_MAX + 1))
    expect(long).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
  })

  it('strips what Python takes for space and nothing else', () => {
    expect(strip('\x1c\u0085\u2003 a b\u00a0\n')).toBe('a b')
    expect(strip('\ufeffa\u200b')).toBe('\ufeffa\u200b')
    expect(stripEnd(' a \n')).toBe(' a')
    expect(stripLetters('"" a "', '"')).toBe(' a ')
    expect(strip(' \n ')).toBe('')
  })

  it.each([
    ['HELLO 1!', true, false],
    ['hello 1!', false, true],
    ['Hello', false, false],
    ['123', false, false],
    ['\u01c5', false, false],
    ['\u00c9\u0416', true, false],
  ])('reads the case of %j as Python does', (text, upper, lower) => {
    expect([isUpper(text), isLower(text)]).toEqual([upper, lower])
  })

  it('escapes every letter that means something in an expression', () => {
    const odd = '\\^$.*+?()[]{}|/-a'
    expect(new RegExp(`^${escapeExpression(odd)}$`, 'u').test(odd)).toBe(true)
    expect(countOf('aaaa', 'aa')).toBe(2)
  })
})
