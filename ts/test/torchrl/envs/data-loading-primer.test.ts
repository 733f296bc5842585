import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { TensorDict } from '../../../src/tensor/index.js'
import { ChatEnv, DataLoadingPrimer, TransformedEnv } from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

describe('DataLoadingPrimer', () => {
  it('repeats rows in a row, whatever the batches are', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 6 }),
        async (repeats, sizes) => {
          const rows = [{ query: 'a' }, { query: 'b' }, { query: 'c' }]
          const env = new TransformedEnv(new ChatEnv(), [new DataLoadingPrimer({ dataset: rows, repeats })])
          const seen: unknown[] = []
          for (const size of sizes) {
            const dict = await env.reset(TensorDict.from({}, { batchSize: [size] }))
            seen.push(...(dict.value('query') as string[]))
          }
          expect(seen).toEqual(seen.map((_, at) => rows[Math.floor(at / repeats) % 3]?.query))
        },
      ),
      { seed: 7, numRuns: 50 },
    )
  })

  it('repeats up to its limit', () => {
    const made = (repeats: number) => () => new DataLoadingPrimer({ dataset: [{ query: 'a' }], repeats })
    expect(made(65_536)).not.toThrow()
    expect(made(65_537)).toThrow(failing('LIMIT_EXCEEDED'))
  })

  it('refuses a row of other columns when it comes', async () => {
    const dataset: Record<string, string>[] = [{ query: 'a' }, { question: 'b' }]
    const env = new TransformedEnv(new ChatEnv(), [new DataLoadingPrimer({ dataset })])
    await env.reset()
    await expect(env.reset()).rejects.toThrow(failing('INCOMPATIBLE', /columns query/))
  })
})
