import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { type KTOBatch, KTOLoss } from '../../src/objective/index.js'
import { createModel, kto, type Model } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { failing } from '../torchrl/envs/chats.js'

const fresh = () => createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
const examples = [
  { prompt: 'Tea?', completion: 'yes', label: true },
  { prompt: 'Coffee?', completion: 'nope', label: false },
  { prompt: 'Milk?', completion: 'sure', label: true },
]

async function all<Step>(steps: AsyncIterable<Step>): Promise<Step[]> {
  const taken: Step[] = []
  for await (const step of steps) taken.push(step)
  return taken
}

/** The log-prob of an answer behind its prompt. */
async function logProbOf(model: Model, prompt: string, completion: string): Promise<number> {
  const { renderer, decoder } = model
  const chat = [
    { role: 'user', content: prompt },
    { role: 'assistant', content: completion },
  ]
  const { ids, sampledMask: mask } = renderer.render(chat)
  const { logProb } = await decoder.score({ ids, mask, offsets: Uint32Array.of(0, ids.length) })
  return logProb.reduce((sum, value, at) => sum + (mask[at] ? value : 0), 0)
}

describe('kto', () => {
  it('makes good answers likelier than bad ones, with a copy of the model or the weights under an adapter as reference', async () => {
    for (const lora of [undefined, { rank: 4 }]) {
      using model = fresh()
      const before = [await logProbOf(model, 'Tea?', 'yes'), await logProbOf(model, 'Coffee?', 'nope')]
      const steps = await all(
        kto({ model, examples, batchSize: 3, epochs: 15, learningRate: 0.02, ...(lora && { lora }) }),
      )
      expect(steps.length).toBe(15)
      expect(steps[0]?.loss).toBeCloseTo(0.5, 5) // policy and reference are equal
      expect(steps.at(-1)?.loss).toBeLessThan(0.49)
      const after = [await logProbOf(model, 'Tea?', 'yes'), await logProbOf(model, 'Coffee?', 'nope')]
      expect(Number(after[0]) - Number(before[0])).toBeGreaterThan(Number(after[1]) - Number(before[1]))
    }
  })

  it('gives the loss the log-ratios of answers behind the prompts of their neighbours', async () => {
    using model = fresh()
    using reference = Decoder.fromSeed(model.decoder.config, { seed: 9 })
    using optimizer = new AdamW(model.decoder, { learningRate: 0 })
    const batches: KTOBatch[] = []
    const own = new KTOLoss()
    const loss = {
      forward: (batch: KTOBatch) => {
        batches.push(batch)
        return own.forward(batch)
      },
    }
    const { decoder, renderer } = model
    await all(kto({ decoder, optimizer, reference, renderer, examples, batchSize: 3, steps: 1, loss }))
    const other = { renderer, decoder: reference } as Model
    const expected = []
    for (const [at, { prompt }] of examples.entries()) {
      const { completion } = examples[(at + 1) % 3] as (typeof examples)[number]
      expected.push(
        (await logProbOf(model, prompt, completion)) - (await logProbOf(other, prompt, completion)),
      )
    }
    const { klLogRatio = [], desirable } = batches[0] as KTOBatch
    for (const [at, value] of expected.entries()) expect(klLogRatio[at]).toBeCloseTo(value, 4)
    expect([...desirable]).toEqual([1, 0, 1])
  })

  it('reads rows from a file', async () => {
    using model = fresh()
    const file = join(await mkdtemp(join(tmpdir(), 'fulmar-kto-')), 'rows.jsonl')
    await writeFile(file, examples.map((row) => JSON.stringify(row)).join('\n'))
    expect((await all(kto({ model, examples: file, batchSize: 2 }))).length).toBe(2)
  })

  it('refuses options and rows of another form by name', async () => {
    using model = fresh()
    expect(() => kto({ model, examples, pairs: [] } as never)).toThrow(failing('UNKNOWN_NAME', /pairs/))
    await expect(all(kto({ model, examples, batchSize: 1 }))).rejects.toThrow(
      failing('OUT_OF_RANGE', /batchSize/),
    )
    const rows = [{ ...examples[0], label: 'good' }] as never
    await expect(all(kto({ model, examples: rows, batchSize: 2 }))).rejects.toThrow(
      failing('MALFORMED', /label/),
    )
    await expect(all(kto({ model, examples: [] }))).rejects.toThrow(failing('EMPTY', /examples/))
  })
})
