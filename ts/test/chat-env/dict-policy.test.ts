import { describe, expect, it } from 'vitest'
import { ChatEnv, dictPolicy, rollout } from '../../src/chat-env/index.js'
import { ScriptedPolicy } from '../../src/policy/index.js'
import { NonTensorStack, TensorDict } from '../../src/tensor/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const asked = (...queries: string[]) =>
  TensorDict.from({ query: new NonTensorStack(queries) }, { batchSize: [queries.length] })
const assistant = (content: string) => ({ role: 'assistant', content })
const tokenizer = new CharTokenizer()
const template = { templateName: 'chatml_format' }

describe('dictPolicy', () => {
  const stop = tokenizer.encode('<|im_end|>', { addedTokens: true }).ids[0] ?? 0

  it('draws the same whatever the form of the prompt', async () => {
    const prompts: Uint32Array[] = []
    for (const inputMode of ['history', 'text', 'tokens'] as const) {
      const policy = new ScriptedPolicy({ reply: () => [...tokenizer.encode('Yo').ids, stop] })
      const env = new ChatEnv({ inputMode, tokenizer, template, batchSize: 2 })
      const driver = dictPolicy({
        policy,
        tokenizer,
        inputMode,
        template,
        maxTokens: 5,
        stopIds: [stop],
        seed: 3,
      })
      const steps = await rollout(env, driver, { maxSteps: 1, dict: asked('a', 'bc') })
      prompts.push(...policy.requests.map(({ promptIds }) => promptIds))
      const [step] = steps.parts
      const ids = step?.ragged(['tokens', 'response']).row(1).data ?? []
      expect(tokenizer.decode(Uint32Array.from(ids, Number))).toBe('Yo<|im_end|>')
      expect(step?.ragged(['log_probs', 'response']).row(0).data).toEqual(new Float32Array(3).fill(-0.1))
      if (inputMode === 'history')
        expect(step?.value(['history', 'response'])).toEqual([[assistant('Yo')], [assistant('Yo')]])
      if (inputMode === 'text') expect(step?.value(['text', 'response'])).toEqual(['Yo', 'Yo'])
      expect(new Set(policy.requests.map(({ seed }) => seed)).size).toBe(2)
    }
    expect(prompts[2]).toEqual(prompts[0])
    expect(prompts[4]).toEqual(prompts[0])
    expect(prompts[5]).toEqual(prompts[1])
  })

  it('says nothing to conversations that are over', async () => {
    const policy = new ScriptedPolicy({ reply: () => [stop] })
    const env = new ChatEnv({ inputMode: 'text', tokenizer, template, batchSize: 2, maxPromptTokens: 60 })
    const driver = dictPolicy({ policy, tokenizer, inputMode: 'text', maxTokens: 5, stopIds: [stop] })
    const root = await driver(env.reset(asked('a', 'b'.repeat(60))))
    expect(policy.requests.length).toBe(1)
    expect(root.value(['text', 'response'])).toEqual(['', ''])
    expect(root.ragged(['tokens', 'response']).offsets).toEqual(Uint32Array.of(0, 1, 1))
  })
})
