/**
 * Compares rings of steps and HDF5 files with what TorchRL and tensordict made of them in memory and in files.
 *
 * The folders of buffers in the same file of rows are read by the tests of the crates: `cargo test -p fulmar-ted -p fulmar-replay`.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  Flat2TED,
  H5Combine,
  H5Split,
  Nested2TED,
  Ragged,
  readHdf5,
  TED2Flat,
  TED2Nested,
  Tensor,
  writeHdf5,
} from 'fulmar'
import { attempt, decided, dictIn, elementsOf, numbersIn, skipped } from './replay-rows.mjs'

const FORMS = { flat: [TED2Flat, Flat2TED], nested: [TED2Nested, Nested2TED] }
/** Of a step whose next observation is not that of the next step. */
const LOSSY = decided('steps that a form would not bring back are refused')
const FOLDERS = ['rb_checkpoint', 'rb_parts', 'storage_checkpoint', 'memmap', 'archive', 'consolidate']

export const ted = {
  topic: 'ted',
  members: {
    input: `id topic note fixture checkpointer storage sampler writer max_size to shift is_full data value`,
    expected: `ok contents after_load len cursor write_count is_full loaded meta metadata members files bytes json_len json sample_list ran_out
      leaves max_priority top_values generations h5_tree h5_attrs pickles_removed`,
    refusal: 'error:ok dump_error:fixture',
    aside: {},
  },
  matches: ({ id, topic }) => id?.startsWith('ted-') === true && (topic in TOPICS || FOLDERS.includes(topic)),
  prepare: (folder) => folder,
  check: ({ value: row }, folder) =>
    TOPICS[row.topic]?.(row, folder) ?? (FOLDERS.includes(row.topic) ? FOLDER : undefined),
}

const FOLDER = skipped('an adapter for folders, which the Rust tests read')
const TOPICS = { ted_convert: ofConversion, persistent_h5: ofFile }

function ofConversion(row) {
  const [To, From] = FORMS[row.to]
  const steps = dictIn(row.data)
  const got = attempt(() => new To().forward(steps, { shift: row.shift, isFull: row.is_full }))
  const want = row.ok && plain(row.ok)
  if (want === undefined || Object.values(want.back_equal).includes(false)) {
    return got.error?.code === 'INCOMPATIBLE' ? LOSSY : `must be refused: got ${got.value?.keys()}`
  }
  if (got.error) return got.error.message
  const converted = got.value
  const wrong = Object.keys(want.converted).find((name) => differs(converted.get(name), want.converted[name]))
  if (wrong) return `${wrong} differs`
  if (!new From().forward(converted).equals(steps)) return 'the steps must come back'
  if (row.to === 'flat') return undefined
  const again = new H5Combine().forward(readHdf5(writeHdf5(new H5Split().forward(converted))))
  return again.equals(converted) ? undefined : 'the nested form must come back from a file'
}

function ofFile(row, folder) {
  const path = join(folder, row.fixture)
  if (!existsSync(path)) return skipped('its file')
  return differsFrom(readHdf5(readFileSync(path)), row.value)
}

/** Which leaf of a dictionary is another one; batch sizes are not in the file. */
function differsFrom(got, { k: entries }) {
  const names = Object.keys(entries)
  if (String(got.keys().sort()) !== String(names.toSorted())) return `${got.keys()} for ${names}`
  for (const [name, want] of Object.entries(entries)) {
    const wrong = want.$td ? differsFrom(got.dict(name), want) : differs(got.tensor(name), want) && name
    if (wrong) return `${wrong} differs`
  }
  return undefined
}

/** Maps as objects. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const entries = value.$dict ?? Object.entries(value)
  return Object.fromEntries(entries.map(([name, inner]) => [name, plain(inner)]))
}

function differs(got, want) {
  if (got instanceof Ragged) {
    const rows = want.$njt ?? []
    return got.offsets.length - 1 !== rows.length || rows.some((row, at) => differs(got.row(at), row))
  }
  if (got instanceof Tensor) {
    const isHalf = got.dtype === 'f16' || got.dtype === 'bf16'
    const elements = isHalf ? Array.from(got.toFloat32()) : elementsOf(got)
    return String(got.shape) !== String(want.s) || String(elements) !== String(numbersIn(want.d))
  }
  return JSON.stringify(got?.value) !== JSON.stringify(want.$nt ?? want.$tuple ?? want)
}
