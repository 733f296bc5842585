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
