/** The command line's world, as arguments: streams, standard input, the other build of the core, a signal to stop. */

import type { ProgressStream } from '../telemetry/index.js'

/** Build of the core. */
export type Backend = 'native' | 'wasm'

/** Everything that a command touches outside this package. */
export interface CliIo {
  /** Results: text for people or one line of JSON. `isTTY`: it shows colours. */
  readonly stdout: { readonly isTTY?: boolean | undefined; write(text: string): unknown }
  /** Progress and errors. */
  readonly stderr: ProgressStream
  /** All of standard input as text. */
  readonly readStdin: () => Promise<string>
  /** The lines of standard input as they come; `prompt` is written before each where a person types them. */
  readonly readLines: (prompt: string) => AsyncIterable<string>
  /** Runs `fulmar doctor --json --only-loaded` on a build of the core, in a process of its own. */
  readonly probe: (backend: Backend) => Promise<ProbeResult>
  /** Environment variables, of which commands read keys of servers. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** Version of the package. */
  readonly version: string
  /** Fires when the user wants to stop. */
  readonly signal: AbortSignal
}

/** Output of another process. */
export interface ProbeResult {
  /** Its exit code. */
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** A failure of reading what the user named. No `FulmarError`: that one needs a compiled core, and help does not. */
export class CliError extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** The most bytes of one input. */
const INPUT_BYTES_MAX = 268_435_456

/**
 * The text of a regular file, or of standard input for `-`.
 * @throws {CliError} `IO` if it is not there.
 * @throws {FulmarError} `IO` if it cannot be read; `CORRUPT` for a pipe or a device; `LIMIT_EXCEEDED` past {@link INPUT_BYTES_MAX}.
 */
export async function readInput(path: string, io: CliIo): Promise<string> {
  if (path === '-') return await io.readStdin()
  // Help needs no compiled core, which the errors come from.
  const { readRegular } = await import('../core/index.js')
  const bytes = await readRegular(path, INPUT_BYTES_MAX)
  if (bytes === undefined) throw new CliError('IO', `path must be a readable file: got ${path}`)
  return new TextDecoder().decode(bytes)
}

/** All of a stream as text. @throws {CliError} `LIMIT_EXCEEDED` past `bytesMax`. */
export async function readStream(
  stream: AsyncIterable<string | Uint8Array>,
  bytesMax = INPUT_BYTES_MAX,
): Promise<string> {
  const decoder = new TextDecoder()
  let [text, length] = ['', 0]
  for await (const chunk of stream) {
    const bytes = typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk
    length += bytes.length
    if (length > bytesMax)
      throw new CliError(
        'LIMIT_EXCEEDED',
        `standard input must have at most ${bytesMax} bytes: got ${length} before its end`,
      )
    text += decoder.decode(bytes, { stream: true })
  }
  return text + decoder.decode()
}

/** The JSON of a file, or of standard input for `-`. @throws {CliError} `IO`, or `MALFORMED` if it is not JSON. */
export async function readJsonInput(what: string, path: string, io: CliIo): Promise<unknown> {
  const text = await readInput(path, io)
  try {
    return JSON.parse(text)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new CliError('MALFORMED', `${what} must be JSON: got ${path} (${why})`)
  }
}

/** One line of JSON. */
export function printJson(value: unknown, io: CliIo): void {
  io.stdout.write(`${JSON.stringify(value)}\n`)
}

/** Two columns for people. */
export function printTable(rows: readonly (readonly [string, string])[], io: CliIo): void {
  const width = Math.max(...rows.map(([name]) => name.length))
  for (const [name, value] of rows) io.stdout.write(`${name.padEnd(width)}  ${value}\n`)
}

/** A share as a percentage. */
export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}
