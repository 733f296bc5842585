import { describe, expect, it } from 'vitest'
import { Ragged, Tensor } from '../../../src/tensor/index.js'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import {
  ChatHistory,
  History,
  LogProbs,
  Masks,
  Text,
  type TextFields,
  Tokens,
} from '../../../src/torchrl/index.js'

const failing = (code: string, text = '') =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringContaining(text) })
const tokenizer = await HfTokenizer.fromFolder(
  new URL('../../../../tests/golden/tokenizer/smollm2', import.meta.url).pathname,
)
const options = { tokenizer, templateName: 'chatml_format' } as const

const said = (...contents: string[]) =>
  History.fromChats(
    contents.map((content, index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content })),
  )
const two = () => said('Hello!', 'Hi there!')
const five = () => said('a', 'b', 'c', 'd', 'e  f')
const chat = () => new ChatHistory({ prompt: said('Hello!'), full: two() })
/** Batches of every rank that the contract names. */
const batches = (): [string, number[], ChatHistory][] => {
  const pair = ChatHistory.stack([chat(), new ChatHistory({ prompt: five().slice(0, 3), full: five() })])
  return [
    ['none', [], chat()],
    ['(2,)', [2], pair],
    ['(2, 2)', [2, 2], ChatHistory.stack([pair, pair])],
  ]
}
const length = (sequence: unknown) => (sequence as Tensor).shape[0] ?? Number.NaN

describe('ChatHistory, Text and Tokens', () => {
  it('C1: conversations become texts', () => {
    const one = new ChatHistory({ full: History.stack([two()]) }).toText(options)
    expect(one.full).toHaveLength(1)
    for (const content of ['Hello!', 'Hi there!']) expect((one.full as string[])[0]).toContain(content)
    const stacked = [two(), five()].map((full) => new ChatHistory({ full: History.stack([full]) }))
    const both = ChatHistory.stack(stacked).toText(options)
    expect([both.batchSize, (both.full as string[][]).map((row) => row.length)]).toEqual([
      [2, 1],
      [1, 1],
    ])
  })

  it('C2: the text of a conversation is its prompt with the response behind it', () => {
    const text = chat().toText(options)
    expect(text.prompt).toMatch(/<\|im_start\|>assistant\n$/)
    expect(text.response).toBe('Hi there!<|im_end|>\n')
    expect(text.full).toBe(`${text.prompt}${text.response}`)
  })

  it('C3: the ids of a conversation are those of its prompt and of the response behind it', () => {
    const one = chat().toTokens(options)
    expect([one.prompt, one.padded, one.batchSize]).toEqual([expect.any(Tensor), false, []])
    expect(length(one.full)).toBe(length(one.prompt) + length(one.response))
    const both = ChatHistory.stack([chat(), chat()]).toTokens(options)
    expect([both.full, both.batchSize, both.padded]).toEqual([expect.any(Ragged), [2], false])
    expect(both.rows('full').every((row) => row.equals(one.full as Tensor))).toBe(true)
    const apart = both.rows('full').map((row, at) => {
      const parts = [both.rows('prompt')[at], both.rows('response')[at]].map((part) => [
        ...(part?.data ?? []),
      ])
      return parts.flat().join() === [...row.data].join()
    })
    expect(apart).toEqual([true, true])
  })

  it('C4: ids become texts, padded ones only when they are ragged again', () => {
    const tokens = chat().toTokens(options)
    expect(tokens.toText({ tokenizer }).full).toBe(chat().toText(options).full)
    expect(tokens.toText({ tokenizer, skipSpecialTokens: true }).response).toBe('Hi there!\n')
    const padded = ChatHistory.stack([chat(), chat()]).toTokens(options).toPadded({ side: 'left', tokenizer })
    expect(() => padded.toText({ tokenizer })).toThrow(failing('INCOMPATIBLE', 'padded tokens'))
    expect(padded.toRagged().toText({ tokenizer }).prompt).toHaveLength(2)
  })

  it('C5: ids become conversations', () => {
    const back = chat().toTokens(options).toHistory(options)
    expect([back.prompt?.content, back.response?.content, back.full?.content]).toEqual([
      ['Hello!'],
      ['Hi there!'],
      ['Hello!', 'Hi there!'],
    ])
    const both = ChatHistory.stack([chat(), chat()]).toTokens(options).toHistory(options)
    expect([both.batchSize, both.response?.content]).toEqual([[2], [['Hi there!'], ['Hi there!']]])
  })

  it('C6: texts become ids, which nothing pads on the way', () => {
    const one = new Text({ prompt: 'Hello, how are you?' }).toTokens({ tokenizer })
    expect([one.prompt, one.padded, one.response]).toEqual([expect.any(Tensor), false, undefined])
    const both = new Text({ prompt: ['Hello', 'I am fine, thanks'], response: [' you', '.'] }).toTokens({
      tokenizer,
    })
    expect([both.batchSize, both.prompt, both.response, both.full]).toEqual([
      [2],
      expect.any(Ragged),
      expect.any(Ragged),
      expect.any(Ragged),
    ])
    const padding = { tokenizer, padding: true } as never
    expect(() => new Text({ prompt: 'a' }).toTokens(padding)).toThrow(failing('UNKNOWN_NAME', 'padding'))
  })

  it('C7: texts become conversations', () => {
    const text = chat().toText(options)
    expect(text.toHistory(options).full?.role).toEqual(['user', 'assistant'])
    expect(Text.stack([text, text]).toHistory(options).full?.shape).toEqual([2, 2])
  })

  it('C8: contents survive the way to texts, to ids, and back', () => {
    for (const [, , batch] of batches()) {
      const ways = [batch.toText(options), batch.toTokens(options).toText({ tokenizer })]
      for (const text of ways) {
        const back = text.toHistory(options)
        expect(back.full?.content).toEqual(batch.full?.content)
        expect(back.prompt?.content).toEqual(batch.prompt?.content)
      }
    }
  })

  it('C9: texts survive the way to ids and back, and ids the way to texts', () => {
    const text = Text.stack([chat().toText(options), chat().toText(options)])
    const tokens = text.toTokens({ tokenizer })
    expect(tokens.toText({ tokenizer })).toEqual(text)
    const again = tokens.toText({ tokenizer }).toTokens({ tokenizer })
    for (const name of ['prompt', 'response', 'full'] as const)
      expect((again[name] as Ragged).equals(tokens[name] as Ragged)).toBe(true)
  })

  it.each(batches())('C10: a batch %s keeps its shape', (_, shape, batch) => {
    const [text, tokens] = [batch.toText(options), batch.toTokens(options)]
    const containers = [batch, text, tokens, text.toTokens({ tokenizer }), tokens.toText({ tokenizer })]
    const padded = tokens.toPadded({ side: 'right', value: 0 })
    const histories = [text.toHistory(options), tokens.toHistory(options)]
    for (const one of [...containers, ...histories, padded, padded.toRagged(), batch.toMasks(options)])
      expect(one.batchSize).toEqual(shape)
    expect((padded.full as Tensor).shape.slice(0, -1)).toEqual(shape)
  })

  it('add nothing to what is there, and refuse what does not fit together', () => {
    const full = new ChatHistory({ full: two() })
    expect([full.toText(options).prompt, full.toTokens(options).response]).toEqual([undefined, undefined])
    expect(new ChatHistory({ prompt: two().at(0) }).prompt?.shape).toEqual([1])
    const joined = new ChatHistory({ prompt: said('a'), response: two().slice(1) })
    expect(joined.full?.content).toEqual(['a', 'Hi there!'])
    const other = new ChatHistory({ prompt: said('x'), full: two() })
    expect(() => other.toText(options)).toThrow(failing('INCOMPATIBLE', 'row 0'))
    expect(() => other.toTokens(options)).toThrow(failing('INCOMPATIBLE', 'row 0'))
    expect(() => new ChatHistory({ prompt: said('x'), full: History.stack([two()]) })).toThrow(
      failing('SHAPE_MISMATCH'),
    )
    const uneven = History.stack([History.stack([two()]), History.stack([two(), two()])])
    expect(() => new ChatHistory({ full: uneven })).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => ChatHistory.stack([chat(), full])).toThrow(failing('INCOMPATIBLE'))
    expect(() => ChatHistory.stack([])).toThrow(failing('EMPTY'))
    expect(() => new ChatHistory({ fulll: two() } as never)).toThrow(failing('UNKNOWN_NAME'))
    const wrong: [TextFields, string][] = [
      [{ prompt: ['a'], full: 'ab' }, 'SHAPE_MISMATCH'],
      [{ prompt: [['a'], ['b', 'c']] }, 'SHAPE_MISMATCH'],
      [{ prompt: 'a', response: 'b', full: 'ac' }, 'INCOMPATIBLE'],
      [{ prompt: [] }, 'MALFORMED'],
      [{ prompt: 7 as never }, 'MALFORMED'],
    ]
    for (const [fields, code] of wrong)
      expect(() => new Text(fields), JSON.stringify(fields)).toThrow(failing(code))
    expect(() => new Text({ full: 'a\uD83D' }).toTokens({ tokenizer })).toThrow(failing('UNKNOWN_TEXT'))
  })

  it('give their elements', () => {
    const [, [, , pair] = [], [, , square] = []] = batches()
    expect(square?.at(-1).at(0).full?.content).toEqual(pair?.at(0).full?.content)
    expect(square?.toText(options).at(1).at(1).full).toBe(pair?.at(1).toText(options).full)
    expect(square?.toTokens(options).at(0).batchSize).toEqual([2])
    const row = (square as ChatHistory)
      .toTokens(options)
      .toPadded({ side: 'left', value: 0 })
      .at(1)
      .at(0)
      .toRagged()
    expect((row.full as Tensor).equals(chat().toTokens(options).full as Tensor)).toBe(true)
    for (const one of [chat(), chat().toText(options), chat().toTokens(options)])
      expect(() => one.at(0)).toThrow(failing('OUT_OF_RANGE'))
    for (const index of [2, -3, 0.5])
      expect(() => pair?.toTokens(options).at(index)).toThrow(failing('OUT_OF_RANGE'))
  })

  it('describe themselves', () => {
    const containers = [ChatHistory, Text, Tokens, LogProbs, Masks] as const
    for (const container of containers) {
      for (const shape of [[], [3], [2, 2], [-1]]) {
        const spec = container.defaultSpec({ shape })
        expect(spec.zero().batchSize).toEqual(shape.map((length) => (length === -1 ? 1 : length)))
        expect(spec.contains(spec.zero())).toBe(true)
        expect(spec.contains(container.defaultSpec({ shape: [9, 9] }).zero())).toBe(false)
        expect(spec.contains(7)).toBe(false)
      }
    }
    const spec = Text.defaultSpec({ shape: [], keys: ['full'] })
    expect([spec.zero().full, spec.zero().prompt]).toEqual(['foo', undefined])
    expect([spec.contains(new Text({ full: 'a' })), spec.contains(new Text({ prompt: 'a' }))]).toEqual([
      true,
      false,
    ])
  })

  it('are entries of dictionaries, by the names of TorchRL', () => {
    const batch = ChatHistory.stack([chat(), chat()])
    const [history, text, tokens] = [batch, batch.toText(options), batch.toTokens(options)]
    expect(history.toTensorDict().value('prompt')).toEqual([said('Hello!').toJSON(), said('Hello!').toJSON()])
    expect(text.toTensorDict().index(1).value('response')).toBe('Hi there!<|im_end|>\n')
    expect(tokens.toTensorDict().index(0).tensor('full').dtype).toBe('i64')
    expect(batch.toMasks(options).toTensorDict().keys()).toEqual(['all_attention_mask', 'all_assistant_mask'])
    expect(chat().toTensorDict().value('full')).toEqual(two().toJSON())
  })

  it('hold nothing where nothing is given', () => {
    for (const empty of [new Text(), new ChatHistory()])
      expect([empty.batchSize, empty.toTensorDict().keys()]).toEqual([[], []])
    expect(() => new ChatHistory().toMasks(options)).toThrow(failing('EMPTY'))
  })
})
