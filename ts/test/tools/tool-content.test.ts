import { describe, expect, it } from 'vitest'
import { ToolContent, ToolRunner } from '../../src/tools/index.js'
import { toolMessage } from '../../src/tools/tool-message.js'
import { failing } from '../torchrl/envs/chats.js'

const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }

async function answered(value: unknown, maxResultChars = 1_000) {
  const runner = new ToolRunner({ tools: [{ name: 'look', run: () => value }], maxResultChars })
  const [result] = await runner.run([{ tool: 'look', args: {}, tag: null }], { messages: [] })
  return toolMessage(result ?? expect.unreachable(), 'tool')
}

describe('ToolContent', () => {
  it('becomes parts of the message, in well-formed text', async () => {
    const { content } = await answered(new ToolContent([{ type: 'text', text: 'a\ud800' }, image]))
    const head = { type: 'text', text: 'Tool look executed successfully:' }
    expect(content).toEqual([head, { type: 'text', text: 'a\ufffd' }, image])
    expect((await answered([image])).content).toMatch(/^Tool look executed successfully:\n\[\{"type"/)
  })

  it('has the limits of a result', async () => {
    expect((await answered(new ToolContent([image]), 20)).content).toMatch(/must have 20 characters at most/)
    const cyclic: Record<string, unknown> = { type: 'x' }
    cyclic.self = cyclic
    expect((await answered(new ToolContent([cyclic as never]))).content).toMatch(/must be JSON/)
  })

  it('refuses what is no list of parts', () => {
    for (const parts of [undefined, 'a', [1], [null], [{ text: 'a' }]])
      expect(() => new ToolContent(parts as never)).toThrow(failing('MALFORMED', /parts/))
  })
})
