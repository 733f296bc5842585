import { describe, expect, it } from 'vitest'
import { pythonTool } from '../../src/tools/python-tool.js'
import { ToolRunner, type ToolRunnerOptions } from '../../src/tools/tool-runner.js'
import { failing } from '../torchrl/envs/chats.js'
import { worksHere } from './sandbox-here.js'

const call = (code: unknown) => ({ tool: 'python', args: { code: code as string }, tag: null })

const run = async (codes: readonly unknown[], options: Partial<ToolRunnerOptions> = {}) => {
  const runner = new ToolRunner({ tools: [pythonTool()], timeoutMs: 30_000, ...options })
  return await runner.run(codes.map(call), { messages: [] })
}

describe.runIf(await worksHere())('pythonTool', () => {
  it('gives output, errors and exit codes as results, side by side and without state between calls', async () => {
    const [made, seen, failed, wrong] = await run([
      'open("a", "w").write("x"); import sys; print("made"); print("careful", file=sys.stderr)',
      'import os; print(os.listdir("."))',
      'raise ValueError("no")',
      7,
    ])
    const value = { status: 'exited', exitCode: 0, stdout: 'made\n', stderr: 'careful\n' }
    expect(made).toMatchObject({ ok: true, value })
    expect(seen).toMatchObject({ ok: true, value: { stdout: '[]\n' } })
    expect(failed).toMatchObject({
      ok: true,
      value: { exitCode: 1, stderr: expect.stringContaining('ValueError: no') },
    })
    expect(wrong).toMatchObject({ ok: false, error: { code: 'MALFORMED' } })
  })

  it('lets functions see imports and each other', async () => {
    const code =
      'import math\ndef half(x): return x / 2\ndef area(r): return half(math.pi * r * r)\nprint(round(area(2), 3))'
    expect((await run([code]))[0]).toMatchObject({ ok: true, value: { stdout: '6.283\n' } })
  })

  it('cuts output below the limit of a result, and ends with its call', async () => {
    const [long] = await run(['print("a" * 10**6)'], { timeoutMs: 10_000 })
    expect(long).toMatchObject({ ok: true, value: { status: 'output', exitCode: null } })
    const [late] = await run(['while True: pass'], { timeoutMs: 500 })
    expect(late).toMatchObject({ ok: false, error: { code: 'TIMEOUT' } })
  })
})

describe('pythonTool', () => {
  it('runs nothing without a sandbox, and refuses unknown options', async () => {
    const [result] = await run(['print(1)'], { tools: [pythonTool({ bwrap: '/no/such/bwrap' })] })
    expect(result).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('sandbox must be available') },
    })
    expect(() => pythonTool({ limit: {} } as never)).toThrow(failing('UNKNOWN_NAME', /limits/))
  })
})
