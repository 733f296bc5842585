/**
 * Compares the engine with what transformers gave for SmolLM2-135M-Instruct: ids of chats, log-probs of given tokens to 2e-4 nats, and
 * greedy answers. Needs the model, which `node scripts/smollm2.mjs` gets; WebAssembly has too little memory for it.
 */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { createRenderer, Decoder, DecoderPolicy, HfTokenizer } from 'fulmar'
import { MODEL } from '../../scripts/smollm2.mjs'
import { far, skipped } from './replay-rows.mjs'

const SYSTEM = {
  role: 'system',
  content: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
}
const TOLERANCE = 2e-4
const END = 2

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
  const ids = Uint32Array.of(...prompt_ids, ...continuation_ids)
  const mask = Uint8Array.from(ids, (_, at) => Number(at > 0))
  const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
  const differs = far('log-prob', [...logProb.subarray(1)], row.token_logprobs, 0, TOLERANCE)
  if (differs) return differs
  const request = { requestId: row.id, promptIds: Uint32Array.from(prompt_ids), seed: 0, temperature: 0 }
  const greedy = await new DecoderPolicy(decoder).generate({ ...request, maxTokens: 64, stopIds: [END] })
  if (!isDeepStrictEqual([...greedy.ids], row.greedy_ids)) return `greedy ids ${greedy.ids}`
  return far('greedy log-prob', [...greedy.logProbs], row.greedy_logprobs, 0, TOLERANCE)
}
