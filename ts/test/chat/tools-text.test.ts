import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import { createRenderer, type ToolSpec } from '../../src/chat/index.js'
import { toolsText } from '../../src/chat/tools-text.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { alphabet, specialTokens } from './families.js'

/** A list that may be changed. */
interface Tool {
  name?: unknown
  [key: string]: unknown
}

/** Calls of JSON.stringify during `body`. */
function numStringified(body: () => void): number {
  const spy = vi.spyOn(JSON, 'stringify')
  try {
    body()
    return spy.mock.calls.length
  } finally {
    spy.mockRestore()
  }
}

describe('toolsText', () => {
  it('makes a list text once', () => {
    const tools = [{ name: 'add', parameters: { type: 'object', required: ['a'], x: [1, null, true] } }]
    const text = JSON.stringify(tools)
    expect(numStringified(() => expect(toolsText(tools)).toBe(text))).toBe(1)
    expect(numStringified(() => expect(toolsText(tools)).toBe(text))).toBe(0)
    expect(numStringified(() => expect(toolsText([...tools])).toBe(text))).toBe(1)
    expect(toolsText('[{ }]')).toBe('[{ }]')
  })

  it('makes a changed list text again, wherever it was changed', () => {
    const changes: readonly ((tool: Tool, tools: Tool[]) => void)[] = [
      (tool) => {
        tool.name = 'subtract'
      },
      (tool) => {
        tool.more = undefined
      },
      (tool) => {
        tool.more = { deep: [1] }
      },
      (tool) => Object.assign(Object(tool.more), { deep: [1, 2] }),
      (tool) => Object.assign(Object(tool.more), { deep: [12] }),
      (tool) => Object.assign(Object(tool.more), { deep: ['12'] }),
      (tool) => Object.assign(Object(tool.more), { deep: { 0: '12', length: 1 } }),
      (tool) => {
        delete tool.name
      },
      (tool) => {
        tool.name = 'last now'
      },
      (tool) => {
        tool.name = Number.NaN
      },
      (tool) => {
        tool.name = null
      },
      (_, tools) => void tools.push({ name: 'more' }),
      (_, tools) => void tools.reverse(),
      (_, tools) => {
        tools.length = 0
      },
      (_, tools) => {
        tools.length = 2
      },
      (tool, tools) => void tools.splice(0, 2, tool),
      (tool) => {
        tool.toJSON = () => 'mine'
      },
      (tool) => {
        tool.toJSON = () => 'another'
      },
      (_, tools) => Object.assign(tools, { toJSON: () => [7] }),
    ]
    const tool: Tool = { name: 'add' }
    const tools = [tool]
    for (const change of changes) {
      for (let times = 0; times < 2; times++) expect(toolsText(tools)).toBe(JSON.stringify(tools))
      change(tool, tools)
      for (let times = 0; times < 2; times++) expect(toolsText(tools)).toBe(JSON.stringify(tools))
    }
  })

  it('sees what a date, a getter or a class shows now', () => {
    const date = new Date(0)
    let count = 0
    class Counter {
      readonly kind = 'counter'
      toJSON(): number {
        return count
      }
    }
    const tools = [
      { date },
      { counter: new Counter() },
      {
        get count() {
          return count
        },
      },
      Object.create({ inherited: 1 }, { own: { value: count, enumerable: true } }),
      new Map([['a', 1]]),
      Object('boxed'),
      () => 1,
    ]
    const lists = [tools, ...tools.map((tool) => [tool])]
    for (; count < 3; count++) {
      date.setTime(count)
      for (const given of lists)
        for (let times = 0; times < 2; times++) expect(toolsText(given)).toBe(JSON.stringify(given))
    }
  })

  it('writes any list after any change as JSON writes it', () => {
    const values = fc.array(fc.dictionary(fc.constantFrom('a', 'b', 'c', '__proto__'), fc.jsonValue()), {
      maxLength: 4,
    })
    const change = fc.record({ at: fc.nat(4), key: fc.constantFrom('a', 'b', 'd'), value: fc.jsonValue() })
    fc.assert(
      fc.property(values, fc.array(change, { maxLength: 4 }), (tools, changes) => {
        for (const { at, key, value } of changes) {
          expect(toolsText(tools)).toBe(JSON.stringify(tools))
          const tool = tools[at]
          if (tool) Object.assign(tool, { [key]: value })
          else tools.push({ [key]: value })
        }
        for (let times = 0; times < 2; times++) expect(toolsText(tools)).toBe(JSON.stringify(tools))
      }),
      { seed: 1, numRuns: 200 },
    )
  })

  it('keeps no text of lists of many values, which it still writes', () => {
    const tools = [{ name: 'add', parameters: Array.from({ length: 5000 }, (_, index) => index) }]
    for (let times = 0; times < 2; times++)
      expect(numStringified(() => expect(toolsText(tools).length).toBeGreaterThan(20_000))).toBe(1)
    let nested: unknown = 1
    for (let depth = 0; depth < 3000; depth++) nested = [nested]
    expect(toolsText([{ nested }])).toContain('[[[1]]]')
  })

  it('refuses what JSON cannot write', () => {
    const cyclic: Tool = { name: 'add' }
    cyclic.self = cyclic
    const broken = {
      get name() {
        throw new Error('mine')
      },
    }
    for (const tool of [cyclic, { name: 1n }, broken])
      expect(() => toolsText([tool])).toThrow(expect.objectContaining({ name: 'FulmarError' }))
  })

  it('lets a renderer see a list that its caller changed', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const tool = { name: 'add' }
    const tools: ToolSpec[] = [tool]
    const messages = [{ role: 'user', content: 'Hi' }]
    const call = tokenizer.encode('<tool_call>{"name": "add", "arguments": {}}</tool_call>', {
      addedTokens: true,
    })
    const seen = () => ({
      text: renderer.renderText(messages, { tools }).includes('"add"'),
      texts: renderer.renderTexts([{ messages, tools }])[0]?.includes('"add"'),
      ids: tokenizer.decode(renderer.render(messages, { tools }).ids).includes('"add"'),
      call: renderer.parse(call.ids, { tools }).toolCalls[0]?.status === 'ok',
    })
    expect(seen()).toEqual({ text: true, texts: true, ids: true, call: true })
    tool.name = 'subtract'
    expect(seen()).toEqual({ text: false, texts: false, ids: false, call: false })
    tool.name = 'add'
    expect(seen()).toEqual({ text: true, texts: true, ids: true, call: true })
  })
})
