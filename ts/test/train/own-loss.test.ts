/** Losses of the caller's own, wherever ours are taken: what compiles here is what the README promises. */

import { describe, expect, it } from 'vitest'
import { Decoder } from '../../src/model/index.js'
import {
  DPOLoss,
  GRPOLoss,
  type LossBatch,
  type Objective,
  type PreferenceBatch,
  type SFTBatch,
  SFTLoss,
} from '../../src/objective/index.js'
import {
  type DpoOptions,
  dpo,
  type ExpertIterationOptions,
  expertIteration,
  type GrpoOptions,
  grpo,
  type SftOptions,
  sft,
  trainStep,
} from '../../src/train/index.js'
import { makeParts } from './parts.js'

/** Ten lines: the policy gradient without anything around it. */
const reinforce: Objective<LossBatch> = {
  forward({ logProb, advantage, mask, offsets }) {
    const gradLogProb = new Float32Array(mask.length)
    const perToken = advantage.length === mask.length
    for (let s = 0; s + 1 < offsets.length; s++)
      for (let t = offsets[s] ?? 0; t < (offsets[s + 1] ?? 0); t++)
        gradLogProb[t] = -(mask[t] ?? 0) * (advantage[perToken ? t : s] ?? 0)
    const loss = gradLogProb.reduce((sum, gradient, t) => sum + gradient * (logProb[t] ?? 0), 0)
    return { loss, gradLogProb }
  },
}

/** The mean negative log-prob, with a number to log. */
const imitate = {
  forward({ logProb, mask }: Pick<SFTBatch, 'logProb' | 'mask'>) {
    const count = mask.reduce((sum, flag) => sum + flag, 0)
    const gradLogProb = Float32Array.from(mask, (flag) => -flag / count)
    const loss = gradLogProb.reduce((sum, gradient, t) => sum + gradient * (logProb[t] ?? 0), 0)
    return { loss, gradLogProb, metrics: { perplexity: Math.exp(loss) }, denominators: { perplexity: count } }
  },
}

async function collect<T>(steps: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const step of steps) all.push(step)
  return all
}

describe('a loss of the caller', () => {
  it('has the type that each recipe takes, and so have ours', () => {
    const grpoLosses: GrpoOptions<string>['loss'][] = [new GRPOLoss(), reinforce]
    const expertLosses: ExpertIterationOptions<string>['loss'][] = [new SFTLoss(), imitate]
    const sftLosses: SftOptions['loss'][] = [new SFTLoss(), imitate]
    const dpoLosses: DpoOptions['loss'][] = [new DPOLoss(), imitate]
    // @ts-expect-error: nothing that can be stepped along
    const without: Objective<LossBatch> = { forward: () => ({ loss: 1 }) }
    const distil = {
      forward: (batch: { teacherLogProb: Float32Array }) => ({ loss: 1, gradLogProb: batch.teacherLogProb }),
    }
    // @ts-expect-error: the recipe has no such column
    const other: Objective<LossBatch> = distil
    // @ts-expect-error: a loss of preferences needs a reference, which this recipe does not always have
    const third: GrpoOptions<string>['loss'] = new DPOLoss()
    expect([...grpoLosses, ...expertLosses, ...sftLosses, ...dpoLosses, without, other, third]).not.toContain(
      undefined,
    )
  })

  it('trains by grpo, in one pass and in several', async () => {
    for (const batching of [undefined, { seqLen: 80, rowsPerMicrobatch: 1 }]) {
      using parts = makeParts()
      const steps = await collect(
        grpo({
          ...parts.forGrpo,
          loss: reinforce,
          promptsPerStep: 4,
          steps: 20,
          ...(batching && { batching }),
        }),
      )
      expect(steps.at(-1)?.reward.mean).toBeGreaterThan((steps[0]?.reward.mean ?? 1) + 0.1)
      expect(steps[0]?.update?.metrics).toEqual({}) // it measures nothing of its own
    }
  })

  it('trains by sft and expertIteration, and what it measures is told', async () => {
    using parts = makeParts()
    const examples = [{ prompt: 'say', completion: 'aaa' }]
    const steps = await collect(sft({ ...parts.forSft, examples, loss: imitate, batchSize: 2, steps: 10 }))
    expect(steps.at(-1)?.loss).toBeLessThan(steps[0]?.loss ?? 0)
    expect(steps.at(-1)?.metrics.perplexity).toBeCloseTo(Math.exp(steps.at(-1)?.loss ?? 0), 3)
    const experts = expertIteration({
      ...parts.forGrpo,
      loss: imitate,
      numExperts: 1,
      promptsPerStep: 2,
      steps: 2,
    })
    expect(
      (await collect(experts)).every(({ update }) => update === null || 'perplexity' in update.metrics),
    ).toBe(true)
  })

  it('trains by dpo, and is given the squares that it asks for', async () => {
    using parts = makeParts()
    using reference = Decoder.fromSeed(parts.decoder.config, { seed: 1 })
    const seen: boolean[] = []
    const mine = {
      readsLogSumSqProb: true,
      forward(batch: PreferenceBatch) {
        seen.push(batch.logSumSqProb !== undefined)
        return new DPOLoss().forward(batch)
      },
    }
    const pairs = [{ prompt: 'say', chosen: 'yes', rejected: 'no' }]
    const [step] = await collect(
      dpo({ ...parts.forSft, reference, pairs, loss: mine, batchSize: 1, steps: 1 }),
    )
    expect(step?.loss).toBeCloseTo(Math.log(2), 5)
    expect(seen).toEqual([true])
  })

  it('is refused where it is no loss, or gives no result', async () => {
    using parts = makeParts()
    for (const loss of ['drGrpo', {}, null, () => 1])
      expect(() => grpo({ ...parts.forGrpo, loss: loss as never, promptsPerStep: 1, steps: 1 })).toThrow(
        expect.objectContaining({
          code: 'MALFORMED',
          message: expect.stringMatching(/^options.loss must be an object/),
        }),
      )
    const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
    for (const result of [undefined, 3, { gradLogProb: new Float32Array(2) }]) {
      const step = trainStep({ ...parts.forStep, batch, loss: () => result as never })
      await expect(step).rejects.toMatchObject({
        code: 'MALFORMED',
        message: expect.stringMatching(/must return { loss, gradLogProb }/),
      })
    }
    const short = trainStep({
      ...parts.forStep,
      batch,
      loss: () => ({ loss: 1, gradLogProb: new Float32Array(1) }),
    })
    await expect(short).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' })
    const list = trainStep({
      ...parts.forStep,
      batch,
      loss: () => ({ loss: 1, gradLogProb: [0, 1] as never }),
    })
    await expect(list).rejects.toMatchObject({ code: 'MALFORMED' })
  })
})
