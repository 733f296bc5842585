/** Recipes that train an adapter: near the base without a second copy of it, resumed as if nothing had happened. */

import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import { AdamW, Decoder } from '../../src/model/index.js'
import { GRPOLoss, KTOLoss } from '../../src/objective/index.js'
import { DecoderPolicy } from '../../src/policy/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import {
  dpo,
  type GrpoStep,
  grpo,
  loadCheckpoint,
  loadOptimizer,
  saveCheckpoint,
} from '../../src/train/index.js'
import { makeParts } from './parts.js'

async function collect<T>(steps: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const step of steps) all.push(step)
  return all
}

/** The parts of a recipe around `decoder`. */
function around(decoder: Decoder, parts: ReturnType<typeof makeParts>) {
  const policy = new DecoderPolicy(decoder)
  const { task, renderer } = parts
  const rollouter = new Rollouter({ policy, task, renderer, groupSize: 4, maxTokens: 8, seed: 1 })
  return { policy, rollouter, decoder, promptsPerStep: 2 }
}

const ADAPTER = { r: 2, lora_alpha: 16, target_modules: ['q_proj', 'v_proj', 'down_proj'] }
const RATE = { learningRate: 0.02 }
const nearReference = () => new GRPOLoss({ klToRef: { coefficient: 0.1 } })

describe('a run that trains an adapter', () => {
  it('goes on from its checkpoint with the steps of the unbroken run, bit for bit', async () => {
    using parts = makeParts()
    const folder = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'checkpoint')
    const { decoder } = parts
    await decoder.addLora(ADAPTER, { seed: 3 })
    using optimizer = new AdamW(decoder, RATE)
    const unbroken: GrpoStep[] = []
    const options = { loss: nearReference(), reference: 'base' as const, steps: 6 }
    for await (const step of grpo({ ...around(decoder, parts), optimizer, ...options })) {
      unbroken.push(step)
      if (step.index === 2)
        await saveCheckpoint({ folder, decoder, optimizer, state: { recipe: step.state } })
    }
    const { decoder: again, state } = await loadCheckpoint(folder)
    using _ = again
    using resumed = await loadOptimizer(folder, (bytes) => new AdamW(again, RATE, bytes))
    const rest = await collect(
      grpo({ ...around(again, parts), optimizer: resumed, ...options, firstStep: 3, state: state.recipe }),
    )
    const plain = ({ index, reward, kl, update }: GrpoStep) => ({ index, reward, kl, update })
    expect(rest.map(plain)).toEqual(unbroken.slice(3).map(plain))
    expect(unbroken.at(-1)?.kl).toBeGreaterThan(0)
    expect(again.version).toBe(decoder.version)
    expect(await again.loraToSafetensors()).toEqual(await decoder.loraToSafetensors())
    expect(await again.toSafetensors()).toEqual(await decoder.toSafetensors())
    expect(await resumed.toSafetensors()).toEqual(await optimizer.toSafetensors())
  })
})

describe("reference: 'base'", () => {
  it('takes the steps of a second copy of the weights, in GRPO and DPO', async () => {
    const adapters: Uint8Array[] = []
    for (const isCopied of [true, false]) {
      using parts = makeParts()
      const { decoder, renderer } = parts
      using copy = Decoder.fromSafetensors(decoder.config, await decoder.toSafetensors())
      await decoder.addLora(ADAPTER, { seed: 3 })
      using optimizer = new AdamW(decoder, RATE)
      const reference = isCopied ? copy : ('base' as const)
      const steps = { ...around(decoder, parts), optimizer, reference, loss: nearReference(), steps: 3 }
      expect((await collect(grpo(steps))).at(-1)?.kl).toBeGreaterThan(0)
      const say = (content: string) => [{ role: 'assistant', content }]
      const pair = { prompt: [{ role: 'user', content: 'say' }], chosen: say('yes'), rejected: say('no') }
      const pairs = listDataset({ items: [pair] })
      await collect(dpo({ decoder, optimizer, reference, renderer, pairs, batchSize: 2, steps: 3 }))
      adapters.push(await decoder.loraToSafetensors())
    }
    expect(adapters[0]).toEqual(adapters[1])
  })

  it('is refused without an adapter, as it would move with the weights; and so is another word', async () => {
    using parts = makeParts()
    const { decoder, optimizer, renderer } = parts
    const pairs = listDataset({ items: [{ prompt: [], chosen: [], rejected: [] }] })
    const base = { decoder, optimizer, renderer, pairs, batchSize: 1, steps: 1 }
    await expect(collect(dpo({ ...base, reference: 'base' }))).rejects.toMatchObject({ code: 'EMPTY' })
    await expect(collect(dpo({ ...base, reference: 'bsae' as never }))).rejects.toMatchObject({
      code: 'MALFORMED',
    })
    const steps = { ...around(decoder, parts), optimizer, steps: 1 }
    await expect(collect(grpo({ ...steps, reference: 'base' }))).rejects.toMatchObject({ code: 'EMPTY' })
  })

  it('serves KTO by scores of the decoder without its adapter', async () => {
    using parts = makeParts()
    const { decoder } = parts
    const [ids, offsets] = [Uint32Array.of(1, 2, 3, 1, 2, 4), Uint32Array.of(0, 3, 6)]
    const batch = { ids, offsets, mask: Uint8Array.of(0, 1, 1, 0, 1, 1) }
    const before = await decoder.score(batch)
    await expect(decoder.score(batch, { adapter: false })).rejects.toMatchObject({ code: 'EMPTY' })
    await decoder.addLora(ADAPTER, { seed: 3 })
    using optimizer = new AdamW(decoder, RATE)
    const desirable = Uint8Array.of(1, 0)
    const losses: number[] = []
    for (let step = 0; step < 8; step++) {
      const { logProb: refLogProb } = await decoder.score(batch, { adapter: false })
      expect(refLogProb).toEqual(before.logProb)
      const { logProb } = await decoder.forward(batch)
      const { loss, gradLogProb } = new KTOLoss({ lossType: 'apoZeroUnpaired' }).forward({
        logProb,
        refLogProb,
        desirable,
        mask: batch.mask,
        offsets,
      })
      await decoder.backward(gradLogProb)
      await optimizer.step()
      losses.push(loss)
    }
    expect(losses.at(-1)).toBeLessThan(losses[0] ?? 0)
    await expect(decoder.score(batch, { adapter: 0 as never })).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(decoder.score(batch, { adapter: false, topK: 2 })).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
    })
  })
})
