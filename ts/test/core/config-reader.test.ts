import { describe, expect, it } from 'vitest'
import { ConfigReader } from '../../src/core/index.js'

const reader = (json: unknown) => new ConfigReader('config', json)
const failing = (code: string, message?: string) =>
  expect.objectContaining(message ? { code, message } : { code })

describe('ConfigReader', () => {
  it('gives what is there and else the fallback', () => {
    const given = reader({ steps: 3, rate: 0.5, name: 'x', on: true, range: [1, 2], part: { a: 1 } })
    expect(given.integer('steps', { fallback: 9 })).toBe(3)
    expect(given.number('rate', { fallback: 9 })).toBe(0.5)
    expect(given.oneOf('name', ['x', 'y'], 'y')).toBe('x')
    expect(given.boolean('on', false)).toBe(true)
    expect(given.range('range', { min: 0, max: 5, fallback: [0, 0] })).toEqual([1, 2])
    expect(given.section('part').integer('a', { fallback: 0 })).toBe(1)
    expect(() => given.end()).not.toThrow()
    expect(reader({}).text('name', 'default')).toBe('default')
    expect(reader({}).object('part')).toEqual({})
  })

  it('says which field is of the wrong type', () => {
    expect(() => reader({ a: '3' }).integer('a', { fallback: 0 })).toThrow(
      failing('MALFORMED', 'config.a must be a finite number: got "3"'),
    )
    expect(() => reader({ a: 1.5 }).integer('a', { fallback: 0 })).toThrow(
      failing('MALFORMED', 'config.a must be an integer: got 1.5'),
    )
    expect(() => reader({ a: null }).number('a', { fallback: 0 })).toThrow(failing('MALFORMED'))
    expect(() => reader({ a: 1 }).boolean('a', true)).toThrow(failing('MALFORMED'))
    expect(() => reader({ a: '' }).text('a', 'x')).toThrow(failing('MALFORMED'))
    expect(() => reader({ a: [1, 2, 3] }).range('a', { min: 0, max: 9, fallback: [0, 1] })).toThrow(
      failing('MALFORMED'),
    )
    expect(() => reader({ a: [1, 2.5] }).range('a', { min: 0, max: 9, fallback: [0, 1] })).toThrow(
      failing('MALFORMED'),
    )
    expect(() => reader({ a: [] }).section('a')).toThrow(failing('MALFORMED'))
    expect(() => reader(7)).toThrow(failing('MALFORMED', 'config must be an object: got 7'))
  })

  it('says which number is outside its range', () => {
    expect(() => reader({ a: 0 }).number('a', { min: 1, fallback: 1 })).toThrow(
      failing('OUT_OF_RANGE', 'config.a must be >= 1: got 0'),
    )
    expect(() => reader({ a: 0 }).number('a', { above: 0, fallback: 1 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => reader({ a: 2 }).number('a', { max: 1, fallback: 1 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => reader({ a: [3, 2] }).range('a', { min: 0, max: 9, fallback: [0, 1] })).toThrow(
      failing('OUT_OF_RANGE'),
    )
  })

  it('refuses a choice that does not exist and keys that nobody asked for', () => {
    expect(() => reader({ a: 'z' }).oneOf('a', ['x', 'y'], 'x')).toThrow(
      failing('UNKNOWN_NAME', 'config.a must be one of x, y: got "z"'),
    )
    const asked = reader({ stpes: 3 })
    asked.integer('steps', { fallback: 1 })
    expect(() => asked.end()).toThrow(
      failing('UNKNOWN_NAME', "config.stpes must be a known key: did you mean 'steps'?"),
    )
  })
})
