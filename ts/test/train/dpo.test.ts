import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import { Decoder } from '../../src/model/index.js'
import { type DpoStep, dpo, type PreferencePair } from '../../src/train/index.js'
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
  return { ...parts, reference, [Symbol.dispose]: dispose }
}

describe('dpo', () => {
  it('begins at log 2 where policy and reference agree, and prefers what was preferred', async () => {
    using parts = withReference()
    const pairs = listDataset({ items: [PAIR] })
    const steps = await collect(dpo({ ...parts, pairs, batchSize: 2, steps: 20 }))
    expect(steps[0]?.loss).toBeCloseTo(Math.log(2), 5)
    expect(steps.at(-1)?.loss).toBeLessThan(0.3)
  })

  it('takes the same steps from the same seed', async () => {
    const run = async () => {
      using parts = withReference(4)
      return await collect(dpo({ ...parts, pairs: listDataset({ items: [PAIR] }), batchSize: 1, steps: 3 }))
    }
    expect(await run()).toEqual(await run())
  })

  it('refuses an answer that holds nothing to train', async () => {
    using parts = withReference()
    const pairs = listDataset({ items: [{ ...PAIR, rejected: [{ role: 'user', content: 'no' }] }] })
    await expect(collect(dpo({ ...parts, pairs, batchSize: 1, steps: 1 }))).rejects.toMatchObject({
      code: expect.stringMatching(/EMPTY|INCOMPATIBLE/),
    })
  })

  it('stops before the next step once its signal fires', async () => {
    using parts = withReference()
    const signal = AbortSignal.abort()
    const pairs = listDataset({ items: [PAIR] })
    await expect(collect(dpo({ ...parts, pairs, batchSize: 1, steps: 1, signal }))).rejects.toMatchObject({
      code: 'ABORTED',
    })
  })
})
