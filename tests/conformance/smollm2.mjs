/**
 * Compares the engine with what transformers gave for SmolLM2-135M-Instruct: ids of chats, log-probs of given tokens to 2e-4 nats, and
 * greedy answers. Needs the model, which `node scripts/smollm2.mjs` gets; WebAssembly has too little memory for it.
 */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { createRenderer, Decoder, Engine, HfTokenizer } from 'fulmar'
import { MODEL } from '../../scripts/smollm2.mjs'
import { far, skipped } from './replay-rows.mjs'

const SYSTEM = {
  role: 'system',
  content: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
}
const TOLERANCE = 2e-4
const END = 2
/** Likeliest ids of a position in a row, and those of ours among which they are looked for. */
const TOP_KNOWN = 20
const TOP_SCORED = 24

export const smollm2 = {
  topic: 'SmolLM2',
  members: {
    input: 'id messages prompt_text continuation_text',
    expected: `prompt_ids continuation_ids positions token_logprobs continuation_logprob_sum greedy_ids greedy_text greedy_logprobs
      greedy_smallest_margin greedy_margins`,
    aside: {
      observed_f32: 'other runs of the same weights are evidence for the tolerances',
      observed_bf16: 'other runs of the same weights are evidence for the tolerances',
    },
  },
  tolerance: () => ({ relative: 0, absolute: 2e-4 }),
  matches: ({ prompt_ids, greedy_ids, token_logprobs }) =>
    prompt_ids !== undefined && greedy_ids !== undefined && token_logprobs !== undefined,
  async prepare() {
    if (!existsSync(MODEL) || process.execArgv.includes('--conditions=fulmar-wasm')) return undefined
    const bytes = await readFile(MODEL)
    const tokenizer = HfTokenizer.fromGguf(bytes)
    const decoder = await Decoder.fromGguf(bytes)
    return { tokenizer, decoder, renderer: createRenderer(tokenizer, { name: 'chatml' }) }
  },
  check: ({ value: row }, model) => (model ? ofRow(row, model) : skipped('the model')),
}

async function ofRow(row, { tokenizer, decoder, renderer }) {
  const { messages, prompt_text, prompt_ids, continuation_text, continuation_ids } = row
  const encoded = [prompt_text, continuation_text].map((text) => [
    ...tokenizer.encode(text, { addedTokens: true }).ids,
  ])
  if (!isDeepStrictEqual(encoded, [prompt_ids, continuation_ids])) return `the text has the ids ${encoded}`
  if (messages) {
    const chat = messages[0].role === 'system' ? messages : [SYSTEM, ...messages]
    const { ids } = renderer.render(chat, { addGenerationPrompt: true })
    if (!isDeepStrictEqual([...ids], prompt_ids)) return `the chat has the ids ${ids}`
  }
  return (await scoredApart(row, decoder)) ?? (await greedyApart(row, decoder, tokenizer))
}

/** Nothing if the log-probs of the given tokens, and the likeliest ids at some positions, are those of the row. */
async function scoredApart(row, decoder) {
  const { prompt_ids, continuation_ids, positions, token_logprobs } = row
  // One more token, whose log-probs are those behind the last of the row.
  const ids = Uint32Array.of(...prompt_ids, ...continuation_ids, 0)
  const mask = Uint8Array.from(ids, (_, at) => Number(at > 0))
  const batch = { ids, offsets: Uint32Array.of(0, ids.length), mask }
  const { logProb, topIds, topLogProb } = await decoder.score(batch, { topK: TOP_SCORED })
  const found = [...logProb.subarray(1, -1)]
  // Ours are those of the tokens, so the sum is theirs too, to its six digits.
  const ofContinuation = token_logprobs.slice(prompt_ids.length - 1).reduce((total, one) => total + one, 0)
  const number = prompt_ids.length
  const places = [1, 2, 3].map((quarter) => Math.floor((quarter * number) / 4))
  const expected = [...places, number - 1, ids.length - 2]
  const given = positions.map(({ pos }) => pos)
  if (!isDeepStrictEqual(given, expected)) return `positions ${expected}`
  return (
    far('log-prob', found, token_logprobs, 0, TOLERANCE) ??
    far('sum', [ofContinuation], [row.continuation_logprob_sum], 2e-6, 0) ??
    positions.map((one) => likeliestApart(one, topIds, topLogProb)).find((differs) => differs !== undefined)
  )
}

/** Logits are known up to a number: with their `logsumexp` they are log-probs. */
function likeliestApart({ pos, top_ids, top_logprobs, top_logits, logsumexp }, topIds, topLogProb) {
  const start = (pos + 1) * TOP_SCORED
  const ours = new Map()
  for (let at = start; at < start + TOP_SCORED; at++) ours.set(topIds[at], topLogProb[at])
  if (new Set(top_ids).size !== TOP_KNOWN) return `position ${pos}: ${TOP_KNOWN} ids`
  const found = top_ids.map((id) => ours.get(id) ?? Number.NaN)
  const logits = top_logits.map((logit) => logit - logsumexp)
  return (
    far(`position ${pos}`, found, top_logprobs, 0, TOLERANCE) ??
    far(`position ${pos}, logits`, found, logits, 0, 2 * TOLERANCE)
  )
}

/** Nothing if the greedy answer is that of the row. */
async function greedyApart(row, decoder, tokenizer) {
  const engine = new Engine(decoder)
  const options = { maxTokens: 64, stopIds: [END], temperature: 0, topLogProbs: 2 }
  const greedy = await engine.generate({ ids: Uint32Array.from(row.prompt_ids), seed: 0 }, options)
  engine[Symbol.dispose]()
  if (!isDeepStrictEqual([...greedy.ids], row.greedy_ids)) return `greedy ids ${greedy.ids}`
  const text = tokenizer.decode(greedy.ids)
  if (text !== row.greedy_text) return `greedy text ${JSON.stringify(text)}`
  const margins = greedy.topLogProbs.map(([first, second]) => first.logProb - second.logProb)
  return (
    far('greedy log-prob', [...greedy.logProbs], row.greedy_logprobs, 0, TOLERANCE) ??
    far('margin', margins, row.greedy_margins, 0, 2 * TOLERANCE) ??
    far('smallest margin', [Math.min(...margins)], [row.greedy_smallest_margin], 0, 2 * TOLERANCE)
  )
}
