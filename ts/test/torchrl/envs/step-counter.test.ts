import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import {
  ChatEnv,
  replyPolicy,
  rollout,
  StepCounter,
  specEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, failing } from './chats.js'

const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })

describe('StepCounter', () => {
  it('counts, truncates at the last step and begins at 0 again', async () => {
    const env = new TransformedEnv(new ChatEnv({ batchSize: 2 }), [new StepCounter({ maxSteps: 2 })])
    const options = { maxSteps: 5, dict: asked('a', 'b'), breakWhenAnyDone: false }
    const { parts } = await rollout(env, policy, options)
    const counts = parts.map((part) => part.tensor(['next', 'step_count']).data[1])
    expect(counts).toEqual([1n, 2n, 1n, 2n, 1n])
    expect(parts.map((part) => part.tensor(['next', 'truncated']).data[0])).toEqual([0, 1, 0, 1, 0])
    expect(parts.map((part) => part.tensor(['next', 'done']).data[0])).toEqual([0, 1, 0, 1, 0])
    expect(parts.map((part) => part.tensor(['next', 'terminated']).data[0])).toEqual([0, 0, 0, 0, 0])
  })

  it('does what its specs say, and leaves done alone where it shall', async () => {
    const env = new TransformedEnv(new ChatEnv(), [new StepCounter({ maxSteps: 1 })])
    await checkEnvSpecs(specEnvOf(env, { dict: asked('a') }))
    const counter = new StepCounter({
      maxSteps: 1,
      updateDone: false,
      truncatedKey: 'cut',
      stepCountKey: 'n',
    })
    const { parts } = await rollout(new TransformedEnv(new ChatEnv(), [counter]), policy, {
      maxSteps: 2,
      dict: asked('a'),
    })
    expect(parts.map((part) => part.tensor(['next', 'cut']).data[0])).toEqual([1, 1])
    expect(parts[1]?.tensor('n').data[0]).toBe(1n)
  })

  it('refuses a limit that is none', () => {
    expect(() => new StepCounter({ maxSteps: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new StepCounter({ maxStep: 1 } as never)).toThrow(failing('UNKNOWN_NAME'))
  })
})
