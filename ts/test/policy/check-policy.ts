/** What every {@link Policy} must do; the tests of each implementation call this. */

import { describe, expect, it } from 'vitest'
import type { GenerateRequest, Policy } from '../../src/policy/index.js'

/** Registers the suite. `make` gives a new policy whose vocabulary has at least the ids 0 to 9. */
export function checkPolicy(name: string, make: () => Policy): void {
  const request: GenerateRequest = {
    requestId: 'a',
    promptIds: Uint32Array.of(1, 2, 3),
    seed: 7,
    maxTokens: 6,
    stopIds: [9],
  }

  describe(`${name} as a Policy`, () => {
    it('answers the request with one log-probability of each kind per token', async () => {
      const policy = make()
      const completion = await policy.generate(request)
      const { length } = completion.ids
      expect(completion.requestId).toBe('a')
      expect(length).toBeGreaterThanOrEqual(1)
      expect(length).toBeLessThanOrEqual(6)
      expect([completion.logProbs.length, completion.sampledLogProbs.length]).toEqual([length, length])
      expect([...completion.logProbs, ...completion.sampledLogProbs].every((value) => value <= 0)).toBe(true)
      expect([completion.minPolicyVersion, completion.maxPolicyVersion]).toEqual([
        policy.version,
        policy.version,
      ])
    })

    it('ends with the stop token or at the limit, and says which', async () => {
      const policy = make()
      const seeds = Array.from({ length: 16 }, (_, seed) => seed)
      const completions = await Promise.all(seeds.map((seed) => policy.generate({ ...request, seed })))
      for (const { ids, finishReason } of completions) {
        expect(finishReason).toBe(ids.at(-1) === 9 ? 'stop' : 'length')
        expect([...ids.slice(0, -1)]).not.toContain(9)
        if (finishReason === 'length') expect(ids).toHaveLength(6)
      }
    })

    it('gives the same completion for the same request, alone or among others', async () => {
      const alone = await make().generate(request)
      const policy = make()
      const others = [1, 2, 3].map((seed) =>
        policy.generate({ ...request, seed, promptIds: Uint32Array.of(4) }),
      )
      const [among] = await Promise.all([policy.generate(request), ...others])
      expect(among).toEqual(alone)
    })

    it('leaves the prompt as it was', async () => {
      const promptIds = Uint32Array.of(1, 2, 3)
      await make().generate({ ...request, promptIds })
      expect([...promptIds]).toEqual([1, 2, 3])
    })

    it('refuses requests that cannot be answered', async () => {
      const refused: [Partial<GenerateRequest>, string][] = [
        [{ promptIds: new Uint32Array(0) }, 'EMPTY'],
        [{ maxTokens: 0 }, 'OUT_OF_RANGE'],
        [{ seed: -1 }, 'OUT_OF_RANGE'],
        [{ temperature: Number.NaN }, 'OUT_OF_RANGE'],
        [{ topK: 1.5 }, 'OUT_OF_RANGE'],
        [{ topP: 0 }, 'OUT_OF_RANGE'],
      ]
      for (const [part, code] of refused) {
        await expect(make().generate({ ...request, ...part })).rejects.toMatchObject({ code })
      }
    })
  })
}
