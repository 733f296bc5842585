/** Selection of the core's build by the command line, before anything that needs one is loaded. */

import type { Backend } from './io.js'

/** Returns the value of `--backend`; `undefined` if it is not given or not a backend (the command then reports it). */
export function backendOf(args: readonly string[]): Backend | undefined {
  const at = args.findIndex((arg) => arg === '--backend' || arg.startsWith('--backend='))
  if (at < 0) return undefined
  const arg = args[at] ?? ''
  const value = arg.includes('=') ? arg.slice(arg.indexOf('=') + 1) : args[at + 1]
  return value === 'native' || value === 'wasm' ? value : undefined
}

/** The flags that make Node load a build of the core. */
export function conditionsOf(backend: Backend): readonly string[] {
  return backend === 'wasm' ? ['--conditions=fulmar-wasm'] : []
}
