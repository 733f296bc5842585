import { describe, expect, expectTypeOf, it } from 'vitest'
import { type ObjectSchema, type StandardSchema, type Tool, ToolRunner, tool } from '../../src/tools/index.js'
import { failing } from '../torchrl/envs/chats.js'

const schema = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    unit: { enum: ['C', 'F'] },
    days: { type: 'array', items: { type: 'integer' } },
  },
  required: ['city', 'days'],
} as const

describe('tool', () => {
  it('gives the function arguments with the types of the schema', async () => {
    const weather = tool({
      name: 'weather',
      schema,
      run: (args) => {
        expectTypeOf(args.city).toEqualTypeOf<string>()
        expectTypeOf(args.unit).toEqualTypeOf<'C' | 'F' | undefined>()
        expectTypeOf(args.days).toEqualTypeOf<readonly number[]>()
        return `${args.city}: ${args.days.length} days in ${args.unit ?? 'C'}`
      },
    })
    const runner = new ToolRunner({ tools: [weather] })
    const [result] = await runner.run(
      [{ tool: 'weather', args: { city: 'Oslo', days: [1, 2] }, tag: null }],
      { messages: [] },
    )
    expect(result).toMatchObject({ ok: true, value: 'Oslo: 2 days in C' })
  })

  it('tells the policy the schema, and answers arguments that do not fit', async () => {
    let numRuns = 0
    const weather = tool({ name: 'weather', description: 'Tells it.', schema, run: () => ++numRuns })
    const runner = new ToolRunner({ tools: [weather] })
    expect(runner.tools.specs).toEqual([
      { type: 'function', function: { name: 'weather', description: 'Tells it.', parameters: schema } },
    ])
    const [result] = await runner.run([{ tool: 'weather', args: { city: 7, days: [] }, tag: null }], {
      messages: [],
    })
    expect(result).toMatchObject({ ok: false, error: { code: 'MALFORMED' } })
    expect(numRuns).toBe(0)
  })

  it('takes a validator of Standard Schema, whose output reaches the function', async () => {
    const validator: StandardSchema<{ readonly n: number }> = {
      '~standard': {
        version: 1,
        vendor: 'mine',
        validate: (value) => ({ value: { n: Number((value as { n: string }).n) } }),
      },
    }
    const parameters: ObjectSchema = { type: 'object', properties: { n: { type: 'string' } } }
    const twice = tool({
      name: 'twice',
      schema: validator,
      parameters,
      run: ({ n }) => {
        expectTypeOf(n).toEqualTypeOf<number>()
        return 2 * n
      },
    })
    const runner = new ToolRunner({ tools: [twice] })
    expect(runner.tools.specs[0]).toMatchObject({ function: { parameters } })
    const [result] = await runner.run([{ tool: 'twice', args: { n: '4' }, tag: null }], { messages: [] })
    expect(result).toMatchObject({ ok: true, value: 8 })
  })

  it('is a tool wherever one is taken', () => {
    const add = tool({ name: 'add', schema: { type: 'object', properties: {} }, run: () => 0 })
    expectTypeOf([add]).toExtend<readonly Tool[]>()
  })

  it('reads unions, choices and open objects of a schema', () => {
    const ask = tool({
      name: 'ask',
      schema: {
        type: 'object',
        properties: {
          unit: { type: ['string', 'null'] },
          at: { anyOf: [{ type: 'number' }, { const: 'now' }] },
          counts: { type: 'object', additionalProperties: { type: 'integer' } },
          rest: {},
        },
        required: ['unit', 'at', 'counts', 'rest'],
      },
      run: ({ unit, at, counts, rest }) => {
        expectTypeOf(unit).toEqualTypeOf<string | null>()
        expectTypeOf(at).toEqualTypeOf<number | 'now'>()
        expectTypeOf(counts).toEqualTypeOf<Readonly<Record<string, number>>>()
        expectTypeOf(rest).toBeUnknown()
        return null
      },
    })
    expectTypeOf([ask]).toExtend<readonly Tool[]>()
    const wrong = () =>
      // @ts-expect-error a number is no unit
      ask.run({ unit: 7, at: 1, counts: {}, rest: 0 }, { messages: [], signal: new AbortController().signal })
    expectTypeOf(wrong).toBeFunction()
  })

  it('is taken with arguments that are no JSON, such as a date that a validator makes', async () => {
    interface Moment {
      readonly when: Date
    }
    const validator: StandardSchema<Moment> = {
      '~standard': {
        version: 1,
        vendor: 'mine',
        validate: (value) => ({ value: { when: new Date((value as { when: string }).when) } }),
      },
    }
    const year = tool({ name: 'year', schema: validator, run: ({ when }) => when.getUTCFullYear() })
    const runner = new ToolRunner({ tools: [year] })
    const calls = [{ tool: 'year', args: { when: '2026-01-02T00:00:00Z' }, tag: null }]
    expect((await runner.run(calls, { messages: [] }))[0]).toMatchObject({ ok: true, value: 2026 })
  })

  it('refuses at once what is no tool', () => {
    const run = () => 0
    expect(() => tool({ name: 'no spaces', schema, run })).toThrow(failing('MALFORMED', /tool\.name/))
    expect(() => tool({ name: 'a', schema: 'object' as never, run })).toThrow(failing('MALFORMED', /schema/))
    expect(() => tool({ name: 'a', schema, run: 7 as never })).toThrow(failing('MALFORMED', /run/))
    expect(() => tool({ name: 'a', schema, run, paramters: {} } as never)).toThrow(
      failing('UNKNOWN_NAME', /parameters/),
    )
    expect(() => tool({ name: 'a', run } as never)).toThrow(failing('MALFORMED', /schema/))
  })
})
