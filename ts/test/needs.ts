/**
 * Returns whether `what` is on this machine, for `describe.runIf`. Without it, tests count as skipped; where `CI` is set they fail, as
 * `.ci/run` installs what they need.
 */
export function has(what: string, isThere: boolean): boolean {
  if (isThere) return true
  if (process.env.CI) throw new Error(`${what} must be there where CI is set`)
  process.stderr.write(`\nSKIPPED: ${what} is not there, and some tests need it\n`)
  return false
}
