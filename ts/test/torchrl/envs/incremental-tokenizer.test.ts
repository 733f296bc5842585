import { describe, expect, it } from 'vitest'
import { NonTensorStack, type TensorDict } from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AddThinkingPrompt,
  ChatEnv,
  type EnvTransform,
  IncrementalTokenizer,
  LLMWrapperBase,
  replyPolicy,
  rollout,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, failing, template } from './chats.js'

const tokenizer = new CharTokenizer()
const stop = tokenizer.encode('<|im_end|>', { addedTokens: true }).ids[0] ?? 0
const textsOf = (dict: TensorDict, key = ['tokens', 'prompt']) => {
  const rows = dict.ragged(key)
  const ids = (row: number) => Uint32Array.from(rows.row(row).data, Number)
  return Array.from({ length: rows.numRows }, (_, row) => tokenizer.decode(ids(row)))
}
const opened = (...said: [role: string, content: string][]) =>
  `${said.map(([role, content]) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join('')}<|im_start|>assistant\n`

/** Says something after each turn of the policy, as tools do. */
const tool: EnvTransform = {
  afterStep(next) {
    const chats = next.value(['history', 'prompt']) as never[][]
    const answer = { role: 'tool', content: '8' } as never
    return next.set(['history', 'prompt'], new NonTensorStack(chats.map((chat) => [...chat, answer])))
  },
}

/** A policy with only ids of letters, which draws one of them where its tokenizer would not. */
const wrapper = (reply: () => number[]) => {
  const policy = new ScriptedPolicy({ reply })
  const made = new LLMWrapperBase(policy, { tokenizer, rendering: template, preferTokens: true })
  return { policy, forward: (dict: TensorDict) => made.forward(dict) }
}

describe('IncrementalTokenizer', () => {
  it('refuses to be made without a tokenizer', () => {
    expect(() => new IncrementalTokenizer({} as never)).toThrow(
      'options.tokenizer must be given: it is undefined',
    )
  })

  it('shows the ids of every prompt, and encodes turns of which no ids are known', async () => {
    const env = new TransformedEnv(new ChatEnv({ batchSize: 2, systemPrompt: 'S' }), [
      new IncrementalTokenizer({ tokenizer, template }),
    ])
    const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => `r${at}` })
    const { parts } = await rollout(env, policy, { maxSteps: 2, dict: asked('a', 'b') })
    const [first, second] = parts.map((part) => textsOf(part))
    expect(first).toEqual([opened(['system', 'S'], ['user', 'a']), opened(['system', 'S'], ['user', 'b'])])
    expect(second?.[1]).toBe(opened(['system', 'S'], ['user', 'b'], ['assistant', 'r1']))
  })

  it('keeps the ids that were drawn and encodes only what follows them, tools and the next opening too', async () => {
    // Ids of single letters spell the name of a special token that the tokenizer would encode as one.
    const drawn = [...tokenizer.encode('a<|im_start|>').ids, stop]
    const { forward } = wrapper(() => drawn)
    const env = new TransformedEnv(new ChatEnv(), [tool, new IncrementalTokenizer({ tokenizer, template })])
    const { parts } = await rollout(env, forward, { maxSteps: 2, dict: asked('Hi') })
    const [first, second] = parts
    const full = [...(first?.ragged(['tokens', 'full']).row(0).data ?? [])]
    const prompt = [...(second?.ragged(['tokens', 'prompt']).row(0).data ?? [])]
    expect(prompt.slice(0, full.length)).toEqual(full)
    expect(full.slice(-drawn.length)).toEqual(drawn.map(BigInt))
    const said = opened(['user', 'Hi'], ['assistant', 'a<|im_start|>'], ['tool', '8'])
    expect(second && textsOf(second)).toEqual([said])
  })

  it('puts in the end of a turn that the policy did not draw', async () => {
    const { forward } = wrapper(() => [...tokenizer.encode('cut').ids])
    const env = new TransformedEnv(new ChatEnv(), [new IncrementalTokenizer({ tokenizer, template })])
    const { parts } = await rollout(env, forward, { maxSteps: 2, dict: asked('Hi') })
    expect(parts[1] && textsOf(parts[1])).toEqual([opened(['user', 'Hi'], ['assistant', 'cut'])])
  })

  it('encodes an edited turn anew, so that ids say what messages say', async () => {
    const { forward } = wrapper(() => [...tokenizer.encode('<answer>5</answer>').ids, stop])
    const thinking = new AddThinkingPrompt({ cond: () => true, prompt: 'W' })
    const env = new TransformedEnv(new ChatEnv(), [
      thinking,
      new IncrementalTokenizer({ tokenizer, template }),
    ])
    const { parts } = await rollout(env, forward, { maxSteps: 1, dict: asked('Hi') })
    const next = parts[0]?.dict('next')
    expect(next && textsOf(next)).toEqual([opened(['user', 'Hi'], ['assistant', 'W'])])
  })

  it('takes keys of your own, and refuses other environments', async () => {
    const tokensKey = ['my_tokens', 'all']
    const env = new TransformedEnv(new ChatEnv(), [
      new IncrementalTokenizer({ tokenizer, template, tokensKey }),
    ])
    expect(env.observationSpec.has(tokensKey)).toBe(true)
    expect(textsOf(await env.reset(asked('Hi')), tokensKey)).toEqual([opened(['user', 'Hi'])])
    const around = (options: object) => () =>
      new TransformedEnv(new ChatEnv({ tokenizer, ...options }), [new IncrementalTokenizer({ tokenizer })])
    expect(around({ batchSize: [1, 1] })).toThrow(failing('INCOMPATIBLE', /one dimension/))
    expect(around({ inputMode: 'tokens' })).toThrow(failing('INCOMPATIBLE', /tokens/))
    expect(() => new IncrementalTokenizer({ tokenizer, chatTemplate: '' } as never)).toThrow(
      failing('UNKNOWN_NAME'),
    )
  })
})
