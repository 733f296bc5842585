/** Choice of the way by which programs are kept apart. */

import { describeValue, FulmarError } from '../core/index.js'
import { systemClock } from '../telemetry/index.js'
import { checkedLimits } from './sandbox-limits.js'

/** Way by which programs are kept apart: namespaces of Linux, or Python as WebAssembly in a process of Node. */
export type SandboxBackend = 'bubblewrap' | 'pyodide'

/** Backends in the order in which `auto` tries them. */
const BACKENDS: readonly SandboxBackend[] = ['bubblewrap', 'pyodide']

/** Working of a backend here, or the reason why not. */
export type SandboxSupport =
  | { readonly isUsable: true; readonly backend: SandboxBackend }
  | { readonly isUsable: false; readonly reason: string }

/** @throws {FulmarError} `UNKNOWN_NAME` for another name. */
export function checkBackend(backend: 'auto' | SandboxBackend): void {
  if (backend === 'auto' || BACKENDS.includes(backend)) return
  const detail = `options.backend must be 'auto', 'bubblewrap' or 'pyodide': got ${describeValue(backend)}`
  throw new FulmarError('UNKNOWN_NAME', detail)
}

/** Returns the first backend that works here, or the reasons why none does. `isWhole`: Pyodide is started, not only looked for. */
export async function supportHere(
  backend: 'auto' | SandboxBackend,
  bwrap: string,
  { isWhole }: { readonly isWhole: boolean },
): Promise<SandboxSupport> {
  const reasons: string[] = []
  for (const name of backend === 'auto' ? BACKENDS : [backend]) {
    const reason = name === 'bubblewrap' ? await whyNotBubblewrap(bwrap) : await whyNotPyodide(isWhole)
    if (reason === undefined) return { isUsable: true, backend: name }
    reasons.push(`${name} does not work here, as ${reason}`)
  }
  return { isUsable: false, reason: reasons.join('; ') }
}

/** @throws {FulmarError} `UNAVAILABLE` with the reasons if no backend works. */
export async function backendHere(backend: 'auto' | SandboxBackend, bwrap: string): Promise<SandboxBackend> {
  const support = await supportHere(backend, bwrap, { isWhole: false })
  if (support.isUsable) return support.backend
  throw new FulmarError('UNAVAILABLE', `a sandbox must be available: ${support.reason}`)
}

async function whyNotBubblewrap(bwrap: string): Promise<string | undefined> {
  const { runInBubblewrap, whyNoBubblewrap } = await import('./bubblewrap.js')
  const none = new Uint8Array(0)
  const inputs = { stdin: none, home: none, limits: checkedLimits(), clock: systemClock, signal: undefined }
  try {
    const { exitCode, stdout, stderr } = await runInBubblewrap({
      command: ['echo', 'works'],
      bwrap,
      ...inputs,
    })
    if (exitCode === 0 && stdout.toString('utf8') === 'works\n') return undefined
    return whyNoBubblewrap(new Error(stderr.toString('utf8') || 'it gave no answer'))
  } catch (error) {
    return whyNoBubblewrap(error)
  }
}

async function whyNotPyodide(isWhole: boolean): Promise<string | undefined> {
  const { pyodideFolder, whyNoPyodide } = await import('./pyodide.js')
  const { startPyodide } = await import('./pyodide-run.js')
  try {
    pyodideFolder()
    if (isWhole) (await startPyodide(checkedLimits(), {}, systemClock)).close()
    return undefined
  } catch (error) {
    return whyNoPyodide(error)
  }
}
