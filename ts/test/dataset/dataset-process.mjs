/**
 * Opens the data set `argv[2]`, `SOURCE:ID`, with the options of JSON in `argv[3]`. With an `argv[4]` it also shows the memory that the process
 * held at most, in KiB. It runs what `dist/` holds.
 */

import { loadDataset } from '../../../dist/entry/dataset.js'

const [, , name, options, memory] = process.argv
const { length } = await loadDataset(name, JSON.parse(options))
process.stdout.write(`opened ${length}\n`)
if (memory !== undefined) process.stdout.write(`peak ${process.resourceUsage().maxRSS}\n`)
