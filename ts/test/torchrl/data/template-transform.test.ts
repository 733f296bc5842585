import { describe, expect, it } from 'vitest'
import { TensorDict } from '../../../src/tensor/index.js'
import { ChatHistory, History, TemplateTransform } from '../../../src/torchrl/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })
const said = (...contents: string[]) =>
  History.fromChats(contents.map((content, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', content })))
const dictOf = (prompt: History) =>
  TensorDict.from(
    { history: new ChatHistory({ prompt }).toTensorDict() },
    { batchSize: prompt.shape.slice(0, -1) },
  )

describe('TemplateTransform', () => {
  it('writes conversations as text and reads them again, batched or not', () => {
    const options = { templateName: 'chatml_format', addGenerationPrompt: false } as const
    const transform = new TemplateTransform({ ...options, inKeyInv: ['text', 'prompt'] })
    for (const history of [said('a', 'b'), History.stack([said('a'), said('b', 'c')])]) {
      const written = transform.forward(dictOf(history))
      expect(written.value(['text', 'prompt'])).toEqual(history.applyChatTemplate(options))
      expect(transform.inverse(written).value(['history', 'full'])).toEqual(history.toJSON())
      expect(written.has(['history', 'prompt'])).toBe(true)
    }
  })

  it('takes keys of your own and opens the turn of the assistant', () => {
    const template = '{{ messages[0].content }}{{ add_generation_prompt }}{{ k }}'
    const transform = new TemplateTransform({
      template,
      templateKwargs: { k: 1 },
      inKey: ['history', 'prompt'],
      outKey: 'said',
    })
    expect(transform.forward(dictOf(said('a'))).value('said')).toBe('aTrue1')
  })

  it('says what is missing', () => {
    const transform = new TemplateTransform({ templateName: 'chatml_format' })
    expect(() => transform.forward(TensorDict.from({}))).toThrow(failing('UNKNOWN_NAME'))
    expect(() => transform.inverse(dictOf(said('a')))).toThrow(failing('UNKNOWN_NAME'))
    expect(() => new TemplateTransform({ chatTemplate: 'x' } as never)).toThrow(failing('UNKNOWN_NAME'))
    expect(() => new TemplateTransform({}).forward(dictOf(said('a')))).toThrow(failing('INCOMPATIBLE'))
  })
})
