import { describe, expect, it } from 'vitest'
import { parseJson } from '../../src/core/index.js'

describe('parseJson', () => {
  it('gives an integer that a number would round as a text of its digits', () => {
    const json = '{"a": 9007199254740993, "b": [-12345678901234567890, 1e300], "c": {"9007199254740993": 1}}'
    expect(parseJson(json)).toEqual({
      a: '9007199254740993',
      b: ['-12345678901234567890', 1e300],
      c: { '9007199254740993': 1 },
    })
    expect(parseJson('9'.repeat(400))).toBe('9'.repeat(400))
  })

  it('gives what JSON.stringify wrote back as it was', () => {
    for (const value of [
      2 ** 53,
      2 ** 60,
      -(2 ** 63),
      123456789012345680000,
      1e21,
      0.12345678901234568,
      -0,
      5e-324,
    ])
      expect(parseJson(JSON.stringify([value]))).toEqual(JSON.parse(JSON.stringify([value])))
    expect(Object.is(parseJson('-0'), -0)).toBe(true)
    const text = '"\\\\" 9007199254740993 \\'
    expect(parseJson(JSON.stringify([text, '9007199254740993']))).toEqual([text, '9007199254740993'])
    expect(() => parseJson('[9007199254740993')).toThrow(SyntaxError)
  })
})
