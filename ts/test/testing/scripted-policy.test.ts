import { describe, expect, it } from 'vitest'
import { checkPolicy, ScriptedPolicy } from '../../src/testing/index.js'

const request = { requestId: 'a', promptIds: Uint32Array.of(1), seed: 0, maxTokens: 3, stopIds: [9] }

describe('ScriptedPolicy', () => {
  it('does what a policy must', async () => {
    const reply = ({ seed }: { readonly seed: number }) =>
      seed % 2 === 0 ? [5, 6, 9] : [1, 2, 3, 4, 5, 6, 7]
    await checkPolicy(() => new ScriptedPolicy({ reply }))
  })

  it('gives the script the request and its number, and keeps the requests', async () => {
    const policy = new ScriptedPolicy({ reply: ({ requestId }, call) => [requestId.length, call] })
    await policy.generate(request)
    const second = await policy.generate({ ...request, requestId: 'bcd' })
    expect([...second.ids]).toEqual([3, 1])
    expect(policy.requests.map(({ requestId }) => requestId)).toEqual(['a', 'bcd'])
  })

  it('cuts a reply that is too long together with its log-probabilities', async () => {
    const policy = new ScriptedPolicy({ reply: () => ({ ids: [4, 5, 6, 9], logProbs: [-1, -2, -3, -4] }) })
    const completion = await policy.generate(request)
    expect([...completion.logProbs]).toEqual([-1, -2, -3])
    expect(completion.finishReason).toBe('length')
  })

  it('aborts when the signal has fired', async () => {
    const policy = new ScriptedPolicy({ reply: () => [4, 9] })
    expect((await policy.generate({ ...request, signal: AbortSignal.abort() })).finishReason).toBe('abort')
  })

  it('refuses a script whose log-probabilities do not fit its tokens', async () => {
    const policy = new ScriptedPolicy({ reply: () => ({ ids: [4, 9], logProbs: [-1] }) })
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' })
  })

  it('carries the version that it was told, also when it changes while the script thinks', async () => {
    const policy = new ScriptedPolicy({
      reply: () => {
        policy.version = 6
        return [9]
      },
      version: 5,
    })
    expect((await policy.generate(request)).minPolicyVersion).toBe(5)
    expect((await policy.generate(request)).minPolicyVersion).toBe(6)
  })
})
