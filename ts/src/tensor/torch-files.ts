/** Folders and files of dictionaries in the formats of tensordict and TorchRL. */

import { call, checkGiven, checkTypedArray } from '../core/index.js'
import { raw } from '../native/index.js'
import { bytesOf } from './dtype.js'
import { dictAround, type TensorDict, withRawDict } from './tensor-dict.js'

/**
 * Writes `dict` as a folder of memory-mapped leaves that `TensorDict.load_memmap` of tensordict reads. The
 * write is atomic and synced.
 * Blocks while it writes. Native backend only.
 *
 * @throws {FulmarError} `IO` if the system fails or `path` is anything but an empty folder; `MALFORMED`,
 *   naming the entry, if its key is a word of the format (`shape`, `device`, `_type`) or would take another entry's file.
 *
 * @example
 * ```ts no-run
 * import { loadMemmap, saveMemmap, Tensor, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 * import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = mkdtempSync(join(tmpdir(), 'fulmar-'))
 * using steps = TensorDict.from({ reward: Tensor.from([0.5, 1]) }, { batchSize: [2] })
 * saveMemmap(join(folder, 'steps'), steps)
 * assert.equal(readFileSync(join(folder, 'steps', 'reward.memmap')).length, 8)
 * assert.ok(loadMemmap(join(folder, 'steps')).equals(steps))
 * rmSync(folder, { recursive: true })
 * ```
 */
export function saveMemmap(path: string, dict: TensorDict): void {
  checkGiven('path', path)
  withRawDict(dict, (one) => one.saveMemmap(path))
}

/**
 * Reads a folder of memory-mapped leaves and validates it. Copies the elements; never reads pickles. Native
 * backend only.
 *
 * @throws {FulmarError} `IO` if the system refuses; with the key of the leaf, `CORRUPT` if a file is missing or not as long
 *   as in its description, `UNKNOWN_NAME` for a foreign dtype, `FORBIDDEN` for a pickled value, `SHAPE_MISMATCH` if a shape
 *   does not begin with the batch size; `LIMIT_EXCEEDED` above 256 MiB of description.
 *
 * @example
 * ```ts no-run
 * import { loadMemmap } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => loadMemmap('no/such/folder'), { code: 'CORRUPT' })
 * ```
 */
export function loadMemmap(path: string): TensorDict {
  return dictAround(() => call(() => raw.TensorDict.loadMemmap(path)))
}

/**
 * Returns the bytes of an archive (`.tdz`) with the files of {@link saveMemmap}. The same dictionary gives
 * the same bytes.
 *
 * @throws {FulmarError} `MALFORMED` as {@link saveMemmap}.
 *
 * @example
 * ```ts
 * import { readArchive, TensorDict, writeArchive } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using dict = TensorDict.from({}, { batchSize: [3] })
 * assert.ok(readArchive(writeArchive(dict)).equals(dict))
 * ```
 */
export function writeArchive(dict: TensorDict): Uint8Array {
  checkGiven('dict', dict)
  return withRawDict(dict, (one) => one.toArchive())
}

/**
 * Reads an archive of memory-mapped leaves. Copies the elements.
 *
 * @throws {FulmarError} `CORRUPT` if the bytes are not a ZIP archive, a member is compressed or its checksum wrong; those of
 *   {@link loadMemmap}.
 *
 * @example
 * ```ts
 * import { readArchive } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => readArchive(Uint8Array.of(80, 75)), { code: 'CORRUPT' })
 * ```
 */
export function readArchive(bytes: Uint8Array): TensorDict {
  checkTypedArray('bytes', bytes, Uint8Array)
  bytesOf('bytes', bytes)
  return dictAround(() => call(() => raw.TensorDict.readArchive(bytes)))
}

/**
 * Returns the bytes of a consolidated file, as tensordict's `consolidate` writes it.
 *
 * @throws {FulmarError} `MALFORMED` if a key is a word of the format; `LIMIT_EXCEEDED` above 16 MiB of description.
 *
 * @example
 * ```ts
 * import { readConsolidated, Tensor, TensorDict, writeConsolidated } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using dict = TensorDict.from({ id: Tensor.from(Int32Array.of(7)) })
 * const bytes = writeConsolidated(dict)
 * assert.deepEqual(bytes.subarray(0, 8), Uint8Array.of(7, 0, 0, 0, 0, 0, 0, 0))
 * assert.ok(readConsolidated(bytes).equals(dict))
 * ```
 */
export function writeConsolidated(dict: TensorDict): Uint8Array {
  checkGiven('dict', dict)
  return withRawDict(dict, (one) => one.toConsolidated())
}

/**
 * Reads a consolidated file. Copies the elements.
 *
 * @throws {FulmarError} With the key of the leaf, `CORRUPT` if an offset is outside the bytes or leaves overlap; otherwise those
 *   of {@link loadMemmap}.
 *
 * @example
 * ```ts
 * import { readConsolidated } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => readConsolidated(new Uint8Array(7)), { code: 'CORRUPT' })
 * ```
 */
export function readConsolidated(bytes: Uint8Array): TensorDict {
  checkTypedArray('bytes', bytes, Uint8Array)
  bytesOf('bytes', bytes)
  return dictAround(() => call(() => raw.TensorDict.readConsolidated(bytes)))
}
