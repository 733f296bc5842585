import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../src/telemetry/index.js'
import { type Tool, type ToolCall, type ToolLimits, ToolRunner } from '../../src/tools/index.js'
import { TOOL_ERROR_CHARS_MAX, TOOL_JSON_DEPTH_MAX } from '../../src/tools/tool-runner.js'
import { failing } from '../torchrl/envs/chats.js'
import { add, boom, echo } from './tools.js'

const call = (tool: string, args: object = {}) => ({ tool, args, tag: null }) as ToolCall
const tool = (name: string, run: Tool['run']): Tool => ({ name, run })
const runnerOf = (tools: Tool[], limits: ToolLimits = {}) => new ToolRunner({ tools, ...limits })
const run = (runner: ToolRunner, ...calls: ToolCall[]) => runner.run(calls, { messages: [] })
const oneOf = async (run: Tool['run'], limits: ToolLimits = {}) => {
  const [result] = await runnerOf([tool('it', run)], limits).run([call('it')], { messages: [] })
  return result?.ok ? result.value : [result?.error.code, result?.error.message]
}
/** Lets everything continue that waits for promises only. */
const settle = () => new Promise((resolve) => setImmediate(resolve))

describe('ToolRunner', () => {
  it('answers in the order of the calls, and no failure reaches another call', async () => {
    const results = await run(
      runnerOf([add, boom]),
      call('boom'),
      call('add', { a: 2, b: 3 }),
      call('no'),
      call('add', { a: 1 }),
    )
    expect(results.map((result) => (result.ok ? result.value : result.error.code))).toEqual([
      'USER_CODE',
      { sum: 5 },
      'UNKNOWN_NAME',
      'MALFORMED',
    ])
  })

  it('passes on JSON of any kind, and refuses what is none', async () => {
    for (const value of ['text', 3, true, null, [1, { a: [] }]])
      expect(await oneOf(() => value)).toEqual(value)
    expect(await oneOf(async () => ({ at: new Date(0), none: undefined }))).toEqual({
      at: '1970-01-01T00:00:00.000Z',
    })
    const cycle: unknown[] = []
    cycle.push(cycle)
    let deep: unknown = 1
    for (let depth = 0; depth < 100_000; depth++) deep = [deep]
    const wrong = [
      undefined,
      () => 1,
      Symbol('s'),
      1n,
      Number.NaN,
      { a: Number.POSITIVE_INFINITY },
      new Map(),
      new Uint8Array(2),
      cycle,
      deep,
    ]
    for (const value of wrong) {
      expect(await oneOf(() => value)).toEqual([
        'USER_CODE',
        expect.stringMatching(/^result must be JSON: got/),
      ])
    }
  })

  it('passes on what a tool throws, whatever that is, up to a length', async () => {
    const thrown = (error: unknown) =>
      oneOf(() => {
        throw error
      })
    expect(await thrown(new Error('why'))).toEqual(['USER_CODE', 'why'])
    expect(await thrown('text')).toEqual(['USER_CODE', 'text'])
    expect(await thrown(undefined)).toEqual(['USER_CODE', 'undefined'])
    const hostile = {
      toString: () => {
        throw new Error('no')
      },
    }
    expect(await thrown(hostile)).toEqual(['USER_CODE', 'an error that cannot be read'])
    expect(await thrown('x'.repeat(TOOL_ERROR_CHARS_MAX))).toEqual([
      'USER_CODE',
      'x'.repeat(TOOL_ERROR_CHARS_MAX),
    ])
    expect(await thrown('x'.repeat(TOOL_ERROR_CHARS_MAX + 1))).toEqual([
      'USER_CODE',
      'x'.repeat(TOOL_ERROR_CHARS_MAX),
    ])
    expect(await thrown('\ud800')).toEqual(['USER_CODE', '\ufffd'])
  })

  it('ends a call at its deadline, tells its tool, and goes on with the others', async () => {
    const clock = new ManualClock()
    let reason: unknown
    const hang = tool('hang', (_, { signal }) => {
      signal.addEventListener('abort', () => {
        reason = signal.reason
      })
      return new Promise(() => {})
    })
    const results = run(
      runnerOf([hang, echo], { clock, timeoutMs: 50 }),
      call('hang'),
      call('echo', { a: 1 }),
    )
    await settle()
    clock.advance(49)
    expect(reason).toBe(undefined)
    clock.advance(1)
    const [late, fine] = await results
    expect(late).toMatchObject({
      ok: false,
      error: { code: 'TIMEOUT', message: 'must end within 50 ms: got no answer' },
    })
    expect(fine).toMatchObject({ ok: true, value: { a: 1 } })
    expect(reason).toEqual(failing('TIMEOUT'))
    expect(clock.numTimers).toBe(0)
  })

  it('does not run a tool whose arguments were checked too late', async () => {
    const clock = new ManualClock()
    let finish = (_: { value: unknown }) => {}
    let numRuns = 0
    const validate = () =>
      new Promise<{ value: unknown }>((resolve) => {
        finish = resolve
      })
    const slow: Tool = {
      name: 'slow',
      schema: { '~standard': { version: 1, vendor: 'test', validate } },
      run: () => ++numRuns,
    }
    const results = run(runnerOf([slow], { clock, timeoutMs: 5 }), call('slow'))
    await settle()
    clock.advance(5)
    expect(await results).toMatchObject([{ error: { code: 'TIMEOUT' } }])
    finish({ value: {} })
    await settle()
    expect(numRuns).toBe(0)
  })

  it('stops all calls with the signal, those that wait for a place too', async () => {
    const stop = new AbortController()
    const runner = runnerOf([tool('hang', () => new Promise(() => {}))], {
      clock: new ManualClock(),
      maxConcurrent: 1,
    })
    const results = runner.run([call('hang'), call('hang')], { messages: [], signal: stop.signal })
    await settle()
    stop.abort()
    await expect(results).rejects.toEqual(failing('ABORTED'))
    await settle()
    const again = runner.run([], { messages: [] })
    expect(await again).toEqual([])
  })

  it('runs as many calls as are allowed, and says that there were more', async () => {
    const runner = runnerOf([echo], { maxCalls: 3 })
    const results = async (length: number) => await run(runner, ...Array.from({ length }, () => call('echo')))
    expect((await results(3)).map(({ ok }) => ok)).toEqual([true, true, true])
    const more = await results(100)
    expect(more.map(({ ok }) => ok)).toEqual([true, true, true, false])
    expect(more.at(-1)).toMatchObject({
      error: { code: 'LIMIT_EXCEEDED', message: expect.stringMatching(/at most 3 calls: got 100/) },
    })
  })

  it('bounds the lengths of arguments and results as JSON', async () => {
    const runner = runnerOf([echo], { maxArgumentChars: 10 })
    expect(await run(runner, call('echo', { a: '1234' }))).toMatchObject([
      { error: { code: 'LIMIT_EXCEEDED' } },
    ])
    expect(await run(runner, call('echo', { a: '12' }))).toMatchObject([{ ok: true, value: { a: '12' } }])
    expect(await run(runner, call('echo', { a: '123' }))).toMatchObject([
      { error: { code: 'LIMIT_EXCEEDED', message: 'arguments must have 10 characters at most: got 11' } },
    ])
    expect(await oneOf(() => '12345678', { maxResultChars: 10 })).toBe('12345678')
    expect(await oneOf(() => '123456789', { maxResultChars: 10 })).toEqual([
      'LIMIT_EXCEEDED',
      'result must have 10 characters at most: got 11',
    ])
  })

  it('bounds how deep arguments and results are', async () => {
    const nested = (depth: number) => {
      let value: unknown = '[['
      for (let at = 0; at < depth; at++) value = at % 2 ? [value] : { a: value, b: '\\"[{' }
      return value
    }
    expect(await oneOf(() => nested(TOOL_JSON_DEPTH_MAX))).toEqual(nested(TOOL_JSON_DEPTH_MAX))
    const tooDeep = `result must be nested ${TOOL_JSON_DEPTH_MAX} deep at most: got ${TOOL_JSON_DEPTH_MAX + 1}`
    expect(await oneOf(() => nested(TOOL_JSON_DEPTH_MAX + 1))).toEqual(['LIMIT_EXCEEDED', tooDeep])
    const runner = runnerOf([echo])
    const args = (depth: number) => call('echo', { a: nested(depth) })
    expect(await run(runner, args(TOOL_JSON_DEPTH_MAX - 1))).toMatchObject([{ ok: true }])
    expect(await run(runner, args(TOOL_JSON_DEPTH_MAX))).toMatchObject([
      { error: { code: 'LIMIT_EXCEEDED' } },
    ])
  })

  it('runs no more calls at a time than are allowed, over all conversations', async () => {
    let [running, most] = [0, 0]
    const runner = runnerOf(
      [
        tool('it', async () => {
          most = Math.max(most, ++running)
          await settle()
          running -= 1
          return most
        }),
      ],
      { maxConcurrent: 2 },
    )
    const three = [call('it'), call('it'), call('it')]
    const results = await Promise.all([run(runner, ...three), run(runner, ...three)])
    expect([results.flat().length, most, running]).toEqual([6, 2, 0])
  })

  it('runs calls in their order where asked, up to the first that fails', async () => {
    const seen: unknown[] = []
    const note = tool('note', async ({ at }) => {
      await settle()
      seen.push(at)
      return null
    })
    const calls = [call('note', { at: 1 }), call('boom'), call('note', { at: 2 })]
    const all = await runnerOf([note, boom]).run(calls, { messages: [], inOrder: true })
    expect([all.length, seen]).toEqual([3, [1, 2]])
    const some = await runnerOf([note, boom], { maxCalls: 2 }).run(calls, {
      messages: [],
      inOrder: true,
      stopOnError: true,
    })
    expect(some.map(({ ok }) => ok)).toEqual([true, false, false])
    const first = await runnerOf([note, boom]).run(calls.slice(1), {
      messages: [],
      inOrder: true,
      stopOnError: true,
    })
    expect([first.length, seen]).toEqual([1, [1, 2, 1]])
  })

  it('hands out copies of arguments and of the conversation', async () => {
    const messages = [{ role: 'user', content: 'q' }]
    const args = { list: [1] }
    const spoil = tool('spoil', (given, context) => {
      ;(given.list as number[]).push(2)
      ;(context.messages[0] as { content: string }).content = 'spoiled'
      return context.messages[0]?.content
    })
    const [result] = await runnerOf([spoil]).run([call('spoil', args)], { messages })
    expect(result).toMatchObject({ ok: true, value: 'q' })
    expect([messages, args]).toEqual([[{ role: 'user', content: 'q' }], { list: [1] }])
  })

  it('refuses limits that are none, and unknown options', () => {
    for (const name of ['timeoutMs', 'maxCalls', 'maxArgumentChars', 'maxResultChars', 'maxConcurrent']) {
      for (const value of [0, 1.5, Number.NaN, 2 ** 31]) {
        expect(() => runnerOf([], { [name]: value })).toThrow(
          failing('OUT_OF_RANGE', new RegExp(`^${name} must be`)),
        )
      }
    }
    expect(() => runnerOf([], { timeout: 3 } as never)).toThrow(failing('UNKNOWN_NAME', /timeoutMs/))
  })
})
