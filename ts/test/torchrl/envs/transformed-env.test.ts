import { describe, expect, it } from 'vitest'
import { Composite, checkEnvSpecs, Unbounded } from '../../../src/spec/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../../src/tensor/index.js'
import {
  ChatEnv,
  type EnvBase,
  type EnvTransform,
  nextRoot,
  PolicyVersion,
  replyPolicy,
  StepCounter,
  specEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, failing } from './chats.js'

const seen = (log: string[], name: string): EnvTransform => {
  const noted = (what: string) => (dict: TensorDict) => {
    log.push(`${name} ${what}`)
    return dict
  }
  return {
    beforeReset: noted('beforeReset'),
    afterReset: noted('afterReset'),
    beforeStep: noted('beforeStep'),
    afterStep: noted('afterStep'),
  }
}
const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })

describe('TransformedEnv', () => {
  it('lets what goes in pass the last transform first, and what comes out the first', async () => {
    const log: string[] = []
    const flat = new TransformedEnv(new ChatEnv(), [seen(log, 'near'), seen(log, 'far')])
    await flat.step(await policy(await flat.reset(asked('a'))))
    const order = log.splice(0)
    expect(order).toEqual([
      'far beforeReset',
      'near beforeReset',
      'near afterReset',
      'far afterReset',
      'far beforeStep',
      'near beforeStep',
      'near afterStep',
      'far afterStep',
    ])
    const nested = new TransformedEnv(new TransformedEnv(new ChatEnv(), [seen(log, 'near')]), [
      seen(log, 'far'),
    ])
    await nested.step(await policy(await nested.reset(asked('a'))))
    expect(log).toEqual(order)
  })

  it('shows each transform the specs of all that it stands around', async () => {
    const shape = [1, 1, 1]
    const paid: EnvTransform = {
      afterStep: (next) => next.set('reward', Tensor.from([1], { shape })),
      transformSpecs: (env) => ({
        ...env,
        rewardSpec: new Composite({ reward: new Unbounded({ shape }) }, { shape: [1] }),
      }),
    }
    const keys: unknown[] = []
    const looks: EnvTransform = {
      afterStep: (next, _, env) => {
        keys.push(env.rewardSpec.leafKeys(), env.observationSpec.has('step_count'))
        return next
      },
    }
    const env = new TransformedEnv(new ChatEnv(), [looks, new StepCounter(), paid, looks])
    await env.step(await policy(await env.reset(asked('a'))))
    expect(keys).toEqual([[], false, [['reward']], true])
  })

  it('changes nothing that it is given', async () => {
    const env = new TransformedEnv(new ChatEnv(), [new StepCounter(), new PolicyVersion()])
    const dict = asked('a')
    const root = await policy(await env.reset(dict))
    const before = root.keys()
    await env.step(root)
    expect([dict.keys(), root.keys()]).toEqual([['query'], before])
  })

  it('does what its specs say', async () => {
    const env = new TransformedEnv(new ChatEnv({ batchSize: 3 }), [
      new StepCounter({ maxSteps: 2 }),
      new PolicyVersion(),
    ])
    await checkEnvSpecs(specEnvOf(env, { dict: TensorDict.from({ query: new NonTensorData('a') }) }), {
      steps: 5,
    })
  })

  it('hands on what the environment and the transforms throw', async () => {
    const broken: EnvTransform = {
      afterStep: () => {
        throw new Error('broken')
      },
    }
    const env = new TransformedEnv(new ChatEnv(), [broken])
    await expect(env.step(await policy(await env.reset(asked('a'))))).rejects.toThrow('broken')
    await expect(env.reset()).rejects.toThrow(failing('UNKNOWN_NAME', /query/))
    expect(() => env.setSeed(-1)).toThrow(failing('OUT_OF_RANGE'))
  })
})

describe('nextRoot', () => {
  it('keeps the state, takes what is shown, and leaves rewards and actions behind', async () => {
    const env: EnvBase = new ChatEnv()
    const root = await policy(await env.reset(asked('a').set('note', new NonTensorData(1))))
    const dict = nextRoot(env, root, await env.step(root))
    expect(dict.keys()).toEqual(['query', 'history', 'done', 'terminated'])
    expect(dict.dict('history').keys()).toEqual(['prompt'])
  })
})
