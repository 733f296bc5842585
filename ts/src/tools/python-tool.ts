/** The tool `python`: code that a policy wrote, in a sandbox. */

import { checkKnownKeys } from '../core/index.js'
import { Sandbox, type SandboxOptions } from './sandbox.js'
import { tool } from './tool.js'
import type { Tool } from './tool-registry.js'

/** Options of {@link pythonTool}: those of its sandboxes, without the clock. */
export type PythonToolOptions = Omit<SandboxOptions, 'clock'>

/** Below the defaults of a `ToolRunner`: 10 s for a call, 65,536 characters for its result. */
const LIMITS = { timeoutMs: 8_000, outputBytes: 16_384 }

const DESCRIPTION =
  'Runs a program of Python 3 from its beginning, without network, and gives what it printed. Print what you want to see.'

/**
 * Makes the tool `python` for `defineTask`, `withTools` and `ToolRunner`. Each call runs in a {@link Sandbox} of its own, so
 * no state passes from one call, or one conversation, to another. The result is `{ status, exitCode, stdout, stderr }`.
 * By default a call has 8 seconds and 16,384 bytes of output.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; its calls fail with `UNAVAILABLE` where no sandbox works.
 *
 * @example
 * ```ts
 * import { ToolRunner } from 'fulmar'
 * import { pythonTool, Sandbox } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const runner = new ToolRunner({ tools: [pythonTool()] })
 * const call = { tool: 'python', args: { code: 'print(2 ** 100)' }, tag: null }
 * const [result] = await runner.run([call], { messages: [] })
 * const { isUsable } = await Sandbox.support() // on Linux with bubblewrap
 * const expected = { status: 'exited', exitCode: 0, stdout: '1267650600228229401496703205376\n', stderr: '' }
 * if (isUsable) assert.deepEqual(result?.ok && result.value, expected)
 * else assert.equal(result?.ok, false) // nothing runs without a sandbox
 * ```
 */
export function pythonTool(options: PythonToolOptions = {}): Tool<{ readonly code: string }> {
  checkKnownKeys('options', options, ['backend', 'files', 'limits', 'bwrap'])
  return tool({
    name: 'python',
    description: DESCRIPTION,
    schema: { type: 'object', properties: { code: { type: 'string' } }, required: ['code'] },
    run: async ({ code }, { signal }) => {
      const sandbox = await Sandbox.open({ ...options, limits: { ...LIMITS, ...options.limits } })
      try {
        return await sandbox.run({ code }, { signal })
      } finally {
        sandbox.close()
      }
    },
  })
}
