import { describe, expect, it } from 'vitest'
import { Tensor } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  ChatEnv,
  type EnvTransform,
  replyPolicy,
  rollout,
  TemplateTransform,
  Tokenizer,
  TransformedEnv,
  turnTransform,
} from '../../../src/torchrl/index.js'
import { RewardScaling } from '../../../src/transform/index.js'
import { asked, failing, template } from './chats.js'

const tokenizer = new CharTokenizer()
const paid: EnvTransform = {
  afterStep: (next) => next.set('reward', Tensor.from([4, 4], { shape: [2, 1] })),
}

describe('turnTransform', () => {
  it('drives a chat of messages by token ids, through a template and a tokenizer', async () => {
    const texts = turnTransform(new TemplateTransform(template), { actions: true })
    const ids = new Tokenizer({
      tokenizer,
      inKeys: [['text', 'prompt']],
      outKeys: [['tokens', 'prompt']],
      inKeysInv: [['tokens', 'full']],
      outKeysInv: [['text', 'full']],
      skipSpecialTokens: false,
    })
    const env = new TransformedEnv(new ChatEnv({ batchSize: 2 }), [
      texts,
      turnTransform(ids, { actions: true }),
    ])
    const policy = replyPolicy({ inputMode: 'tokens', tokenizer, reply: (_, at) => `said ${at}<|im_end|>\n` })
    const { parts } = await rollout(env, policy, { maxSteps: 2, dict: asked('a', 'b') })
    expect(parts[1]?.value(['next', 'history', 'prompt'])).toMatchObject([
      [{ content: 'a' }, { content: 'said 0' }, { content: 'said 0' }],
      [{ content: 'b' }, { content: 'said 1' }, { content: 'said 1' }],
    ])
  })

  it('shapes rewards with the transforms of replay buffers, where steps alone pass', async () => {
    const scaling = new RewardScaling({ loc: 1, scale: 0.5, inKeys: ['reward'] })
    const env = new TransformedEnv(new ChatEnv({ batchSize: 2 }), [
      paid,
      turnTransform(scaling, { on: 'step' }),
    ])
    const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })
    const { parts } = await rollout(env, policy, { maxSteps: 1, dict: asked('a', 'b') })
    expect([...(parts[0]?.tensor(['next', 'reward']).data ?? [])]).toEqual([3, 3])
  })

  it('refuses what it cannot do', () => {
    const noInverse = { forward: new TemplateTransform(template).forward }
    expect(() => turnTransform(noInverse, { actions: true })).toThrow(failing('INCOMPATIBLE', /inverse/))
    expect(() => turnTransform(noInverse, { on: 'all' as never })).toThrow(failing('UNKNOWN_NAME'))
  })
})
