import { describe, expect, it } from 'vitest'
import { History, type Message } from '../../src/chat/index.js'

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
})
