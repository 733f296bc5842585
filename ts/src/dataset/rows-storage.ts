/** Storages over folders of rows. */

import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { call } from '../core/index.js'
import { type Storage, TensorStorage } from '../replay/index.js'
import { storageAround } from '../replay/storage.js'
import { loadMemmap } from '../tensor/index.js'
import { converter } from './dataset-folder.js'

/** Bytes of the longest column that is in memory. */
const COLUMN_BYTES_MAX = 2 ** 30

/**
 * Opens the rows of a folder: in memory, but for columns of more than `columnBytesMax` bytes, whose rows are read from their files as they are
 * drawn.
 * @throws {FulmarError} As `loadMemmap` does; `SHAPE_MISMATCH`, with the key, for a long column with another number of rows.
 */
export function rowsStorage(folder: string, columnBytesMax: number = COLUMN_BYTES_MAX): Storage {
  if (longestIn(folder) <= columnBytesMax) return new TensorStorage(loadMemmap(folder))
  return storageAround(() => call(() => converter('RowsFolder').open(folder, columnBytesMax)).storage())
}

/** Bytes of the longest file of elements; 0 without one. */
function longestIn(folder: string): number {
  try {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    const leaves = names.filter((name) => name.endsWith('.memmap'))
    return Math.max(0, ...leaves.map((name) => statSync(join(folder, name)).size))
  } catch {
    // The reader of the folder states what is wrong with it.
    return 0
  }
}
