/** The crowds of benches/ts/collector.ts: many rollouts side by side, ours and the same asked of a rival. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CharTokenizer, HfTokenizer, listDataset, type MessageEnv, Rollouter, type Task } from 'fulmar'
import { createRenderer, type DisposableRenderer, type ToolSpec } from 'fulmar/chat'
import type { GenerateRequest } from 'fulmar/policy'
import { ScriptedPolicy } from 'fulmar/testing'
import { ROOT, type Sample } from './measure.js'
import type { Peer } from './peer.js'

/** In all crowds, in groups of {@link GROUP_SIZE}. */
export const IN_FLIGHT = 4096
export const GROUP_SIZE = 8
/** More than any answer has. */
const MAX_TOKENS = 64

const QUESTION = 'Read the report page by page.'
const ANSWER = 'I look at the next page of the report.'
const PAGE = 'This page says nothing of the harbour.'
const TOOL: ToolSpec = {
  type: 'function',
  function: {
    name: 'read_page',
    description: 'Reads a page of the report.',
    parameters: { type: 'object', properties: { page: { type: 'integer' } }, required: ['page'] },
  },
}
const TOOL_CALL = '<tool_call>\n{"name": "read_page", "arguments": {"page": 2}}\n</tool_call>'
/** Tokens of Qwen3 that the tokenizer of the tests, which is of Qwen2, lacks. */
const QWEN3_TOKENS = ['<tool_response>', '</tool_response>']

/** The task and the policy's answers of every rollout. */
export interface Crowd {
  readonly renderer: DisposableRenderer
  /** The policy's answer in every turn. */
  readonly answer: readonly number[]
  readonly turns: number
  readonly task: Task<number>
  /** The request to a rival. */
  readonly request: Readonly<Record<string, unknown>>
}

/** Characters are tokens, in ChatML; a user answers. */
export function talkingCrowd(turns: number): Crowd {
  const tokenizer = new CharTokenizer()
  const renderer = createRenderer(tokenizer, { name: 'chatml' })
  const answer = [...tokenizer.encode(ANSWER).ids, renderer.stopIds[0] ?? 0]
  const { alphabet, specialTokens } = tokenizer.toJSON()
  const special = Object.fromEntries(specialTokens.map((name) => [name, tokenizer.idOf(name)]))
  const request = { alphabet, special, question: QUESTION, answer, page: PAGE, turns }
  return { renderer, answer, turns, task: taskOf('user', []), request }
}

/** Byte-level BPE and Qwen3's format; every answer calls a tool, and the tool answers. `tokenizer.json` is left in `folder`. */
export function toolCrowd(turns: number, folder: string): Crowd {
  const json = qwen3TokenizerJson()
  writeFileSync(join(folder, 'tokenizer.json'), json)
  const tokenizer = HfTokenizer.fromJson(json)
  const renderer = createRenderer(tokenizer, { name: 'qwen3' })
  const text = `${ANSWER}\n${TOOL_CALL}`
  const answer = [...tokenizer.encode(text, { addedTokens: true }).ids, renderer.stopIds[0] ?? 0]
  const request = { question: QUESTION, tool: TOOL, answer, page: PAGE, turns }
  return { renderer, answer, turns, task: taskOf('tool', [TOOL]), request }
}

/** Its rollouts; `reply` gives the answer, in a later turn of the event loop where nothing else is said, as an engine does. */
export function rollouterOf(
  crowd: Crowd,
  {
    groupSize = GROUP_SIZE,
    reply = answerSoon(crowd.answer),
  }: {
    readonly groupSize?: number
    readonly reply?: (request: GenerateRequest) => Promise<readonly number[]> | readonly number[]
  } = {},
): Rollouter<number> {
  const { task, renderer, turns } = crowd
  const policy = new ScriptedPolicy({ reply })
  return new Rollouter({
    ...{ policy, task, renderer, groupSize },
    ...{ maxTurns: turns, maxTokens: MAX_TOKENS, concurrency: IN_FLIGHT },
  })
}

/** All rollouts side by side, through all their turns; `value` is microseconds a turn. */
export async function runCrowd(crowd: Crowd): Promise<Sample> {
  const rollouter = rollouterOf(crowd)
  const startMs = performance.now()
  const groups = await Promise.all(
    Array.from({ length: IN_FLIGHT / GROUP_SIZE }, (_, groupId) =>
      rollouter.runGroup({ sample: 0, groupId }),
    ),
  )
  const value = usPerTurn(performance.now() - startMs, crowd)
  for (const group of groups) {
    if (group.rollouts.some(({ turns }) => turns.length !== crowd.turns))
      throw new Error('a rollout lacks turns')
    group[Symbol.dispose]()
  }
  return { value }
}

/** The same of a rival. */
export async function askCrowd(peer: Peer, crowd: Crowd): Promise<Sample> {
  const { ms, cpuMs } = await ask(peer, crowd, IN_FLIGHT / GROUP_SIZE)
  return { value: usPerTurn(ms, crowd), rivalCpuMs: cpuMs }
}

/** Returns the number of tokens of both sides' rollouts. Throws if they differ. */
export async function compareIds(name: string, peer: Peer, crowd: Crowd): Promise<string> {
  using group = await rollouterOf(crowd).runGroup({ sample: 0, groupId: 0 })
  const last = group.rollouts.at(-1)?.turns.at(-1)
  const ours = [...(last?.promptIds ?? []), ...(last?.completionIds ?? [])]
  const { ids } = await ask(peer, crowd, 1)
  if (ids.join() !== ours.join()) throw new Error(`ids must be equal: got ${ids} of ${name} for ${ours}`)
  return `the ${ids.length} tokens of a rollout, ours and of ${name}: equal`
}

async function ask(peer: Peer, { request }: Crowd, groups: number) {
  const whole = { kind: 'crowd', ...request, groups, group_size: GROUP_SIZE }
  return (await peer.ask(JSON.stringify(whole))) as {
    readonly ms: number
    readonly cpuMs: number
    readonly ids: readonly number[]
  }
}

function usPerTurn(ms: number, { turns }: Crowd): number {
  return (ms * 1000) / (IN_FLIGHT * turns)
}

function answerSoon(answer: readonly number[]) {
  return async () => {
    await new Promise((resolve) => setImmediate(resolve))
    return answer
  }
}

function taskOf(role: 'user' | 'tool', tools: readonly ToolSpec[]): Task<number> {
  return {
    name: 'pages',
    makeDataset: () => listDataset({ items: [0] }),
    makeEnv: (): MessageEnv => ({
      init: () => ({ initPromptMessages: [{ role: 'user', content: QUESTION }], tools }),
      step: () => ({ envMessages: [{ role, content: PAGE }] }),
      close: () => undefined,
    }),
    rewardFns: [{ name: 'turns', score: ({ turns }) => turns.length }],
    isSolved: () => true,
  }
}

/** The tokenizer of the tests with the tokens that it lacks. */
function qwen3TokenizerJson(): string {
  const path = fileURLToPath(new URL('tests/golden/tokenizer/qwen2/tokenizer.json', ROOT))
  const tokenizer = JSON.parse(readFileSync(path, 'utf8')) as { added_tokens: { id: number }[] }
  const first = Math.max(...tokenizer.added_tokens.map(({ id }) => id)) + 1
  const plain = { special: false, single_word: false, lstrip: false, rstrip: false, normalized: false }
  tokenizer.added_tokens.push(
    ...QWEN3_TOKENS.map((content, index) => ({ id: first + index, content, ...plain })),
  )
  return JSON.stringify(tokenizer)
}
