import { describe, expect, it } from 'vitest'
import { ExecuteToolsInOrder } from '../../../src/torchrl/index.js'
import { add, boom, echo } from '../../tools/tools.js'
import { failing } from './chats.js'
import { answersTo } from './tools.js'

const tools = [add, boom, echo]

describe('ExecuteToolsInOrder', () => {
  it('answers all calls with one message, and no call with none', async () => {
    const said =
      '<tool name="boom"></tool><tool name="zz"></tool><tool name="add" tag="T">{"a": 1, "b": 2}</tool>'
    expect(await answersTo(new ExecuteToolsInOrder({ tools }), said, 'plain')).toEqual([
      [
        {
          role: 'tool',
          content: `<tool_results>
Tool boom (call 1) failed:
  Error: boom
Tool zz (call 2) failed:
  Error: Unknown tool: zz
Tool add (call 3) [tag: T] succeeded:
  Result: {
  "sum": 3
}
</tool_results>`,
        },
      ],
      [],
    ])
  })

  it('ends with the first failure where asked', async () => {
    const said = '<tool name="echo">{}</tool><tool name="boom"></tool><tool name="echo">{}</tool>'
    const [answers] = await answersTo(new ExecuteToolsInOrder({ tools, stopOnError: true }), said)
    expect(answers?.[0]?.content).toBe(
      '<tool_results>\nTool echo (call 1) succeeded:\n  Result: {}\nTool boom (call 2) failed:\n  Error: boom\n</tool_results>',
    )
  })

  it('gives a tool the conversation only where it asks', async () => {
    const ask = {
      name: 'ask',
      run: (_: unknown, { messages }: { messages: readonly { content?: unknown }[] }) => messages.length,
    }
    const [answers] = await answersTo(
      new ExecuteToolsInOrder({ tools: [ask, echo] }),
      '<tool name="ask"></tool><tool name="echo">{"a": 1}</tool>',
    )
    expect(answers?.[0]?.content).toMatch(/Result: 2\n[\s\S]*Result: \{\n {2}"a": 1\n\}/)
  })

  it('keeps results on one line that would be mostly space on many', async () => {
    let deep: unknown = Array.from({ length: 500 }, () => 1)
    for (let depth = 0; depth < 20; depth++) deep = [deep]
    const run = async (value: unknown) => {
      const transform = new ExecuteToolsInOrder({ tools: [{ name: 'it', run: () => value }] })
      return (await answersTo(transform, '<tool name="it"></tool>'))[0]?.[0]?.content
    }
    expect(await run(deep)).toContain(`Result: ${JSON.stringify(deep)}\n`)
    expect(await run([1, [2]])).toContain('Result: [\n  1,\n  [\n    2\n  ]\n]\n')
  })

  it('refuses unknown options', () => {
    expect(() => new ExecuteToolsInOrder({ tools, stopOnErrors: true } as never)).toThrow(
      failing('UNKNOWN_NAME', /stopOnError/),
    )
  })
})
