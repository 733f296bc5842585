import { describe, expect, it } from 'vitest'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type Policy,
  type ScoreRequest,
} from '../../src/policy/index.js'
import { checkPolicy } from '../../src/testing/index.js'

/** Draws `seed` + place; its log-probs are -1. */
class Counter implements Policy {
  readonly version = 3

  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const { requestId, seed, temperature = 1, maxTokens, stopIds, signal } = request
    const all = Array.from({ length: maxTokens }, (_, place) => (place + (temperature === 0 ? 0 : seed)) % 10)
    const end = all.findIndex((id) => stopIds.includes(id))
    const ids = Uint32Array.from(signal?.aborted ? [] : end < 0 ? all : all.slice(0, end + 1))
    const logProbs = new Float32Array(ids.length).fill(-1)
    const natural = end < 0 ? 'length' : 'stop'
    const finishReason = signal?.aborted ? 'abort' : natural
    const versions = { minPolicyVersion: 3, maxPolicyVersion: 3 }
    return { requestId, ids, logProbs, sampledLogProbs: logProbs, finishReason, ...versions }
  }

  async score(request: ScoreRequest) {
    checkScoreRequest(request)
    const { requestId, ids } = request
    const logProbs = new Float32Array(ids.length).fill(-1)
    logProbs[0] = Number.NaN
    return { requestId, logProbs, policyVersion: 3 }
  }
}

/** A counter whose completions are changed. */
function liar(change: (completion: Completion, request: GenerateRequest) => Partial<Completion>): Policy {
  return Object.assign(new Counter(), {
    generate: async (request: GenerateRequest) => {
      const completion = await new Counter().generate(request)
      return { ...completion, ...change(completion, request) }
    },
  })
}

describe('checkPolicy', () => {
  it('passes a policy that keeps every promise', async () => {
    await checkPolicy(() => new Counter())
  })

  let calls = 0
  const lies: [string, RegExp, () => Policy][] = [
    ['another request', /name its request/, () => liar(() => ({ requestId: 'x' }))],
    ['too few log-probs', /one log-prob of each kind/, () => liar(() => ({ logProbs: new Float32Array(0) }))],
    [
      'log-probs that are none',
      /must be told/,
      () => liar(({ ids }) => ({ logProbs: new Float32Array(ids.length).fill(Number.NaN) })),
    ],
    [
      'log-probs above 0',
      /above 0/,
      () => liar(({ ids }) => ({ sampledLogProbs: new Float32Array(ids.length).fill(0.5) })),
    ],
    ['the wrong reason', /reason why it ended/, () => liar(() => ({ finishReason: 'length' }))],
    ['versions of later', /versions/, () => liar(() => ({ maxPolicyVersion: 4 }))],
    [
      'draws that no seed fixes',
      /depend on concurrent requests/,
      () => liar(({ ids }) => ({ logProbs: new Float32Array(ids.length).fill(-1 - calls++) })),
    ],
    [
      'aborts that nobody asked for',
      /reason why|alone|must abort/,
      () => liar(({ finishReason }) => ({ finishReason: finishReason === 'abort' ? 'stop' : finishReason })),
    ],
    [
      'scores of something else',
      /scored as it was drawn/,
      () => liar(({ ids }) => ({ logProbs: new Float32Array(ids.length).fill(-2) })),
    ],
    [
      'prompts read too late',
      /must be read before the call returns/,
      () => {
        const policy = new Counter()
        const generate = async (request: GenerateRequest) => {
          await Promise.resolve()
          const completion = await policy.generate(request)
          if (request.temperature !== 0) return completion
          // Greedy draws count from the end of the prompt, as it is by now.
          const from = request.promptIds.at(-1) ?? 0
          return { ...completion, ids: completion.ids.map((id) => (id + from) % 9) }
        }
        return { version: 3, generate }
      },
    ],
    [
      'prompts written over',
      /prompt must stay/,
      () =>
        liar((_, { promptIds }) => {
          promptIds[0] = 8
          return {}
        }),
    ],
  ]
  it.each(lies)('refuses %s', async (_, message, make) => {
    await expect(checkPolicy(make)).rejects.toMatchObject({
      code: 'USER_CODE',
      message: expect.stringMatching(message),
    })
  })

  it('refuses a policy that answers what nobody could', async () => {
    const careless = () => {
      const policy = new Counter()
      const generate = (request: GenerateRequest) =>
        policy.generate({ ...request, seed: Math.abs(request.seed) })
      return { version: 3, generate }
    }
    await expect(checkPolicy(careless)).rejects.toMatchObject({
      message: expect.stringMatching(/a bad seed must be refused/),
    })
    await expect(checkPolicy(() => new Counter(), { vocabSize: 10 })).rejects.toMatchObject({
      message: expect.stringMatching(/a bad promptIds must be refused/),
    })
    await expect(checkPolicy(() => new Counter(), { contextLength: 8 })).rejects.toMatchObject({
      message: expect.stringMatching(/a bad maxTokens must be refused/),
    })
  })

  it('refuses a policy that takes stop strings for nothing, or takes those that it says it cannot look for', async () => {
    const textOf = (id: number) => `${id}`
    await expect(checkPolicy(() => new Counter(), { textOf })).rejects.toMatchObject({
      message: expect.stringMatching(/must end with the token that completes a stop string/),
    })
    const modest = () => Object.assign(new Counter(), { capabilities: { stopStrings: false } })
    await expect(checkPolicy(modest)).rejects.toMatchObject({
      message: expect.stringMatching(/a bad stopStrings must be refused/),
    })
  })

  it('does not ask for what a policy says it cannot do', async () => {
    const silent = () =>
      Object.assign(
        liar(({ ids }) => ({ logProbs: new Float32Array(ids.length).fill(Number.NaN) })),
        { capabilities: { logProbs: false } },
      )
    await checkPolicy(silent)
  })

  it('refuses a stream whose parts are not what it comes to', async () => {
    const streaming = (told: (ids: Uint32Array) => Uint32Array) => () => {
      const policy = new Counter()
      const stream = (request: GenerateRequest) => {
        const result = policy.generate(request)
        return {
          result,
          async *[Symbol.asyncIterator]() {
            const { ids, logProbs, sampledLogProbs } = await result
            yield { ids: told(ids), logProbs, sampledLogProbs }
          },
        }
      }
      return Object.assign(policy, { stream })
    }
    await checkPolicy(streaming((ids) => ids))
    await expect(checkPolicy(streaming((ids) => ids.map((id) => id ^ 1)))).rejects.toMatchObject({
      code: 'USER_CODE',
      message: expect.stringMatching(/parts of a stream must make its result/),
    })
    await expect(checkPolicy(streaming((ids) => ids.subarray(1)))).rejects.toMatchObject({
      message: expect.stringMatching(/each token of a part must have one log-prob/),
    })
  })
})
