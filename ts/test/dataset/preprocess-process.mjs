/**
 * Maps the rows of Minari's `argv[2]` in the folder `argv[3]` by `double-rows.mjs` to the folder `argv[5]`, in `argv[6]` threads,
 * `argv[7]` rows at a time; the rows themselves are in `argv[4]`. Without `argv[5]` it converts alone. It runs what `dist/` holds.
 */

import { MinariExperienceReplay } from '../../../dist/entry/dataset.js'

const [, , id, minariRoot, root, dest, numWorkers, chunksize] = process.argv
const fn = new URL('./double-rows.mjs', import.meta.url)
const buffer = await MinariExperienceReplay.open(id, { minariRoot, root, loadFromLocalMinari: true })
process.stdout.write(`opened ${buffer.length}\n`)
if (dest !== undefined) {
  const options = { dest, numWorkers: Number(numWorkers), chunksize: Number(chunksize) }
  const mapped = await buffer.preprocess(fn, options)
  process.stdout.write(`mapped ${mapped.length}\n`)
}
