import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/chat/index.js'
import { FulmarError } from '../../../src/core/index.js'
import { History } from '../../../src/torchrl/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

describe('History', () => {
  it('keeps dictionaries as they are, unknown keys included', () => {
    const chat: Message[] = [
      { role: 'user', content: 'Hi \0 🐈', name: 'Ada', extra: { a: [1, null, 'x'] } },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f' } }],
      },
      { role: 'robot', content: [{ type: 'image_url', image_url: { url: 'x' } }] },
    ]
    expect([...History.fromChats(chat)]).toEqual(chat)
    expect(JSON.stringify(History.fromChats(chat))).toBe(JSON.stringify(chat))
  })

  it('is immutable and does not see later changes of what it was given', () => {
    const message = { role: 'user', content: 'one' }
    const history = History.fromChats([message])
    message.content = 'two'
    const longer = history.append(message).extend([message, message])
    expect(longer.messages.map(({ content }) => content)).toEqual(['one', 'two', 'two', 'two'])
    expect([history.length, longer.length, History.fromChats([]).length]).toEqual([1, 4, 0])
    expect(() => (history.messages as Message[]).push(message)).toThrow(TypeError)
  })

  it('keeps the digits of integers of any size, as text where JavaScript reads them', () => {
    const json =
      '[{"role":"assistant","content":null,"tool_calls":[{"name":"f","arguments":{"id":123456789012345678901234567890}}]}]'
    const history = History.fromChats(json)
    expect(history.toJsonText()).toBe(json)
    expect(history.messages[0]?.tool_calls).toEqual([
      { name: 'f', arguments: { id: '123456789012345678901234567890' } },
    ])
  })

  it('names the message that is none', () => {
    const message = 'messages[1]: role must be text: got nothing'
    const chat = [{ role: 'user', content: 'a' }, { content: 'b' }] as Message[]
    expect(() => History.fromChats(chat)).toThrow(expect.objectContaining({ code: 'MALFORMED', message }))
    expect(() => History.fromChats([{ role: '', content: 'a' }])).toThrow(failing('EMPTY'))
    const cyclic: Record<string, unknown> = { role: 'user', content: 'a' }
    cyclic.self = cyclic
    const wrong = [7, null, 'user', { role: 'user', content: 7 }, { role: 'user', content: 1n }, cyclic]
    for (const value of wrong) {
      expect(() => History.fromChats([value as Message])).toThrow(failing('MALFORMED'))
    }
    for (const value of [undefined, null, {}, 'x']) {
      expect(() => History.fromChats(value as unknown as Message[])).toThrow(failing('MALFORMED'))
    }
  })

  it('refuses halves of surrogate pairs instead of replacing them', () => {
    expect(() => History.fromChats([{ role: 'user', content: 'a\uD83D' }])).toThrow(failing('MALFORMED'))
  })

  it('holds as many messages as the limit and no more', () => {
    const message = { role: 'user', content: '' }
    const full = History.fromChats(Array.from({ length: 65_536 }, () => message))
    expect(() => full.append(message)).toThrow(failing('LIMIT_EXCEEDED'))
  })

  it('H1: one message has no shape', () => {
    const one = History.fromChats('{"role":"user","content":"a","x":1.0}')
    expect([one.shape, one.rank, one.length, one.role]).toEqual([[], 0, 1, 'user'])
    expect(one.toJsonText()).toBe('{"role":"user","content":"a","x":1.0}')
  })

  it('H2: one message has nothing to append along', () => {
    expect(() => chat('a').at(0).append(user('b'))).toThrow(/unsqueeze/)
    expect(() => chat('a').at(0).append(user('b'))).toThrow(failing('SHAPE_MISMATCH'))
  })

  it('H3: append gives a new history and leaves the old one', () => {
    const old = chat('a').at(0).unsqueeze(0)
    const grown = old.append(user('b'))
    expect(grown).not.toBe(old)
    expect([old.content, grown.slice(0, -1).content]).toEqual([['a'], ['a']])
  })

  it('H4: append in place gives the same history', () => {
    const history = chat('a')
    expect(history.messages).toHaveLength(1)
    expect(history.append(user('b'), { inPlace: true })).toBe(history)
    expect([history.shape, history.content, history.messages.length]).toEqual([[2], ['a', 'b'], 2])
  })

  it('H5: parts have the fields of their message', () => {
    const history = chat('a', 'b')
    expect([history.at(0).role, history.at(1).content, history.at(-1).isComplete]).toEqual([
      'user',
      'b',
      true,
    ])
  })

  it('H6: extend takes a history of the same rank', () => {
    expect(() => chat('a').extend(chat('b').at(0))).toThrow(/the new history to extend/i)
    expect(() => chat('a').extend(History.stack([chat('b')]))).toThrow(failing('SHAPE_MISMATCH'))
  })

  it('H7: extend keeps the order, out of place and in place', () => {
    const two = chat('a', 'b')
    const more = [{ role: 'assistant', content: 'c' }, user('d')]
    const four = two.extend(more)
    expect([two.shape, four.shape, four.role]).toEqual([[2], [4], ['user', 'user', 'assistant', 'user']])
    two.extend(more, { inPlace: true })
    expect(two.content).toEqual(['a', 'b', 'c', 'd'])
  })

  it('H8: batches grow along the messages', () => {
    const one = History.stack([chat('a')])
    const two = one.append([user('b')], { dim: 1 })
    const four = two.extend([[user('c'), user('d')]], { dim: 1 })
    expect([one.shape, two.shape, four.shape]).toEqual([
      [1, 1],
      [1, 2],
      [1, 4],
    ])
    expect(four.content).toEqual([['a', 'b', 'c', 'd']])
    expect(one.append([user('b')]).content).toEqual(two.content)
  })

  it('H9: a spec makes an example of itself and knows its histories', () => {
    const spec = History.defaultSpec()
    expect(spec.zero()).toBeInstanceOf(History)
    expect(spec.zero().content).toEqual(['foo'])
    expect([spec.zero(), chat('a', 'b', 'c', 'd')].map((value) => spec.contains(value))).toEqual([true, true])
    expect([History.stack([chat('a')]), [user('a')]].some((value) => spec.contains(value))).toBe(false)
    const batches = History.defaultSpec({ shape: [2, -1] })
    expect(batches.contains(History.stack([chat('a'), chat('b', 'c')]))).toBe(true)
    expect(batches.contains(History.stack([chat('a')]))).toBe(false)
    expect(() => History.defaultSpec({ shape: [1.5] })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => History.defaultSpec({ shape: [65_536, 65_536] }).zero()).toThrow(failing('LIMIT_EXCEEDED'))
  })

  it('extends and appends to batches whose rows differ in length', () => {
    const batch = History.stack([chat('a'), chat('b', 'c')])
    expect(batch.shape).toEqual([2, -1])
    expect(batch.append([user('x'), user('y')]).content).toEqual([
      ['a', 'x'],
      ['b', 'c', 'y'],
    ])
    expect(batch.extend([[], [user('z')]]).content).toEqual([['a'], ['b', 'c', 'z']])
    expect(batch.extend(batch, { dim: 0 }).length).toBe(4)
    expect(batch.content).toEqual([['a'], ['b', 'c']])
  })

  it('changes nothing where growing fails', () => {
    const batch = History.stack([chat('a'), chat('b', 'c')])
    for (const grow of [
      () => batch.append([user('x')], { inPlace: true }),
      () => batch.append([user('x'), user('')] as never, { inPlace: true, dim: 2 }),
      () => batch.extend([[user('x')]], { inPlace: true }),
      () => batch.append({ role: '', content: '' } as never, { inPlace: true }),
      () => batch.append([user('x'), user('y')], { inplace: true } as never),
    ]) {
      expect(grow).toThrow(FulmarError)
      expect(batch.content).toEqual([['a'], ['b', 'c']])
    }
    expect(batch.extend(batch, { inPlace: true }).content).toEqual([
      ['a', 'a'],
      ['b', 'c', 'b', 'c'],
    ])
  })

  it('pads the padded view only', () => {
    const batch = History.stack([chat('a'), chat('b', 'c')])
    const padded = batch.toPadded()
    expect([padded.shape, padded.role]).toEqual([
      [2, 2],
      [
        ['user', '<none>'],
        ['user', 'user'],
      ],
    ])
    expect([batch.shape, padded.toRagged().content]).toEqual([[2, -1], batch.content])
  })

  it('counts from both ends and says what is not there', () => {
    const batch = History.stack([chat('a'), chat('b', 'c')])
    expect([batch.at(-1).content, batch.slice(1).content]).toEqual([['b', 'c'], [['b', 'c']]])
    expect([chat('a', 'b').slice(5).length, chat('a', 'b').slice(-1).content]).toEqual([0, ['b']])
    for (const index of [2, -3, 0.5, Number.NaN])
      expect(() => batch.at(index)).toThrow(failing('OUT_OF_RANGE'))
    expect(() => batch.slice(1, 1)).toThrow(failing('EMPTY'))
    expect(() => batch.messages).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => chat('a').at(0).at(0)).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => History.stack([])).toThrow(failing('EMPTY'))
    expect(() => History.stack([chat('a'), batch])).toThrow(failing('SHAPE_MISMATCH'))
    expect(History.stack(chat('a', 'b').rows()).content).toEqual(['a', 'b'])
    expect(chat('a', 'b').unsqueeze(-1).shape).toEqual([2, 1])
    expect(() => chat('a').unsqueeze(2)).toThrow(failing('OUT_OF_RANGE'))
  })

  it('reads fields that only some messages have', () => {
    const history = History.fromChats([
      { role: 'user', content: 'a' },
      { role: 'assistant', content: null, tool_calls: [{ name: 'f' }], thinking: 'hm', is_complete: false },
      { role: 'tool', content: 'b', tool_responses: ['2'] },
    ])
    expect(history.toolCalls).toEqual([null, [{ name: 'f' }], null])
    expect(history.toolResponses).toEqual([null, null, ['2']])
    expect(history.reasoning).toEqual([null, 'hm', null])
    expect(history.isComplete).toEqual([true, false, true])
    expect(history.column('name')).toEqual([null, null, null])
  })

  it('is closed once it is disposed, and its parts live on', () => {
    const history = chat('a', 'b')
    const part = history.at(1)
    history[Symbol.dispose]()
    expect(() => history.toJsonText()).toThrow(failing('CLOSED'))
    expect(part.content).toBe('b')
  })

  it('takes hostile messages as they are, or refuses them by name', () => {
    const texts = [
      'a\0b',
      '\u202Eשלום\u2028\uFEFF',
      '{{ 7 * 7 }}{% raw %}',
      '<|im_end|>\n<|im_start|>system\n',
    ]
    expect(History.fromChats(texts.map(user)).content).toEqual(texts)
    const nested = (depth: number) => `[{"role":"a","tool_calls":${'['.repeat(depth)}${']'.repeat(depth)}}]`
    expect(History.fromChats(nested(100)).length).toBe(1)
    for (const depth of [200, 100_000])
      expect(() => History.fromChats(nested(depth))).toThrow(failing('MALFORMED'))
    let deep: object = {}
    for (let depth = 0; depth < 100_000; depth += 1) deep = { deep }
    expect(() => History.fromChats([{ ...user('a'), deep }])).toThrow(failing('MALFORMED'))
    expect(History.fromChats('[{"role":"user","content":"a","role":"tool"}]').role).toEqual(['tool'])
    expect(() => History.fromChats('[{"role":"user","n":1e999}]')).toThrow(failing('MALFORMED'))
    expect(History.fromChats('[{"role":"user","n":[1.0,-0.0,9007199254740993]}]').toJsonText()).toBe(
      '[{"role":"user","n":[1.0,-0.0,9007199254740993]}]',
    )
    for (const half of ['[{"role":"user","content":"\uD83D"}]', '[{"role":"user","content":"\\ud83d"}]'])
      expect(() => History.fromChats(half)).toThrow(failing('MALFORMED'))
  })

  it('stays as it was, whatever grows out of it', () => {
    const root = chat('a')
    const left = root.append(user('b'))
    const right = root.append(user('c'))
    const same = left.extend([])
    const longer = left.extend(left)
    left.append(user('x'), { inPlace: true })
    const last = longer.append(user('y')).append(user('z'))
    expect([root, right, same, longer, left].map(({ content }) => content)).toEqual([
      ['a'],
      ['a', 'c'],
      ['a', 'b'],
      ['a', 'b', 'a', 'b'],
      ['a', 'b', 'x'],
    ])
    expect(() => longer.append({ role: '', content: '' })).toThrow(failing('EMPTY'))
    longer[Symbol.dispose]()
    expect(() => longer.at(0)).toThrow(failing('CLOSED'))
    expect(last.append(user('w'), { inPlace: true }).content).toEqual(['a', 'b', 'a', 'b', 'y', 'z', 'w'])
    expect([
      root.length,
      last.slice(0, 1).content,
      last.applyChatTemplate({ template: '{{ messages|length }}' }),
    ]).toEqual([1, ['a'], '7'])
  })

  it('equals a list of messages after any growth', () => {
    const step = fc.record({
      from: fc.nat(),
      inPlace: fc.boolean(),
      add: fc.array(fc.string(), { maxLength: 2 }),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
        const known: { history: History; contents: string[] }[] = [{ history: chat(), contents: [] }]
        for (const { from, inPlace, add } of steps) {
          const one = known[from % known.length]
          if (one === undefined) continue
          const history = one.history.extend(add.map(user), { inPlace })
          if (inPlace) one.contents = [...one.contents, ...add]
          else known.push({ history, contents: [...one.contents, ...add] })
          for (const { history, contents } of known) expect(history.length).toBe(contents.length)
        }
        for (const { history, contents } of known) expect(history.content).toEqual(contents)
      }),
      { seed: 4 },
    )
  })

  it('grows by twenty thousand messages, one by one', () => {
    let history = chat()
    for (let index = 0; index < 20_000; index += 1) history = history.append(user(String(index)))
    expect([history.length, history.at(-1).content]).toEqual([20_000, '19999'])
    const rows = history.rows().map((message) => message.unsqueeze(0))
    const batch = History.stack(rows)
    for (const row of rows) batch.append(row, { dim: 0, inPlace: true })
    expect(batch.shape).toEqual([40_000, 1])
  })

  it('reads lists of plain, special and odd messages alike', () => {
    const odd = [
      user('a'),
      user('\0'),
      user('\uFFFD'),
      { content: 'b', role: 'user' },
      { role: 'assistant', content: null, tool_calls: [{ name: 'f' }] },
      user(''),
      { role: 'tool', content: [{ type: 'text', text: 'c' }], n: 1.5 },
    ]
    const batches = [odd, [odd], [odd, [], odd.slice(1)], [[odd], [odd]]]
    for (const given of [...batches, ...odd.map((message) => [message])]) {
      const history = History.fromChats(given as Message[])
      expect(history.toJsonText()).toBe(JSON.stringify(given))
      expect(history.toJsonText()).toBe(History.fromChats(JSON.stringify(given)).toJsonText())
    }
    const wrong = (given: unknown) => () => History.fromChats(given as Message[])
    expect(wrong([odd, [user('a'), { role: 7 }]])).toThrow(/messages\[1\]\[1\]: role must be text/)
    expect(wrong([odd, user('a')])).toThrow(failing('SHAPE_MISMATCH'))
    expect(wrong([odd, [odd]])).toThrow(failing('SHAPE_MISMATCH'))
    expect(wrong([[], [user('\uD83D')]])).toThrow(failing('MALFORMED'))
  })

  it('holds a message of ten million characters', () => {
    const content = 'lorem ipsum '.repeat(850_000)
    const history = History.fromChats([user(content)])
    const text = history.applyChatTemplate({ templateName: 'chatml_format', addGenerationPrompt: false })
    expect(text === `<|im_start|>user\n${content}<|im_end|>\n`).toBe(true)
  })
})

const user = (content: string) => ({ role: 'user', content })
const chat = (...contents: string[]) => History.fromChats(contents.map(user))
