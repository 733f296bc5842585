/** Assertions of the test suites. */

import { FulmarError } from '../core/index.js'

/** Throws `USER_CODE` with the promise unless it is kept. */
export function promise(kept: boolean, what: string, got?: unknown): void {
  if (kept) return
  const detail = got === undefined ? '' : `: got ${JSON.stringify(got)}`
  throw new FulmarError('USER_CODE', `${what}${detail}`)
}

/** Throws unless `act` throws an error of one of these codes. */
export function refuses(act: () => unknown, codes: readonly string[], what: string): void {
  let code: string | undefined
  try {
    act()
  } catch (error) {
    code = error instanceof FulmarError ? error.code : String(error)
  }
  promise(code !== undefined && codes.includes(code), what, code ?? 'no error')
}
