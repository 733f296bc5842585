import { describe, expect, it } from 'vitest'
import { type Field, field } from '../../src/core/index.js'

const failing = (code: string, message?: string) =>
  expect.objectContaining(message ? { code, message } : { code })
const reading = (one: Field<unknown>, value: unknown) => expect(() => one.read('config.a', value))

describe('field', () => {
  it('gives what is there and else the fallback', () => {
    const config = field.section({
      steps: field.integer({ fallback: 9 }),
      rate: field.number({ fallback: 9 }),
      name: field.oneOf(['x', 'y'], 'y'),
      on: field.boolean(false),
      range: field.range({ min: 0, max: 5, fallback: [0, 0] }),
      part: field.section({ a: field.integer({ fallback: 4 }) }),
      names: field.list(field.text()),
      rest: field.record(),
      any: field.json(),
      title: field.optional(field.text()),
    })
    const given = {
      ...{ steps: 3, rate: 0.5, name: 'x', on: true, range: [1, 2], part: { a: 1 }, names: ['b'] },
      ...{ rest: { c: 1 }, any: [null], title: 'T' },
    }
    expect(config.read('config', given)).toEqual(given)
    const absent = {
      steps: 9,
      rate: 9,
      name: 'y',
      on: false,
      range: [0, 0],
      part: { a: 4 },
      names: [],
      rest: {},
    }
    expect(config.read('config', {})).toEqual(absent)
    expect(config.read('config', { steps: undefined })).toEqual(absent)
  })

  it('says which value is of the wrong type', () => {
    reading(field.integer(), '3').toThrow(failing('MALFORMED', 'config.a must be an integer: got "3"'))
    reading(field.integer(), 1.5).toThrow(failing('MALFORMED', 'config.a must be an integer: got 1.5'))
    reading(field.number({ fallback: 1 }), null).toThrow(failing('MALFORMED'))
    reading(field.number({ fallback: 1 }), Number.NaN).toThrow(failing('MALFORMED'))
    reading(field.boolean(true), 1).toThrow(failing('MALFORMED'))
    reading(field.text('x'), '').toThrow(failing('MALFORMED'))
    const range = field.range({ min: 0, max: 9, fallback: [0, 1] })
    for (const value of [[1, 2, 3], [1], 7]) reading(range, value).toThrow(failing('MALFORMED'))
    reading(range, [1, 2.5]).toThrow(
      failing('MALFORMED', 'config.a must be a list of two integers: got [1, 2.5]'),
    )
    reading(field.list(field.text()), 'x').toThrow(failing('MALFORMED'))
    reading(field.list(field.text()), ['x', 3]).toThrow(
      failing('MALFORMED', 'config.a[1] must be a text: got 3'),
    )
    for (const one of [field.section({}), field.record()])
      for (const value of [[], null, 7]) reading(one, value).toThrow(failing('MALFORMED'))
  })

  it('refuses an absent value that has no fallback', () => {
    reading(field.section({ b: field.integer() }), {}).toThrow(
      failing('MALFORMED', 'config.a.b must be an integer: got undefined'),
    )
    reading(field.section({ b: field.integer({ min: 0 }) }), {}).toThrow(
      failing('OUT_OF_RANGE', 'config.a.b must be >= 0: got undefined'),
    )
  })

  it('says which number is outside its range', () => {
    reading(field.number({ min: 1 }), 0).toThrow(failing('OUT_OF_RANGE', 'config.a must be >= 1: got 0'))
    reading(field.number({ above: 0 }), 0).toThrow(failing('OUT_OF_RANGE'))
    reading(field.number({ max: 1 }), 2).toThrow(failing('OUT_OF_RANGE'))
    reading(field.range({ min: 0, max: 9 }), [3, 2]).toThrow(failing('OUT_OF_RANGE'))
  })

  it('refuses a choice that does not exist and unknown keys, with the nearest', () => {
    reading(field.oneOf(['x', 'y'], 'x'), 7).toThrow(
      failing('UNKNOWN_NAME', 'config.a must be one of x, y: got 7'),
    )
    reading(field.oneOf(['f32', 'bf16']), 'float32').toThrow(
      failing('UNKNOWN_NAME', 'config.a must be one of f32, bf16: got "float32"; did you mean \'f32\'?'),
    )
    reading(field.section({ steps: field.integer({ fallback: 1 }) }), { stpes: 3 }).toThrow(
      failing('UNKNOWN_NAME', "config.a.stpes must be a known key: did you mean 'steps'?"),
    )
  })

  it('is a JSON Schema with the same keys, types, ranges and defaults', () => {
    const config = field.section({
      steps: field.integer({ min: 1, max: 9, fallback: 2 }),
      rate: field.number({ above: 0 }),
      on: field.boolean(true),
      range: field.range({ min: 0, max: 5 }),
      names: field.list(field.text('x')),
      title: field.optional(field.text()),
    })
    expect(config.schema).toEqual({
      type: 'object',
      additionalProperties: false,
      properties: {
        steps: { type: 'integer', minimum: 1, maximum: 9, default: 2 },
        rate: { type: 'number', exclusiveMinimum: 0 },
        on: { type: 'boolean', default: true },
        range: {
          type: 'array',
          items: { type: 'integer', minimum: 0, maximum: 5 },
          minItems: 2,
          maxItems: 2,
        },
        names: { type: 'array', items: { type: 'string', minLength: 1, default: 'x' }, default: [] },
        title: { type: 'string', minLength: 1 },
      },
    })
  })
})
