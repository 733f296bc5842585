/** A command line without a terminal: what it printed is text, what it reads is given. */

import type { CliIo } from '../../src/cli/io.js'
import { runCli } from '../../src/cli/program.js'

/** Result of a command. */
export interface CliResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs `fulmar <args>`. */
export async function fulmar(
  args: readonly string[],
  world: Partial<CliIo> & { stdin?: string } = {},
): Promise<CliResult> {
  const { stdin = '', ...overrides } = world
  const written = { stdout: '', stderr: '' }
  const code = await runCli(args, {
    stdout: { write: (text) => (written.stdout += text) },
    stderr: { write: (text) => (written.stderr += text) },
    readStdin: () => Promise.resolve(stdin),
    readLines: async function* () {
      yield* stdin.split('\n').filter(Boolean)
    },
    probe: () => Promise.resolve({ code: 1, stdout: '', stderr: 'Error: no such build\n' }),
    env: {},
    version: '1.2.3',
    signal: new AbortController().signal,
    ...overrides,
  })
  return { code, ...written }
}
