import { describe, expect, it } from 'vitest'
import { Rng } from '../../../src/core/index.js'
import { ChatEnv, PolicyVersion, replyPolicy, rollout, TransformedEnv } from '../../../src/torchrl/index.js'
import { asked, failing } from './chats.js'

const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })

describe('PolicyVersion', () => {
  it('stamps the version that is in use, turn by turn', async () => {
    const version = new PolicyVersion()
    version.version = 7
    const env = new TransformedEnv(new ChatEnv({ batchSize: 4 }), [version])
    const counting = (dict: Parameters<typeof policy>[0]) => {
      version.incrementVersion()
      return policy(dict)
    }
    const { parts } = await rollout(env, counting, { maxSteps: 2, dict: asked('a', 'b', 'c', 'd') })
    expect(parts[0]?.tensor('policy_version').shape).toEqual([4])
    expect([...(parts[0]?.tensor('policy_version').data ?? [])]).toEqual([7n, 7n, 7n, 7n])
    expect(parts[1]?.tensor(['next', 'policy_version']).data[0]).toBe(9n)
    expect(version.versionHistory).toEqual([0, 7, 8, 9])
  })

  it('names versions by its generator, each once', () => {
    const names = (seed: number) => {
      const version = new PolicyVersion({ versionType: 'uuid', rng: Rng.fromSeed(seed) })
      return [version.version, version.incrementVersion(), version.incrementVersion()]
    }
    expect(new Set(names(1)).size).toBe(3)
    expect(names(1)).toEqual(names(1))
    for (const name of names(2)) {
      expect(name).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    }
  })

  it('remembers as many versions as it may', () => {
    const version = new PolicyVersion()
    for (let count = 1; count < 1024; count++) version.incrementVersion()
    expect([version.versionHistory.length, version.versionHistory[0]]).toEqual([1024, 0])
    version.incrementVersion()
    expect([version.versionHistory.length, version.versionHistory[0]]).toEqual([1024, 1])
  })

  it('refuses other versions', () => {
    expect(() => new PolicyVersion({ versionType: 3.5 as never })).toThrow(failing('UNKNOWN_NAME'))
    expect(() => new PolicyVersion({ versionType: 'uuid' })).toThrow(failing('INCOMPATIBLE', /rng/))
    const version = new PolicyVersion()
    expect(() => {
      version.version = -1
    }).toThrow(failing('OUT_OF_RANGE'))
  })
})
