/**
 * A ledger of one conversation of several turns: which tokens the policy sampled, which it was given, where
 * the conversation forks, and what of it is trained. No token is ever encoded again.
 *
 * Run it with `npm run build && node scripts/examples.mjs native`.
 */

import assert from 'node:assert/strict'
import { CharTokenizer } from 'fulmar'
import {
  createRenderer,
  extendPrompt,
  Ledger,
  type LedgerSample,
  type Message,
  type RecordedTurn,
  type Rendered,
} from 'fulmar/chat'
import { ScriptedPolicy } from 'fulmar/testing'

using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
using ledger = new Ledger()

/** A scripted language model: its completions, in order. */
const LINES = ['add(17, 25)', 'It is 41.', 'It is 42.', '42.']
const policy = new ScriptedPolicy({
  reply: (_, call) => [...tokenizer.encode(LINES[call] ?? '').ids, ...renderer.stopIds.slice(0, 1)],
})

// Turn 0: the question. The policy asks for a tool.
const question: Message[] = [
  { role: 'system', content: 'Use add(a, b).' },
  { role: 'user', content: '17 + 25?' },
]
const first = renderer.render(question, { addGenerationPrompt: true })
const call = await takeTurn(first.ids, first, 0)
assert.equal(call.recorded.fork, null)

// Turn 1: the tool answers. The bridge extends what was sampled; it does not render it again.
const toolAnswer: Message = { role: 'tool', content: '42' }
const bridge = renderer.bridge(first.ids, call.ids, [toolAnswer])
if (!bridge.ok) throw new Error(`the renderer cannot extend the conversation: ${bridge.reason}`)
const second = extendPrompt(first.ids, call.ids, bridge)
const wrong = await takeTurn(second, bridge.rendered, 3)
assert.equal(wrong.recorded.fork, null)

// Turn 2: the same prompt again, for a second opinion. The ledger forks where the first answer began.
const right = await takeTurn(second, bridge.rendered, 3)
assert.equal(right.recorded.fork?.reason, 'resample')
assert.equal(right.recorded.fork?.position, second.length)

// Turn 3: the conversation was shortened. What it shares with the first one is stored once.
const edited = renderer.render(
  [...question.slice(0, 1), { role: 'user', content: '17 + 25? Only the number.' }],
  {
    addGenerationPrompt: true,
  },
)
const short = await takeTurn(edited.ids, edited, 0)
assert.equal(short.recorded.fork?.reason, 'history_edit')

console.log('segments, in the order in which they came:')
for (const { branch, turn, origin, messageIndex, length } of ledger.segments()) {
  console.log(`  branch ${branch}, turn ${turn}, message ${messageIndex}: ${length} tokens of ${origin}`)
}
console.log('forks:')
ledger.forks().forEach(({ branch, position, reason }, index) => {
  console.log(`  branch ${index + 1} leaves branch ${branch} after ${position} tokens: ${reason}`)
})
const samples = ledger.samples()
console.log('samples: every root-to-leaf path, with ^ under what is trained there')
for (const sample of samples) {
  console.log(`  ${inColumns(sample)}\n  ${Array.from(sample.mask, (bit) => (bit ? '^' : ' ')).join('')}`)
}

const numSampled = [call, wrong, right, short].reduce((sum, { ids }) => sum + ids.length, 0)
const numTrained = samples.reduce((sum, { mask }) => sum + mask.reduce((count, bit) => count + bit, 0), 0)
assert.equal(numTrained, numSampled)
console.log(`${numSampled} tokens were sampled, and ${numTrained} are trained: each in one sample`)

/** Lets the policy answer `promptIds` and records both. `rendered` is the prompt's end, `messageOffset` messages came before its own. */
async function takeTurn(
  promptIds: Uint32Array,
  rendered: Rendered,
  messageOffset: number,
): Promise<{ ids: Uint32Array; recorded: RecordedTurn }> {
  const { ids, logProbs, sampledLogProbs, minPolicyVersion } = await policy.generate({
    requestId: `turn-${ledger.numTurns}`,
    promptIds,
    seed: ledger.numTurns,
    maxTokens: 32,
    stopIds: renderer.stopIds,
  })
  const recorded = ledger.recordTurn({
    promptIds,
    completionIds: ids,
    logProbs,
    sampledLogProbs,
    policyVersion: minPolicyVersion,
    origins: rendered.origins,
    messageIndices: rendered.messageIndices,
    messageOffset,
  })
  return { ids, recorded }
}

/** One column a token: `[` and `]` for the tokens that open and close a message, `/` for a new line. */
function inColumns({ ids }: LedgerSample): string {
  const column = (text: string) => ({ '\n': '/', '<|im_start|>': '[', '<|im_end|>': ']' })[text] ?? text
  return Array.from(ids, (id) => column(tokenizer.decode(Uint32Array.of(id)))).join('')
}
