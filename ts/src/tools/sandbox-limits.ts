/** Limits of programs in sandboxes. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { TIMER_DELAY_MS_MAX } from '../telemetry/index.js'

/** Limits of a `Sandbox`. Positive integers. */
export interface SandboxLimits {
  /** Deadline of a run in milliseconds. @default 10_000 */
  readonly timeoutMs?: number
  /** Seconds of the processor for each process. @default 10 */
  readonly cpuSeconds?: number
  /** Address space of each process in bytes. @default 1_073_741_824 */
  readonly memoryBytes?: number
  /** Bytes of the home, which is kept in memory. @default 33_554_432 */
  readonly homeBytes?: number
  /** Bytes of each file. @default 16_777_216 */
  readonly fileBytes?: number
  /** Number of processes and threads at once. @default 32 */
  readonly numProcesses?: number
  /** Number of open files of each process. @default 64 */
  readonly numFiles?: number
  /** Bytes of standard output and standard error together. @default 1_048_576 */
  readonly outputBytes?: number
}

/** The limits unless others are given. */
const DEFAULTS: Required<SandboxLimits> = {
  timeoutMs: 10_000,
  cpuSeconds: 10,
  memoryBytes: 1_073_741_824,
  homeBytes: 33_554_432,
  fileBytes: 16_777_216,
  numProcesses: 32,
  numFiles: 64,
  outputBytes: 1_048_576,
}

/** Returns all limits. @throws {FulmarError} `UNKNOWN_NAME` or `OUT_OF_RANGE`. */
export function checkedLimits(limits: SandboxLimits = {}): Required<SandboxLimits> {
  checkKnownKeys('limits', limits, Object.keys(DEFAULTS))
  const all = { ...DEFAULTS, ...limits }
  for (const [name, value] of Object.entries(all)) {
    if (Number.isSafeInteger(value) && value >= 1 && (name !== 'timeoutMs' || value <= TIMER_DELAY_MS_MAX))
      continue
    throw new FulmarError(
      'OUT_OF_RANGE',
      `limits.${name} must be a positive integer: got ${describeValue(value)}`,
    )
  }
  return all
}
