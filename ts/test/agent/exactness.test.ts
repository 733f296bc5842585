/**
 * The tokens of a conversation through the endpoint are those of a `TokenEnv`: to the byte of the ledger, in every
 * family, with clients that drop reasoning, reorder keys and write JSON anew.
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { InterceptionServer } from '../../src/agent/index.js'
import {
  createRenderer,
  type DisposableRenderer,
  type Message,
  type RendererConfig,
} from '../../src/chat/index.js'
import { listDataset } from '../../src/data/index.js'
import type { MessageEnv, Task } from '../../src/env/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { alphabet, configs, specialTokens } from '../chat/families.js'
import { chat } from './client.js'

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'add',
      description: 'Adds.',
      parameters: { type: 'object', properties: { a: { type: 'integer' }, s: { type: 'string' } } },
    },
  },
]

/** One turn of the script: what is sampled, and what is answered to a message without calls. */
interface ScriptedTurn {
  readonly kind: 'plain' | 'thinks' | 'calls' | 'noise' | 'cut'
  readonly text: string
  readonly next: string
}

const scripts: fc.Arbitrary<Script> = fc.record({
  system: fc.boolean(),
  turns: fc.array(
    fc.record({
      kind: fc.constantFrom<ScriptedTurn['kind'][]>('plain', 'thinks', 'calls', 'calls', 'noise', 'cut'),
      text: fc.string({ unit: fc.constantFrom(...'ab <{"'), minLength: 1, maxLength: 12 }),
      next: fc.string({ unit: fc.constantFrom(...'xyz ?'), minLength: 1, maxLength: 8 }),
    }),
    { minLength: 1, maxLength: 5 },
  ),
  mangle: fc.nat(7),
})

interface Script {
  readonly system: boolean
  readonly turns: readonly ScriptedTurn[]
  /** Bits of {@link mangled}. */
  readonly mangle: number
}

/** Returns the tokens that a policy would sample for a turn. */
function sampledIds(
  renderer: DisposableRenderer,
  tokenizer: CharTokenizer,
  { kind, text }: ScriptedTurn,
  index: number,
  hasTools: boolean,
): number[] {
  const stop = renderer.stopIds[0] ?? 0
  if (kind === 'noise') return [...tokenizer.encode(text).ids, stop]
  if (kind === 'cut') return [...tokenizer.encode(text).ids]
  const call = {
    id: `functions.add:${index}`,
    type: 'function',
    function: { name: 'add', arguments: { s: text, a: index } },
  }
  const calls = kind === 'calls' && hasTools
  const said: Message = {
    role: 'assistant',
    content: calls ? null : text.trim() || 'a',
    ...(kind === 'thinks' && { reasoning_content: 'hm' }),
    ...(calls && { tool_calls: [call] }),
  }
  try {
    const { ids, sampledMask } = renderer.render(
      [{ role: 'user', content: '?' }, said],
      hasTools ? { tools: TOOLS } : {},
    )
    return [...ids.slice(sampledMask.indexOf(1), sampledMask.lastIndexOf(1) + 1)]
  } catch {
    return [...tokenizer.encode(text).ids, stop]
  }
}

/** Answers calls by their number, and other messages with the script's next words. */
function answerTo(message: Message, next: string): Message[] {
  const calls =
    (message as { readonly tool_calls?: { id?: string; function: { name: string } }[] }).tool_calls ?? []
  if (calls.length === 0) return [{ role: 'user', content: next }]
  return calls.map(({ id, function: { name } }, index) => ({
    role: 'tool',
    content: `${index} ${next}`,
    name,
    ...(id !== undefined && { tool_call_id: id }),
  }))
}

function taskOf({ system, turns }: Script, hasTools: boolean): Task<string> {
  const makeEnv = (): MessageEnv => {
    let turn = 0
    return {
      init: () => ({
        initPromptMessages: [
          ...(system ? [{ role: 'system', content: 'Be brief.' }] : []),
          { role: 'user', content: 'Go on.' },
        ],
        ...(hasTools && { tools: TOOLS }),
      }),
      step: (message) => {
        const { next } = turns[turn] ?? { next: '' }
        turn += 1
        return { envMessages: answerTo(message, next), done: turn === turns.length }
      },
      close: () => {},
    }
  }
  const makeDataset = () => listDataset({ items: ['only'] })
  return {
    name: 'script',
    makeDataset,
    makeEnv,
    rewardFns: [{ name: 'one', score: () => 1 }],
    isSolved: () => true,
  }
}

/** Writes a message of the endpoint as another client would send it back. */
// biome-ignore lint/suspicious/noExplicitAny: a body as it came
function mangled(message: any, mangle: number): object {
  const { reasoning_content: reasoning, content, tool_calls: calls, ...rest } = message
  const again = (text: string) =>
    JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(text)).reverse()), null, 1)
  return {
    content: mangle & 1 && typeof content === 'string' ? [{ text: content, type: 'text' }] : content,
    ...(calls && {
      tool_calls: mangle & 2 ? calls.map((call: never) => remade(call, again)) : calls,
    }),
    ...(reasoning !== undefined && (mangle & 4) === 0 && { reasoning_content: reasoning }),
    ...rest,
  }
}

function remade(
  { function: called, ...call }: { function: { name: string; arguments: string } },
  again: (text: string) => string,
): object {
  return { function: { arguments: again(called.arguments), name: called.name }, ...call }
}

async function byTokenEnv(
  script: Script,
  renderer: DisposableRenderer,
  sampled: readonly (readonly number[])[],
  hasTools: boolean,
): Promise<Uint8Array> {
  const policy = new ScriptedPolicy({ reply: (_, call) => sampled[call] ?? [] })
  const task = taskOf(script, hasTools)
  const rollouter = new Rollouter({
    policy,
    task,
    renderer,
    groupSize: 1,
    maxTokens: 1_000,
    onTruncation: 'continue',
  })
  using group = await rollouter.runGroup({ sample: 'only', groupId: 0 })
  const [rollout] = group.rollouts
  expect(rollout?.cause).toBeNull()
  return rollout?.ledger.toBytes() ?? new Uint8Array()
}

async function byEndpoint(
  server: InterceptionServer,
  { system, turns, mangle }: Script,
  renderer: DisposableRenderer,
  sampled: readonly (readonly number[])[],
  hasTools: boolean,
): Promise<Uint8Array> {
  const policy = new ScriptedPolicy({ reply: (_, call) => sampled[call] ?? [] })
  const rollout = server.open({ policy, renderer, maxTokens: 1_000 })
  const messages: object[] = [
    ...(system ? [{ role: 'system', content: 'Be brief.' }] : []),
    { role: 'user', content: 'Go on.' },
  ]
  for (const { next } of turns) {
    const { status, body } = await chat(rollout, { messages, ...(hasTools && { tools: TOOLS }) })
    expect(body, JSON.stringify(body)).toMatchObject({ object: 'chat.completion' })
    expect(status).toBe(200)
    const { message } = body.choices[0]
    const answers = answerTo(message, next).map(({ name: _, ...answer }) => answer)
    messages.push(mangled(message, mangle), ...answers)
  }
  const { ledger, status, turns: recorded } = await rollout.end()
  expect([status, recorded.length]).toEqual(['completed', turns.length])
  using _ = ledger
  return ledger.toBytes()
}

async function check(config: RendererConfig, script: Script, server: InterceptionServer): Promise<void> {
  using tokenizer = new CharTokenizer({ alphabet, specialTokens })
  using renderer = createRenderer(tokenizer, config)
  const hasTools = config.name !== 'chatml'
  const sampled = script.turns.map((turn, index) => sampledIds(renderer, tokenizer, turn, index, hasTools))
  const expected = await byTokenEnv(script, renderer, sampled, hasTools)
  const got = await byEndpoint(server, script, renderer, sampled, hasTools)
  expect(Buffer.from(got).equals(Buffer.from(expected))).toBe(true)
}

describe('a conversation through the endpoint', () => {
  for (const [index, config] of configs.entries()) {
    it(`has the ledger of a TokenEnv: ${config.name} (${index})`, async () => {
      const server = await InterceptionServer.listen()
      const run = fc.asyncProperty(scripts, (script) => check(config, script, server))
      await fc.assert(run, { numRuns: 25, seed: 7 })
      await server.close()
    })
  }
})
