/** Compiled kernels in a program or an addon: `crates/fulmar-cuda/src/fatbin.rs` puts a mark before them. */

import { Refusal } from './steps.mjs'

const MARK = /fulmar kernels ([0-9a-f]{16})\n/

/** Platforms for which NVIDIA has a driver. */
const WITH_DRIVER = /linux|win32/

/** Returns the stamp of the kernels that a program or an addon holds, or `undefined` where it has none. */
export function kernelsIn(bytes) {
  return MARK.exec(bytes.toString('latin1'))?.[1]
}

/**
 * Returns a line about the kernels in addons, each with the name of its file and its bytes. A release is refused if an addon for
 * Linux or Windows has none, or others than the rest. The line of any other pack without them begins with `NO KERNELS`.
 */
export function checkKernels(addons, isRelease) {
  const found = addons
    .filter(({ name }) => WITH_DRIVER.test(name))
    .map(({ name, bytes }) => ({ name, stamp: kernelsIn(bytes) }))
  const without = found.find(({ stamp }) => stamp === undefined)
  const remedy = 'cargo xtask kernels compiles them, then build it again'
  if (without && isRelease) throw new Refusal(`${without.name} must hold the kernels of GPUs: ${remedy}`)
  if (without)
    return `NO KERNELS: ${without.name} has no kernels of GPUs, so this pack is for tests only: ${remedy}`
  const other = found.find(({ stamp }) => stamp !== found[0].stamp)
  if (other) {
    throw new Refusal(
      `all addons must hold the same kernels: ${found[0].name} has ${found[0].stamp}, ${other.name} ${other.stamp}`,
    )
  }
  return `kernels of GPUs: ${found.map(({ name, stamp }) => `${stamp} in ${name}`).join(', ') || 'none needed'}`
}
