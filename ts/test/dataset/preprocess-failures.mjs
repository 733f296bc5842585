/**
 * Maps rows in threads by modules that fail, and prints the errors by name as JSON. Rows are those of Minari's `argv[2]` in the folder
 * `argv[3]`; modules and folders are written to `argv[4]`. It runs what `dist/` holds.
 */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MinariExperienceReplay } from '../../../dist/entry/dataset.js'

const MODULES = {
  throws: 'export default () => { throw new Error("no such row") }',
  exits: 'export default () => process.exit(3)',
  wrong: 'export default () => 7',
  empty: 'export const x = 1',
  endless: 'export default () => new Promise(() => {})',
}

const [, , id, minariRoot, folder] = process.argv
const root = join(folder, 'rows')
const buffer = await MinariExperienceReplay.open(id, { minariRoot, root, loadFromLocalMinari: true })
const errors = {}
for (const [name, text] of Object.entries(MODULES)) {
  const path = join(folder, `${name}.mjs`)
  await writeFile(path, text)
  const abort = new AbortController()
  const options = { dest: join(folder, 'mapped'), numWorkers: 2, chunksize: 50, signal: abort.signal }
  const mapping = buffer.preprocess(path, options)
  if (name === 'endless') setImmediate(() => abort.abort())
  errors[name] = await mapping.then(
    () => 'mapped',
    ({ code, message }) => `${code}: ${message}`,
  )
}
process.stdout.write(JSON.stringify(errors))
