/** JSON Lines files: one object per line. */

import {
  checkGiven,
  checkKnownKeys,
  FulmarError,
  messageOf,
  parseJson,
  readRegular,
  unreadable,
} from '../core/index.js'

/** Limits of {@link parseRows} and {@link readRows}. */
export interface RowsOptions {
  /**
   * Maximum number of rows.
   * @default 1_000_000
   */
  readonly rowsMax?: number
  /**
   * Maximum number of bytes of the file; UTF-16 units for a text.
   * @default 268_435_456
   */
  readonly bytesMax?: number
}

/** Default maximum number of rows. */
const ROWS_MAX = 1_000_000

/** Default maximum number of bytes. */
const ROWS_BYTES_MAX = 268_435_456

/** One row: an object with text keys. */
export type Row = Readonly<Record<string, unknown>>

/**
 * Parses a text of one JSON object per line. Only `\n` ends a line; blank lines are skipped. An integer that
 * a JavaScript number would change, as most beyond 2^53, is a text of its digits.
 * @throws {FulmarError} `MALFORMED` with the number of the line that is not a JSON object; `LIMIT_EXCEEDED` above a limit.
 *
 * @example
 * ```ts
 * import { parseRows } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(parseRows('{"question": "2 + 2?", "answer": "#### 4"}\n'), [{ question: '2 + 2?', answer: '#### 4' }])
 * assert.throws(() => parseRows('{}\n[]'), { code: 'MALFORMED', message: 'line 2 must be a JSON object: got an array' })
 * ```
 */
export function parseRows(text: string, options: RowsOptions = {}): Row[] {
  checkKnownKeys('options', options, ['rowsMax', 'bytesMax'])
  checkGiven('text', text)
  const { rowsMax = ROWS_MAX, bytesMax = ROWS_BYTES_MAX } = options
  checkLimit('text', text.length, bytesMax, 'UTF-16 units')
  const rows: Row[] = []
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue
    rows.push(rowOf(line, index + 1))
    checkLimit('rows', rows.length, rowsMax, 'rows')
  }
  return rows
}

/**
 * Reads a file of one JSON object per line. Needs a file system.
 * @throws {FulmarError} `IO` if it cannot be read; `CORRUPT` for a pipe or a device; `LIMIT_EXCEEDED` before it is read if it is too large; those of {@link parseRows}.
 *
 * @example
 * ```ts no-run
 * import type { GSM8KRow } from 'fulmar/reward'
 * import { gsm8k, readRows } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const rows = (await readRows('data/gsm8k/train.jsonl')) as unknown as GSM8KRow[]
 * assert.equal(gsm8k({ rows }).name, 'gsm8k')
 * ```
 */
export async function readRows(path: string, options: RowsOptions = {}): Promise<Row[]> {
  checkKnownKeys('options', options, ['rowsMax', 'bytesMax'])
  const { bytesMax = ROWS_BYTES_MAX } = options
  const bytes = await readRegular(path, bytesMax)
  if (bytes === undefined) throw unreadable(path)
  return parseRows(new TextDecoder().decode(bytes), options)
}

function rowOf(line: string, number: number): Row {
  let row: unknown
  try {
    row = parseJson(line)
  } catch (error) {
    throw new FulmarError('MALFORMED', `line ${number} must be a JSON object: ${messageOf(error)}`, {
      cause: error,
    })
  }
  if (typeof row === 'object' && row !== null && !Array.isArray(row)) return { ...row }
  const got = Array.isArray(row) ? 'an array' : String(row).slice(0, 40)
  throw new FulmarError('MALFORMED', `line ${number} must be a JSON object: got ${got}`)
}

function checkLimit(name: string, count: number, max: number, unit: string): void {
  if (count <= max) return
  throw new FulmarError('LIMIT_EXCEEDED', `${name} must have at most ${max} ${unit}: got ${count}`)
}
