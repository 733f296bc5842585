import { describe, expect, it } from 'vitest'
import { ContentBase, type ContentFields, History } from '../../../src/torchrl/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

describe('ContentBase', () => {
  it('holds the fields that are there, and no others', () => {
    const call = {
      type: 'function_call',
      function_name: 'f',
      function_args: { b: [1, null], a: '\0שלום' },
    } as const
    const piece = new ContentBase(call)
    expect({ ...piece }).toEqual(call)
    expect(JSON.stringify(piece)).toBe(JSON.stringify(call))
    expect(() => Object.assign(piece, { text: 'x' })).toThrow(TypeError)
    for (const type of ['text', 'image', 'audio', 'video', 'file'] as const)
      expect(new ContentBase({ type, name: 'a.bin', size: 3, mime_type: 'x/y', data: 'AA==' }).type).toBe(
        type,
      )
  })

  it('leaves out what is null', () => {
    const fields = { type: 'text', text: 'a', url: null } as unknown as ContentFields
    expect({ ...new ContentBase(fields) }).toEqual({ type: 'text', text: 'a' })
  })

  it('names what is wrong', () => {
    const cases: [unknown, string][] = [
      [{ text: 'a' }, 'MALFORMED'],
      [{ type: 'smell' }, 'UNKNOWN_NAME'],
      [{ type: 'text', txt: 'a' }, 'UNKNOWN_NAME'],
      [{ type: 'file', size: -1 }, 'MALFORMED'],
      [{ type: 'text', text: '\uD83D' }, 'MALFORMED'],
      [{ type: 'function_call', function_args: 'x' }, 'MALFORMED'],
      [undefined, 'MALFORMED'],
    ]
    for (const [fields, code] of cases)
      expect(() => new ContentBase(fields as ContentFields), JSON.stringify(fields)).toThrow(failing(code))
  })

  it('is a piece of a message, as a plain dictionary is', () => {
    const piece = new ContentBase({ type: 'text', text: 'a' })
    const history = History.fromChats([
      { role: 'user', content: [piece, { type: 'image_url', image_url: 'x' }] },
    ])
    expect(history.content).toEqual([
      [
        { type: 'text', text: 'a' },
        { type: 'image_url', image_url: 'x' },
      ],
    ])
    const broken = { role: 'user', content: [{ text: 'a' }] } as never
    expect(() => History.fromChats([broken])).toThrow(failing('MALFORMED'))
  })
})
