import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import { Decoder } from '../../src/model/index.js'
import { DPOLoss } from '../../src/objective/index.js'
import { type DpoOptions, type DpoStep, dpo, type PreferencePair } from '../../src/train/index.js'
import { makeParts } from './parts.js'

const say = (content: string) => [{ role: 'assistant', content }]
const PAIR: PreferencePair = {
  prompt: [{ role: 'user', content: 'say' }],
  chosen: say('yes'),
  rejected: say('no'),
}

async function collect(steps: AsyncIterable<DpoStep>): Promise<DpoStep[]> {
  const all: DpoStep[] = []
  for await (const step of steps) all.push(step)
  return all
}

function withReference(seed = 1) {
  const parts = makeParts({ seed })
  const reference = Decoder.fromSeed(parts.decoder.config, { seed })
  const dispose = () => {
    reference[Symbol.dispose]()
    parts[Symbol.dispose]()
  }
  return { ...parts, reference, forDpo: { ...parts.forSft, reference }, [Symbol.dispose]: dispose }
}

describe('dpo', () => {
  it('begins at log 2 where policy and reference agree, and prefers what was preferred', async () => {
    using parts = withReference()
    const pairs = listDataset({ items: [PAIR] })
    const steps = await collect(dpo({ ...parts.forDpo, pairs, batchSize: 2, steps: 20 }))
    expect(steps[0]?.loss).toBeCloseTo(Math.log(2), 5)
    expect(steps.at(-1)?.loss).toBeLessThan(0.3)
  })

  it('weighs pairs by how likely the policy finds them, without a word from the caller', async () => {
    using parts = withReference()
    const pairs = listDataset({ items: [PAIR] })
    const loss = new DPOLoss({ useWeighting: true })
    const seen: number[] = []
    const forward = loss.forward.bind(loss)
    loss.forward = (batch) => {
      const { logProb, logSumSqProb = new Float32Array(0), mask, offsets } = batch
      const aligned = [0, 1].map((side) => {
        const trained = Array.from(
          { length: (offsets[side + 1] ?? 0) - (offsets[side] ?? 0) },
          (_, at) => (offsets[side] ?? 0) + at,
        ).filter((at) => mask[at] === 1)
        return (
          trained.reduce((sum, at) => sum + (logProb[at] ?? 0) - (logSumSqProb[at] ?? 0), 0) / trained.length
        )
      })
      const weight = Math.exp((aligned[0] ?? 0) + (aligned[1] ?? 0))
      const weighted = forward(batch)
      expect(weighted.loss).toBeCloseTo(weight * new DPOLoss().forward(batch).loss, 5)
      seen.push(weight)
      return weighted
    }
    const steps = await collect(dpo({ ...parts.forDpo, pairs, batchSize: 1, steps: 8, loss }))
    expect(steps[0]?.loss).toBeCloseTo((seen[0] ?? 0) * Math.log(2), 5)
    expect(Math.abs((seen[0] ?? 1) - 1)).toBeGreaterThan(1e-4)
    expect(steps.at(-1)?.metrics.margin).toBeGreaterThan(0.01)
  })

  it('takes texts and lists, which stand for messages and data sets', async () => {
    const run = async (pairs: DpoOptions['pairs']) => {
      using parts = withReference()
      return await collect(dpo({ ...parts.forDpo, pairs, batchSize: 2, steps: 2 }))
    }
    const wanted = await run(listDataset({ items: [PAIR] }))
    expect(await run([PAIR])).toEqual(wanted)
    expect(await run([{ prompt: 'say', chosen: 'yes', rejected: 'no' }])).toEqual(wanted)
  })

  it('refuses pairs of another form by the place of what is wrong', async () => {
    using parts = withReference()
    const run = (pair: unknown) =>
      collect(dpo({ ...parts.forDpo, pairs: [pair as never], batchSize: 1, steps: 1 }))
    const refused = (message: RegExp) => ({ code: 'MALFORMED', message: expect.stringMatching(message) })
    await expect(run(null)).rejects.toMatchObject(
      refused(/^pair 0 of the batch must be { prompt, chosen, rejected }: got null/),
    )
    await expect(run({ prompt: 'say', chosen: 'yes' })).rejects.toMatchObject(
      refused(/^rejected of pair 0 .*got undefined$/),
    )
    await expect(run({ ...PAIR, prompt: [] })).rejects.toMatchObject(refused(/^prompt of pair 0 /))
  })

  it('takes the same steps from the same seed', async () => {
    const run = async () => {
      using parts = withReference(4)
      return await collect(
        dpo({ ...parts.forDpo, pairs: listDataset({ items: [PAIR] }), batchSize: 1, steps: 3 }),
      )
    }
    expect(await run()).toEqual(await run())
  })

  it('refuses an answer that holds nothing to train', async () => {
    using parts = withReference()
    const pairs = listDataset({ items: [{ ...PAIR, rejected: [{ role: 'user', content: 'no' }] }] })
    await expect(collect(dpo({ ...parts.forDpo, pairs, batchSize: 1, steps: 1 }))).rejects.toMatchObject({
      code: expect.stringMatching(/EMPTY|INCOMPATIBLE/),
    })
  })

  it('stops before the next step once its signal fires', async () => {
    using parts = withReference()
    const signal = AbortSignal.abort()
    const pairs = listDataset({ items: [PAIR] })
    await expect(
      collect(dpo({ ...parts.forDpo, pairs, batchSize: 1, steps: 1, signal })),
    ).rejects.toMatchObject({
      code: 'ABORTED',
    })
  })
})
