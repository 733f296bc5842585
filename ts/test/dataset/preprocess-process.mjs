/**
 * Maps the rows of Minari's `argv[2]` in the folder `argv[3]` by `double-rows.mjs` to the folder `argv[5]`, in `argv[6]` threads;
 * the rows themselves are in `argv[4]`. It runs what `dist/` holds.
 */

import { MinariExperienceReplay } from '../../../dist/entry/dataset.js'

const [, , id, minariRoot, root, dest, numWorkers] = process.argv
const fn = new URL('./double-rows.mjs', import.meta.url)
const buffer = await MinariExperienceReplay.open(id, { minariRoot, root, loadFromLocalMinari: true })
process.stdout.write('opened\n')
const mapped = await buffer.preprocess(fn, { dest, numWorkers: Number(numWorkers), chunksize: 7 })
process.stdout.write(`${mapped.length}\n`)
