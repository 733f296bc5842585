/** A seeded corpus of conversations: what chat benches render, tokenise and mask. */

import { Rng } from 'fulmar'
import type { Message, ToolSpec } from 'fulmar/chat'

/** One conversation with the tools on offer. */
export interface Conversation {
  readonly messages: readonly Message[]
  readonly tools?: readonly ToolSpec[]
}

const NUM_CONVERSATIONS = 1000
const MESSAGES_MIN = 4
const MESSAGES_MAX = 40
const WORDS = (
  'the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which ' +
  'one you were all her she there would their we him been has when who will no more if out so up said what its about ' +
  'into than them can only other time new some could these two may first then do any like my now over such our man ' +
  'reward policy gradient tokens model training batch sample rollout tensor buffer kernel attention optimiser schedule ' +
  'function return const await import value index length number string object promise iterator généralement naïve ' +
  "Übung smörgåsbord 日本語 テスト 模型 训练 привет мир данные 🙂 ✅ don’t it's we're I'll 3.14 2026 1,024 0x1F"
).split(' ')
const TOOL_NAMES = ['search', 'calculator', 'read_file', 'run_tests', 'weather', 'translate', 'fetch_page']

/** The same conversations for the same seed: 1,000 of 4 to 40 messages, about 7 MB as JSON; a third offers tools. */
export function chatCorpus(seed: number): readonly Conversation[] {
  using rng = Rng.fromSeed(seed)
  return Array.from({ length: NUM_CONVERSATIONS }, () => conversation(rng))
}

function conversation(rng: Rng): Conversation {
  const count = MESSAGES_MIN + rng.below(MESSAGES_MAX - MESSAGES_MIN + 1)
  const names = rng.below(3) === 0 ? TOOL_NAMES.slice(0, 1 + rng.below(TOOL_NAMES.length)) : []
  const messages: Message[] = []
  if (rng.below(2) === 0) messages.push({ role: 'system', content: prose(rng, 20) })
  while (messages.length < count) {
    messages.push({ role: 'user', content: prose(rng, 30) })
    const name = names[rng.below(Math.max(1, names.length) * 2)]
    if (name) messages.push(...toolTurn(rng, name))
    messages.push({ role: 'assistant', content: prose(rng, 55) })
  }
  return names.length > 0 ? { messages, tools: names.map((name) => tool(rng, name)) } : { messages }
}

function toolTurn(rng: Rng, name: string): Message[] {
  const call = { name, arguments: { query: prose(rng, 8), limit: rng.below(100), exact: rng.below(2) === 0 } }
  return [
    { role: 'assistant', content: prose(rng, 12), tool_calls: [{ type: 'function', function: call }] },
    { role: 'tool', content: JSON.stringify({ ok: true, rows: [prose(rng, 20), rng.below(1000)] }) },
  ]
}

function tool(rng: Rng, name: string): ToolSpec {
  const properties = {
    query: { type: 'string', description: prose(rng, 10) },
    limit: { type: 'integer', minimum: 1 },
    exact: { type: 'boolean', default: false },
  }
  const parameters = { type: 'object', properties, required: ['query'] }
  return { type: 'function', function: { name, description: prose(rng, 14), parameters } }
}

/** About `numWords` words in sentences and paragraphs, now and then a line of code. */
function prose(rng: Rng, numWords: number): string {
  const count = 1 + rng.below(2 * numWords)
  const parts: string[] = []
  for (let word = 0; word < count; word++) {
    parts.push(WORDS[rng.below(WORDS.length)] ?? '')
    const stop = rng.below(14)
    parts.push(stop === 0 ? '. ' : stop === 1 ? ', ' : stop === 2 && rng.below(3) === 0 ? '.\n\n' : ' ')
    if (rng.below(60) === 0) parts.push('\n```ts\nconst x = items[i] ?? { key: "value" }\n```\n')
  }
  return parts.join('').trim()
}
