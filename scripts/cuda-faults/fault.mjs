/** The form of a fault of `npm run cuda -- planted`; `FAULTS` of `../cuda-faults.mjs` has all of them. */

export const KERNELS = 'crates/fulmar-cuda/kernels'
export const EMULATOR = 'crates/fulmar-cuda/emulated'

/** Returns a function that makes the faults of the file of a check. */
export const of =
  (check, folder = KERNELS) =>
  (name, from, to) => ({ name, folder, file: `${check}.cu`, from, to, check })

/** The text of a barrier with this comment, and the text without the barrier. */
export const barrier = (comment) => [`__syncthreads(); // ${comment}`, `// ${comment}`]
