/** Support of sandboxes by this machine. */

import { Sandbox } from '../../src/tools/sandbox.js'
import { has } from '../needs.js'

/** Once for both builds of the core, which sandboxes do not need. Where bubblewrap is there but forbidden, tests are skipped in CI too. */
export async function worksHere(): Promise<boolean> {
  if (process.env.FULMAR_TEST_BACKEND === 'wasm') return false
  const support = await Sandbox.support({ backend: 'bubblewrap' })
  if (support.isUsable || support.reason.includes('not installed')) return has('bubblewrap', support.isUsable)
  process.stderr.write(`\nSKIPPED: sandboxes do not work here: ${support.reason}\n`)
  return false
}
