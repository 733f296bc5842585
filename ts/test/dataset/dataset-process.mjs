/** Opens the data set `argv[2]`, `SOURCE:ID`, with the options of JSON in `argv[3]`. It runs what `dist/` holds. */

import { loadDataset } from '../../../dist/entry/dataset.js'

const [, , name, options] = process.argv
const { length } = await loadDataset(name, JSON.parse(options))
process.stdout.write(`opened ${length}\n`)
