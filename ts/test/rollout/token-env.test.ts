import { describe, expect, it } from 'vitest'
import { createRenderer, type Message } from '../../src/chat/index.js'
import { TokenEnv, type TokenEnvLimits, type TokenEnvOutput } from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { type ScriptedEnv, scriptedEnv } from './scripted-env.js'
import { type ToyOptions, ToyRenderer } from './toy-renderer.js'

const SEARCH = {
  name: 'search',
  description: 'Finds pages.',
  parameters: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
}
const QWEN_MARKERS = [
  '<|im_start|>',
  '<|im_end|>',
  '<|endoftext|>',
  '<tool_call>',
  '</tool_call>',
  '<think>',
  '</think>',
  '<tool_response>',
  '</tool_response>',
]
const FIRST_PROMPT = [1, 10, 11, 9, 8, 2]
const SECOND_PROMPT = [...FIRST_PROMPT, 20, 21, 9, 8, 3, 30, 9, 8, 2]

const stopped = (...ids: number[]) => ({ ids: Uint32Array.from(ids), finishReason: 'stop' as const })
const cut = (...ids: number[]) => ({ ids: Uint32Array.from(ids), finishReason: 'length' as const })
const idsOf = ({ nextPrompt }: TokenEnvOutput) => nextPrompt && [...nextPrompt.ids]

function tokenEnv(messageEnv: ScriptedEnv, limits: TokenEnvLimits = {}, toy: ToyOptions = {}): TokenEnv {
  return new TokenEnv({ messageEnv, renderer: new ToyRenderer(toy), ...limits })
}

async function opened(messageEnv: ScriptedEnv, limits?: TokenEnvLimits, toy?: ToyOptions): Promise<TokenEnv> {
  const env = tokenEnv(messageEnv, limits, toy)
  await env.init()
  return env
}

describe('TokenEnv', () => {
  it('begins with the rendered messages and a generation prompt', async () => {
    const output = await tokenEnv(scriptedEnv()).init()
    expect(output.status).toBe('ongoing')
    expect(idsOf(output)).toEqual(FIRST_PROMPT)
    expect(output.completionMessage).toBeNull()
  })

  it('extends the sampled tokens by the reply and never encodes them again', async () => {
    const env = await opened(scriptedEnv())
    const output = await env.step(stopped(20, 21, 9))
    expect(output.status).toBe('ongoing')
    expect(idsOf(output)).toEqual(SECOND_PROMPT)
    expect(output.completionMessage).toEqual({ role: 'assistant', content: '20 21' })
    expect(output.envMessages).toEqual([{ role: 'tool', content: '30' }])
    expect(output.nextPrompt?.messageOffset).toBe(2)
    expect(output.bridgeRefusal).toBeNull()
  })

  it('ends a completion that ran into its limit without asking the environment', async () => {
    const world = scriptedEnv()
    const env = await opened(world)
    const output = await env.step(cut(20))
    expect(output).toMatchObject({ status: 'truncated_length', nextPrompt: null, envMessages: [] })
    expect(output.completionMessage).toEqual({ role: 'assistant', content: '20' })
    expect(world.heard).toEqual([])
  })

  it('keeps a first prompt that is too long, so that one can see it', async () => {
    const output = await tokenEnv(scriptedEnv(), { maxRolloutTokens: 6 }).init()
    expect(output.status).toBe('truncated_prompt_too_long')
    expect(idsOf(output)).toEqual(FIRST_PROMPT)
  })

  it('drops a later prompt that is too long but keeps what the environment said', async () => {
    const env = await opened(scriptedEnv(), { maxRolloutTokens: 7 })
    const output = await env.step(stopped(20, 21, 9))
    expect(output).toMatchObject({ status: 'truncated_prompt_too_long', nextPrompt: null })
    expect(output.envMessages).toEqual([{ role: 'tool', content: '30' }])
  })

  it('steps the environment on the last turn and keeps its reply and rewards', async () => {
    const reply = { envMessages: [{ role: 'tool', content: '30' }], envRewards: { speed: 2 } }
    const env = await opened(
      scriptedEnv(() => reply),
      { maxTurns: 1 },
    )
    const output = await env.step(stopped(20, 9))
    expect(output).toMatchObject({ status: 'truncated_max_turns', nextPrompt: null, ...reply })
  })

  it('counts a rollout that is done on its last turn as completed', async () => {
    const env = await opened(
      scriptedEnv(() => ({ done: true })),
      { maxTurns: 1, maxRolloutTokens: 7 },
    )
    const output = await env.step(stopped(20, 9))
    expect(output).toMatchObject({ status: 'completed', cause: null, nextPrompt: null })
  })

  it('ends with error_parse when the parser throws, with no message', async () => {
    const world = scriptedEnv()
    const env = await opened(world, {}, { parseError: new Error('no such id') })
    const output = await env.step(cut(20))
    expect(output).toMatchObject({ status: 'error_parse', completionMessage: null })
    expect(output.cause).toEqual({ stage: 'parse', kind: 'renderer', message: 'no such id' })
    expect(world.heard).toEqual([])
  })

  it('ends with error_timeout when the environment misses its deadline, and tells it to stop', async () => {
    const clock = new ManualClock()
    let wasTold = false
    const world = scriptedEnv()
    world.step = (_, { signal }) => {
      signal.addEventListener('abort', () => {
        wasTold = true
      })
      return new Promise(() => undefined)
    }
    const env = new TokenEnv({ messageEnv: world, renderer: new ToyRenderer(), clock, stepTimeoutMs: 50 })
    await env.init()
    const stepping = env.step(stopped(20, 9))
    await Promise.resolve()
    clock.advance(50)
    const output = await stepping
    expect(output).toMatchObject({ status: 'error_timeout', cause: { stage: 'step', kind: 'deadline' } })
    expect(output.completionMessage?.content).toBe('20')
    expect(wasTold).toBe(true)
    expect(clock.numTimers).toBe(0)
  })

  it("does not take the environment's own TimeoutError for its deadline", async () => {
    const env = await opened(
      scriptedEnv(() => {
        throw new DOMException('the server was slow', 'TimeoutError')
      }),
    )
    const output = await env.step(stopped(20, 9))
    expect(output).toMatchObject({
      status: 'error',
      cause: { kind: 'user_code', message: 'the server was slow' },
    })
  })

  it('ends with error_abort without asking the environment', async () => {
    const world = scriptedEnv()
    const env = await opened(world)
    const output = await env.step({ ids: Uint32Array.of(20), finishReason: 'abort' })
    expect(output).toMatchObject({ status: 'error_abort', cause: { kind: 'abort' } })
    expect(output.completionMessage?.content).toBe('20')
    expect(world.heard).toEqual([])
  })

  it('renders the whole conversation anew when the bridge refuses, and says why', async () => {
    const env = await opened(scriptedEnv(), {}, { refusal: 'unknown_role', rewrite: [22] })
    const output = await env.step(stopped(20, 21, 9))
    expect(idsOf(output)).toEqual([...FIRST_PROMPT, 22, 9, 8, 3, 30, 9, 8, 2])
    expect(output).toMatchObject({ bridgeRefusal: 'unknown_role', nextPrompt: { messageOffset: 0 } })
  })

  it('continues a truncated completion where that is asked for, closing it in the prompt', async () => {
    const env = await opened(scriptedEnv(), { onTruncation: 'continue' })
    const output = await env.step(cut(20))
    expect(idsOf(output)).toEqual([...FIRST_PROMPT, 20, 9, 8, 3, 30, 9, 8, 2])
  })

  it('renders anew when the environment goes on without a word', async () => {
    const env = await opened(scriptedEnv(() => ({})))
    const output = await env.step(stopped(20, 9))
    expect(output).toMatchObject({ status: 'ongoing', bridgeRefusal: 'empty_extension' })
    expect(idsOf(output)).toEqual([...FIRST_PROMPT, 20, 9, 8, 2])
  })

  it('never changes the messages of an earlier prompt', async () => {
    const env = await opened(scriptedEnv())
    const first = await env.step(stopped(20, 9))
    const before: readonly Message[] = structuredClone(first.nextPrompt?.messages ?? [])
    await env.step(stopped(21, 9))
    expect(first.nextPrompt?.messages).toEqual(before)
    expect(before).toHaveLength(3)
  })

  it('makes an answer of the wrong form an error that says what is wrong', async () => {
    const env = await opened(scriptedEnv(() => ({ envMessages: [{ role: 'assistant', content: '30' }] })))
    const output = await env.step(stopped(20, 9))
    expect(output).toMatchObject({ status: 'error', cause: { stage: 'step', kind: 'invalid_output' } })
    expect(output.cause?.message).toMatch(/envMessages must not hold messages of the policy/)
  })

  it('makes a failing init an error of the rollout', async () => {
    const world = scriptedEnv()
    world.init = () => Promise.reject(new Error('no sandbox left'))
    const output = await tokenEnv(world).init()
    expect(output).toMatchObject({ status: 'error', cause: { stage: 'init', message: 'no sandbox left' } })
  })

  it('shows its tools to the policy, hands parsed calls to the environment, and bridges its answer', async () => {
    using tokenizer = new CharTokenizer({ specialTokens: QWEN_MARKERS })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const world = scriptedEnv(() => ({ envMessages: [{ role: 'tool', content: 'Oslo' }] }))
    world.init = () => ({
      initPromptMessages: [{ role: 'user', content: 'Capital of Norway?' }],
      tools: [SEARCH],
    })
    const env = new TokenEnv({ messageEnv: world, renderer })
    const first = await env.init()
    const prompt = first.nextPrompt?.ids ?? new Uint32Array(0)
    expect(tokenizer.decode(prompt)).toContain('"name": "search"')
    const call = '<tool_call>\n{"name": "search", "arguments": {"query": "Norway"}}\n</tool_call>'
    const sampled = [...tokenizer.encode(call, { addedTokens: true }).ids, renderer.stopIds[0] ?? 0]
    const output = await env.step(stopped(...sampled))
    expect(world.heard[0]).toMatchObject({
      role: 'assistant',
      tool_calls: [{ type: 'function', function: { name: 'search', arguments: '{"query": "Norway"}' } }],
    })
    expect(output.bridgeRefusal).toBeNull()
    const next = [...(output.nextPrompt?.ids ?? [])]
    expect(next.slice(0, prompt.length + sampled.length)).toEqual([...prompt, ...sampled])
    expect(tokenizer.decode(Uint32Array.from(next))).toContain('<tool_response>\nOslo\n</tool_response>')
  })

  it('leaves a call of a tool that is not on offer out of the message', async () => {
    using tokenizer = new CharTokenizer({ specialTokens: QWEN_MARKERS })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const world = scriptedEnv()
    world.init = () => ({ initPromptMessages: [{ role: 'user', content: 'Hi' }], tools: [SEARCH] })
    const env = new TokenEnv({ messageEnv: world, renderer })
    await env.init()
    const call = '<tool_call>\n{"name": "delete", "arguments": {}}\n</tool_call>'
    await env.step(stopped(...tokenizer.encode(call, { addedTokens: true }).ids, renderer.stopIds[0] ?? 0))
    expect(world.heard[0]?.tool_calls).toBeUndefined()
  })

  it('makes tools that cannot be rendered an error of the rollout', async () => {
    const world = scriptedEnv()
    const renderer = new ToyRenderer()
    renderer.render = () => {
      throw new Error('tools must be objects')
    }
    world.init = () => ({ initPromptMessages: [{ role: 'user', content: '10' }], tools: [7] })
    const env = new TokenEnv({ messageEnv: world, renderer })
    expect(await env.init()).toMatchObject({
      status: 'error',
      cause: { stage: 'render', message: 'tools must be objects' },
    })
  })

  it('ends with a prompt that leaves less room than a completion is to have', async () => {
    const fits = { maxRolloutTokens: 10, minCompletionTokens: 4 }
    expect(await tokenEnv(scriptedEnv(), fits).init()).toMatchObject({ status: 'ongoing' })
    const tight = { maxRolloutTokens: 10, minCompletionTokens: 5 }
    expect(await tokenEnv(scriptedEnv(), tight).init()).toMatchObject({ status: 'truncated_prompt_too_long' })
  })

  it('rejects with ABORTED when its signal fires, also while the environment thinks', async () => {
    const controller = new AbortController()
    const world = scriptedEnv(() => new Promise(() => undefined))
    const env = new TokenEnv({ messageEnv: world, renderer: new ToyRenderer(), signal: controller.signal })
    await env.init()
    const stepping = env.step(stopped(20, 9))
    controller.abort()
    await expect(stepping).rejects.toMatchObject({ code: 'ABORTED' })
    await expect(env.step(stopped(20, 9))).rejects.toMatchObject({ code: 'ABORTED' })
  })

  it('refuses a step before init and a limit below 1', async () => {
    await expect(tokenEnv(scriptedEnv()).step(stopped(20))).rejects.toMatchObject({ code: 'CLOSED' })
    expect(() => tokenEnv(scriptedEnv(), { maxTurns: 0 })).toThrow('maxTurns must be >= 1: got 0')
  })
})
