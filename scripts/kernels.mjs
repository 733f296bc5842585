/** Compiled kernels in a program or an addon: `crates/fulmar-cuda/src/fatbin.rs` puts a mark before them. */

const MARK = /fulmar kernels ([0-9a-f]{16})\n/

/** Returns the stamp of the kernels that a program or an addon holds, or `undefined` where it has none. */
export function kernelsIn(bytes) {
  return MARK.exec(bytes.toString('latin1'))?.[1]
}
