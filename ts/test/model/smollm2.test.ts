/** The sampler against the trainer on a pretrained model, where its file is: `node scripts/smollm2.mjs` gets it. */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { afterAll, describe, expect, it } from 'vitest'
import { Decoder, Engine, type Generated, type Prompt, type TokenBatch } from '../../src/model/index.js'
import { HfTokenizer } from '../../src/tokenizer/index.js'
import { has } from '../needs.js'

const FILE = new URL('../../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url)
/** WebAssembly takes the same path through the tiny models; a pretrained one would take it minutes. */
const canRun =
  process.env.FULMAR_TEST_BACKEND !== 'wasm' &&
  has('the model that `node scripts/smollm2.mjs` gets', existsSync(FILE))

const opened = canRun ? await open() : undefined
afterAll(() => opened?.decoder[Symbol.dispose]())

async function open() {
  const bytes = await readFile(FILE)
  using tokenizer = HfTokenizer.fromGguf(bytes)
  const chat = (text: string) => `<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`
  const encode = (text: string) => tokenizer.encode(chat(text), { addedTokens: true }).ids
  const asked = ['What is the capital of France?', 'What is the capital of Peru?', 'Count.'].map(encode)
  return { decoder: await Decoder.fromGguf(bytes), asked }
}

/** Three prompts, the first of which twice: siblings share its pages, the second shares its beginning. */
function prompts(): Prompt[] {
  const [france = new Uint32Array(0), peru = france, count = france] = opened?.asked ?? []
  return [
    { ids: france, seed: 1 },
    { ids: france, seed: 2 },
    { ids: peru, seed: 3 },
    { ids: count, seed: 4 },
  ]
}

async function draw(some: readonly Prompt[], sizes = {}): Promise<Generated[]> {
  using engine = new Engine(decoderOf(), sizes)
  return await Promise.all(some.map((prompt) => engine.generate(prompt, { maxTokens: 3, topLogProbs: 1 })))
}

function decoderOf(): Decoder {
  if (opened === undefined) throw new Error('no model')
  return opened.decoder
}

/** One batch of prompts with what was drawn after them, which alone is scored. */
function batchOf(rows: readonly { readonly prompt: Prompt; readonly drawn: Generated }[]): TokenBatch {
  const offsets = Uint32Array.from([0, ...rows.keys()], (_, row) =>
    rows.slice(0, row).reduce((sum, { prompt, drawn }) => sum + prompt.ids.length + drawn.ids.length, 0),
  )
  return {
    ids: Uint32Array.from(rows.flatMap(({ prompt, drawn }) => [...prompt.ids, ...drawn.ids])),
    offsets,
    mask: Uint8Array.from(
      rows.flatMap(({ prompt, drawn }) => [...prompt.ids.map(() => 0), ...drawn.ids.map(() => 1)]),
    ),
  }
}

/** The bits of the scored tokens, row after row. */
function bitsOf(logProb: Float32Array, { mask }: TokenBatch): number[] {
  const scored = logProb.filter((_, at) => mask[at] === 1)
  return [...new Uint32Array(scored.buffer, 0, scored.length)]
}

const bits = (drawn: readonly Generated[]) =>
  drawn.flatMap(({ logProbs }) => [...new Uint32Array(logProbs.slice().buffer)])

describe.runIf(canRun)('SmolLM2', { timeout: 180_000 }, () => {
  it('draws the same tokens with the same bits alone, beside others, with shared pages and in pieces', async () => {
    const all = prompts()
    const alone = (await Promise.all(all.map((prompt) => draw([prompt])))).flat()
    expect(alone.map(({ ids }) => ids.length)).toEqual([3, 3, 3, 3])
    expect(new Set(alone.map(({ ids }) => ids.join())).size).toBeGreaterThan(1)
    expect(await draw(all)).toEqual(alone)
    expect((await draw([...all].reverse())).reverse()).toEqual(alone)
    const small = { pageSize: 3, maxNumSeqs: 2, maxNumBatchedTokens: 7 }
    expect(await draw(all, small)).toEqual(alone)
  })

  it("gives the trainer's log-probs to the bit, whatever the batch of either", async () => {
    const all = prompts()
    const rows = (await draw(all)).map((drawn, at) => ({
      prompt: all[at] ?? { ids: drawn.ids, seed: 0 },
      drawn,
    }))
    const wanted = bits(rows.map(({ drawn }) => drawn))
    const decoder = decoderOf()
    const together = batchOf(rows)
    expect(bitsOf((await decoder.forward(together)).logProb, together)).toEqual(wanted)
    expect(bitsOf((await decoder.score(together)).logProb, together)).toEqual(wanted)
    const turned = batchOf([...rows].reverse())
    const reversed = bits([...rows].reverse().map(({ drawn }) => drawn))
    expect(bitsOf((await decoder.score(turned)).logProb, turned)).toEqual(reversed)
    for (const row of rows) {
      const single = batchOf([row])
      expect(bitsOf((await decoder.score(single)).logProb, single)).toEqual(bits([row.drawn]))
    }
  })
})
