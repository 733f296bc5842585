import { describe, expect, it } from 'vitest'
import { ParkingPolicy, WeightSync } from '../../src/collect/index.js'
import type { Completion, GenerateRequest, Policy } from '../../src/policy/index.js'
import { checkWeightReceiver, ScriptedPolicy } from '../../src/testing/index.js'

const request = (change: Partial<GenerateRequest> = {}): GenerateRequest => {
  return { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 5, maxTokens: 6, stopIds: [9], ...change }
}

/** Samples `first`, then its following numbers, a token whenever `tick` is called; 9 ends nothing by itself. */
class TickingPolicy implements Policy {
  readonly requests: GenerateRequest[] = []
  readonly #running = new Set<() => void>()
  readonly #first: number
  readonly version: number
  constructor(version: number, first: number) {
    this.version = version
    this.#first = first
  }

  tick(): void {
    for (const step of [...this.#running]) step()
  }

  generate(asked: GenerateRequest): Promise<Completion> {
    this.requests.push(asked)
    const ids: number[] = []
    const { requestId, maxTokens, signal } = asked
    return new Promise((resolve) => {
      const end = (finishReason: Completion['finishReason']) => {
        this.#running.delete(step)
        const logProbs = Float32Array.from(ids, () => -1)
        const versions = { minPolicyVersion: this.version, maxPolicyVersion: this.version }
        resolve({
          requestId,
          ids: Uint32Array.from(ids),
          logProbs,
          sampledLogProbs: logProbs,
          finishReason,
          ...versions,
        })
      }
      const step = () => {
        ids.push(this.#first + ids.length)
        if (ids.length === maxTokens) end('length')
      }
      this.#running.add(step)
      signal?.addEventListener('abort', () => end('abort'))
    })
  }
}

const settle = () => new Promise((resolve) => setImmediate(resolve))

describe('ParkingPolicy', () => {
  it('does what a receiver of weights must', async () => {
    const weights = (version: number) =>
      new ScriptedPolicy({ version, reply: ({ seed }) => [(seed + version) % 8, version, 9] })
    const policy = new ParkingPolicy(weights(0))
    await checkWeightReceiver<Policy>(() => policy, { weights })
  })

  it('goes on with new weights where a completion was cut, and loses no token', async () => {
    const [old, young] = [new TickingPolicy(3, 10), new TickingPolicy(4, 20)]
    const replaced: Policy[] = []
    const policy = new ParkingPolicy(old, { onReplaced: (one) => replaced.push(one) })
    const completing = policy.generate(request())
    old.tick()
    old.tick()
    policy.stage(young)
    await policy.commit(4)
    policy.settle()
    await settle()
    expect([...(young.requests[0]?.promptIds ?? [])]).toEqual([1, 2, 10, 11])
    expect(young.requests[0]).toMatchObject({ maxTokens: 4, requestId: 'a' })
    expect(young.requests[0]?.seed).not.toBe(5)
    for (let tick = 0; tick < 4; tick++) young.tick()
    const completion = await completing
    expect([...completion.ids]).toEqual([10, 11, 20, 21, 22, 23])
    expect([...(completion.policyVersions ?? [])]).toEqual([3, 3, 4, 4, 4, 4])
    expect(completion).toMatchObject({ finishReason: 'length', minPolicyVersion: 3, maxPolicyVersion: 4 })
    expect(completion.logProbs).toHaveLength(6)
    expect(replaced).toEqual([old])
  })

  it('lets nothing begin while it is paused, and resolves the pause once nothing is sampled', async () => {
    const inner = new TickingPolicy(0, 10)
    const policy = new ParkingPolicy(inner)
    const first = policy.generate(request({ maxTokens: 1 }))
    await policy.pause()
    expect(policy.numInFlight).toBe(0)
    await settle()
    expect(inner.requests).toHaveLength(1)
    policy.resume()
    await settle()
    inner.tick()
    expect([...(await first).ids]).toEqual([10])
  })

  it('passes on what its caller and its policy abort, and does not go on by itself', async () => {
    const controller = new AbortController()
    const inner = new TickingPolicy(0, 10)
    const policy = new ParkingPolicy(inner)
    const completing = policy.generate(request({ signal: controller.signal }))
    inner.tick()
    controller.abort()
    expect(await completing).toMatchObject({ finishReason: 'abort', ids: Uint32Array.of(10) })
    const own = new ScriptedPolicy({ reply: () => ({ ids: [7], finishReason: 'abort' }) })
    expect((await new ParkingPolicy(own).generate(request())).finishReason).toBe('abort')
  })

  it('ends a parked completion when its caller aborts', async () => {
    const controller = new AbortController()
    const policy = new ParkingPolicy(new TickingPolicy(0, 10))
    const completing = policy.generate(request({ signal: controller.signal }))
    await policy.pause()
    controller.abort()
    expect((await completing).finishReason).toBe('abort')
  })

  it('gives back what it refused when another receiver fails', async () => {
    const old = new ScriptedPolicy({ reply: () => [5, 9] })
    const young = new ScriptedPolicy({ reply: () => [6, 9], version: 1 })
    const replaced: Policy[] = []
    const policy = new ParkingPolicy(old, { name: 'p', onReplaced: (one) => replaced.push(one) })
    const broken = {
      name: 'q',
      version: 0,
      stage: () => {},
      commit: () => {
        throw new Error('no')
      },
      rollback: () => {},
    }
    const sync = new WeightSync<Policy>({ capture: () => young, receivers: [policy, broken], attempts: 1 })
    sync.start(1)
    await expect(sync.waitServed()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(sync.served).toEqual({ p: 0, q: 0 })
    expect(replaced).toEqual([young])
    expect([...(await policy.generate(request())).ids]).toEqual([5, 9])
  })

  it('refuses to serve what was never staged', async () => {
    const policy = new ParkingPolicy(new TickingPolicy(0, 10))
    await expect(policy.commit(1)).rejects.toMatchObject({ code: 'CLOSED' })
  })
})
