import { describe, expect, it } from 'vitest'
import type { Decoder } from '../../src/model/index.js'
import { SFTLoss } from '../../src/objective/index.js'
import { expertIteration, type RolloutTrainingStep } from '../../src/train/index.js'
import { makeParts } from './parts.js'

async function collect<T>(steps: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const step of steps) all.push(step)
  return all
}

describe('expertIteration', () => {
  it('raises the reward by imitating the best', async () => {
    using parts = makeParts()
    const steps = await collect(
      expertIteration({ ...parts.forGrpo, numExperts: 1, promptsPerStep: 4, steps: 40 }),
    )
    const mean = (part: RolloutTrainingStep[]) =>
      part.reduce((sum, { reward }) => sum + reward.mean, 0) / part.length
    expect(mean(steps.slice(-5))).toBeGreaterThan(mean(steps.slice(0, 5)) + 0.3)
  })

  it('measures how far it is from the reference that it is given', async () => {
    using parts = makeParts()
    using other = makeParts({ seed: 2 })
    const klOf = async (reference: Decoder) => {
      const loss = new SFTLoss({ klToRef: { estimator: 'k2', coefficient: 0.5 } })
      const options = { ...parts.forGrpo, numExperts: 2, promptsPerStep: 2, steps: 1, loss, reference }
      const [step] = await collect(expertIteration(options))
      return step?.update?.metrics.klToRef
    }
    expect(await klOf(other.decoder)).toBeGreaterThan(0.001)
  })

  it('keeps the best of each group that differ, and nothing of the others', async () => {
    let calls = 0
    using parts = makeParts({ score: () => (calls++ < 4 ? calls : 7) })
    const [step] = await collect(
      expertIteration({ ...parts.forGrpo, numExperts: 2, promptsPerStep: 2, steps: 1 }),
    )
    expect(step?.update?.metrics.numSequences).toBe(2)
    expect(step?.metrics['training_sample_builder/num_groups_dropped_zero_std/sum']).toBe(1)
  })

  it('leaves a group out of which a member could not be scored', async () => {
    let calls = 0
    using parts = makeParts({ score: () => (calls++ === 0 ? Number.NaN : calls) })
    const [step] = await collect(
      expertIteration({ ...parts.forGrpo, numExperts: 2, promptsPerStep: 1, steps: 1 }),
    )
    expect(step?.update).toBeNull()
    expect(step?.metrics['training_sample_builder/num_groups_dropped_unscored/sum']).toBe(1)
  })

  it('refuses to keep none, or more than there are', () => {
    using parts = makeParts()
    for (const numExperts of [0, 5])
      expect(() => expertIteration({ ...parts.forGrpo, numExperts, promptsPerStep: 1, steps: 1 })).toThrow(
        expect.objectContaining({ code: 'OUT_OF_RANGE' }),
      )
  })
})
