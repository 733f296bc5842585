import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { ChatEnv, specEnvOf } from '../../../src/torchrl/index.js'
import { asked, assistant, failing, template, user } from './chats.js'

const tokenizer = new CharTokenizer()

describe('ChatEnv', () => {
  it('begins with the system prompt and the query, whatever else stands beside it', () => {
    const env = new ChatEnv({ systemPrompt: 'S', batchSize: 2, userRole: 'human' })
    const dict = asked('a', 'b').set('answer', new NonTensorData(7))
    const first = env.reset(dict)
    const said = (content: string) => [
      { role: 'system', content: 'S' },
      { role: 'human', content },
    ]
    expect(first.value(['history', 'prompt'])).toEqual([said('a'), said('b')])
    expect(first.value('answer')).toBe(7)
    expect(first.has(['history', 'full'])).toBe(false)
    expect([first.tensor('done').shape, [...first.tensor('terminated').data]]).toEqual([
      [2, 1],
      [0, 0],
    ])
    expect(dict.has('done')).toBe(false)
  })

  it('asks one query of every element, of a batch of any rank', () => {
    const env = new ChatEnv({ batchSize: [2, 2] })
    const first = env.reset(TensorDict.from({ query: new NonTensorData('q') }))
    expect(first.value(['history', 'prompt'])).toEqual([
      [[user('q')], [user('q')]],
      [[user('q')], [user('q')]],
    ])
    const full = [1, 2].map(() => [1, 2].map((n) => [user('q'), assistant(`${n}`)]))
    first.set(['history', 'full'], new NonTensorStack(full))
    expect(env.step(first).value(['history', 'prompt'])).toEqual(full)
    const text = new ChatEnv({ batchSize: [2, 2], inputMode: 'text', tokenizer, template })
    const shown = text.reset(
      TensorDict.from(
        {
          query: new NonTensorStack([
            ['a', 'b'],
            ['c', 'd'],
          ]),
        },
        { batchSize: [2, 2] },
      ),
    )
    const prompts = shown.value(['text', 'prompt']) as string[][]
    expect(prompts.map((row) => row.map((prompt) => prompt.slice(17, 18)))).toEqual([
      ['a', 'b'],
      ['c', 'd'],
    ])
  })

  it('shows the text that a template writes, and goes on with the text of the action as it is', () => {
    const env = new ChatEnv({ inputMode: 'text', tokenizer, template })
    const first = env.reset(asked('Hi'))
    const prompt = '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    expect(first.value(['text', 'prompt'])).toEqual([prompt])
    const full = `${prompt}Yo!<|im_end|>`
    const next = env.step(first.set(['text', 'full'], new NonTensorStack([full])))
    expect(next.value(['text', 'prompt'])).toEqual([full])
    const joined = env.step(
      asked('Hi')
        .set(['text', 'prompt'], new NonTensorStack(['a']))
        .set(['text', 'response'], new NonTensorStack(['b'])),
    )
    expect(joined.value(['text', 'prompt'])).toEqual(['ab'])
  })

  it('goes on with the very ids of the action', () => {
    const env = new ChatEnv({ inputMode: 'tokens', tokenizer, template, batchSize: 2 })
    const first = env.reset(asked('Hi', 'Hello'))
    const prompt = first.ragged(['tokens', 'prompt'])
    expect(tokenizer.decode(Uint32Array.from(prompt.row(1).data, Number))).toContain('Hello')
    const response = Ragged.fromRows([
      Tensor.from(BigInt64Array.of(1n)),
      Tensor.from(BigInt64Array.of(2n, 3n)),
    ])
    const next = env.step(first.set(['tokens', 'response'], response))
    const row = next.ragged(['tokens', 'prompt']).row(1)
    expect([...row.data]).toEqual([...prompt.row(1).data, 2n, 3n])
    const again = env.step(first.set(['tokens', 'full'], response))
    expect(again.ragged(['tokens', 'prompt']).equals(response)).toBe(true)
  })

  it('does what its specs say', async () => {
    const dict = asked('a', 'b')
    await checkEnvSpecs(specEnvOf(new ChatEnv({ batchSize: 2 }), { dict }))
    const text = new ChatEnv({ batchSize: 2, inputMode: 'text', tokenizer, template })
    await checkEnvSpecs(specEnvOf(text, { dict }))
  })

  it('truncates a conversation from its limit on, and no other', () => {
    const lengthOf = (query: string) => `<|im_start|>user\n${query}<|im_end|>\n<|im_start|>assistant\n`
    const limit = tokenizer.encode(lengthOf('abc'), { addedTokens: true }).ids.length
    for (const inputMode of ['history', 'text', 'tokens'] as const) {
      const env = new ChatEnv({ inputMode, tokenizer, template, batchSize: 2, maxPromptTokens: limit })
      const first = env.reset(asked('ab', 'abc'))
      expect([...first.tensor('truncated').data]).toEqual([0, 1])
      expect([...first.tensor('done').data]).toEqual([0, 1])
      expect([...first.tensor('terminated').data]).toEqual([0, 0])
    }
  })

  it('refuses what is no chat', () => {
    expect(() => new ChatEnv({ inputMode: 'nope' as never })).toThrow(failing('UNKNOWN_NAME', /inputMode/))
    expect(() => new ChatEnv({ batchSize: [] })).toThrow(failing('SHAPE_MISMATCH', /at least one dimension/))
    expect(() => new ChatEnv({ batchSize: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new ChatEnv({ batchSize: [2, 2], inputMode: 'tokens', tokenizer })).toThrow(
      failing('SHAPE_MISMATCH'),
    )
    expect(() => new ChatEnv({ inputMode: 'tokens' })).toThrow(failing('INCOMPATIBLE', /tokenizer/))
    expect(() => new ChatEnv({ maxPromptTokens: 8 })).toThrow(failing('INCOMPATIBLE', /tokenizer/))
    expect(() => new ChatEnv({ maxPromptTokens: 0, tokenizer })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new ChatEnv({ applyTemplate: true } as never)).toThrow(failing('UNKNOWN_NAME'))
    const env = new ChatEnv()
    expect(() => env.reset()).toThrow(failing('EMPTY'))
    expect(() => env.reset(TensorDict.from({}, { batchSize: [1] }))).toThrow(failing('UNKNOWN_NAME', /query/))
    expect(() => env.reset(TensorDict.from({ query: new NonTensorData(7) }, { batchSize: [1] }))).toThrow(
      failing('MALFORMED'),
    )
    expect(() => env.reset(TensorDict.from({}, { batchSize: [1, 1] }))).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => env.step(env.reset(asked('a')))).toThrow(failing('UNKNOWN_NAME', /history.full/))
    const flat = env.reset(asked('a')).set(['history', 'full'], new NonTensorData([user('a')]))
    expect(() => env.step(flat)).toThrow(failing('SHAPE_MISMATCH'))
    const wrong = env.reset(asked('a')).set(['history', 'full'], new NonTensorStack([[{ content: 'a' }]]))
    expect(() => env.step(wrong)).toThrow(failing('MALFORMED'))
    const tokens = new ChatEnv({ inputMode: 'tokens', tokenizer, template })
    const floats = tokens.reset(asked('a')).set(['tokens', 'full'], Ragged.fromRows([Tensor.from([1])]))
    expect(() => tokens.step(floats)).toThrow(failing('INCOMPATIBLE', /i64/))
  })
})
