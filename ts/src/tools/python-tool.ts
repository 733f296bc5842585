/** The tool `python`: code that a policy wrote, in a sandbox. */

import { checkInterpreterKeys, type InterpreterOptions, Interpreters } from './interpreters.js'
import { tool } from './tool.js'
import type { Tool } from './tool-registry.js'

/** Options of {@link pythonTool}. */
export type PythonToolOptions = InterpreterOptions

/** The tool `python`. Dispose it to end its interpreters. */
export type PythonTool = Tool<{ readonly code: string }> & Disposable

const DESCRIPTION = {
  fresh:
    'Runs a program of Python 3 from its beginning, without network, and gives what it printed. Print what you want to see.',
  persistent:
    'Runs code of Python 3, without network, and gives what it printed and the value of its last line. Variables stay from call to call.',
}

/**
 * Makes the tool `python` for `defineTask`, `withTools` and `ToolRunner`. Each call runs in a sandbox: by default in an
 * interpreter of its own; with `persistent` in that of its conversation, which ends with the conversation, so no state
 * passes from one conversation to another. The result is a {@link PythonResult}: both outputs, the value of the last
 * line, and the traceback of an exception. By default a call has 8 seconds and 16,384 bytes of output.
 *
 * @throws {FulmarError} `UNKNOWN_NAME`, `OUT_OF_RANGE` or `MALFORMED` for an option; its calls fail with `UNAVAILABLE`
 * where no sandbox works, and with `LIMIT_EXCEEDED` above `maxInterpreters`.
 *
 * @example
 * ```ts
 * import { ToolRunner } from 'fulmar'
 * import { pythonTool, Sandbox } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * using python = pythonTool({ persistent: true })
 * const runner = new ToolRunner({ tools: [python] })
 * const conversation = new AbortController() // `withTools` has one for each conversation
 * const run = (code: string) =>
 *   runner.run([{ tool: 'python', args: { code }, tag: null }], { messages: [], conversation: conversation.signal })
 * const { isUsable } = await Sandbox.support() // on Linux with bubblewrap
 * if (isUsable) {
 *   await run('big = 2 ** 100')
 *   const [result] = await run('print("so big:")\nbig')
 *   const value = { status: 'ok', stdout: 'so big:\n', stderr: '', value: '1267650600228229401496703205376', error: null, isCut: false }
 *   assert.deepEqual(result?.ok && result.value, value)
 * } else assert.equal((await run('1'))[0]?.ok, false) // nothing runs without a sandbox
 * conversation.abort()
 * ```
 */
export function pythonTool(options: PythonToolOptions = {}): PythonTool {
  checkInterpreterKeys(options)
  const interpreters = new Interpreters(options)
  const made = tool({
    name: 'python',
    description: interpreters.persistent ? DESCRIPTION.persistent : DESCRIPTION.fresh,
    schema: { type: 'object', properties: { code: { type: 'string' } }, required: ['code'] },
    perConversation: interpreters.persistent,
    run: ({ code }, { signal, conversation }) => interpreters.run(code, { signal, conversation }),
  })
  return Object.freeze({ ...made, [Symbol.dispose]: () => interpreters.close() })
}
