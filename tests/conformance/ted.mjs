/**
 * Compares rings of steps and HDF5 files with what TorchRL and tensordict made of them in memory and in files.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  Flat2TED,
  H5Combine,
  H5Split,
  Nested2TED,
  readHdf5,
  TED2Flat,
  TED2Nested,
  writeHdf5,
} from 'fulmar/replay/files'
import { Ragged, Tensor } from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'
import { decided } from './loss-rows.mjs'
import { attempt, dictIn, elementsOf, numbersIn, skipped } from './replay-rows.mjs'

const FORMS = { flat: [TED2Flat, Flat2TED], nested: [TED2Nested, Nested2TED] }
/** Of a step whose next observation is not that of the next step. */
const LOSSY = 'steps that a form would not bring back are refused'
const FIRST = 'a full ring whose first row is the oldest has a form'

export const ted = {
  topic: 'ted',
  members: {
    input: 'id topic note fixture to shift is_full data value',
    expected: 'ok',
    refusal: 'error:ok',
  },
  matches: ({ id, topic }) => id !== undefined && Object.hasOwn(TOPICS, topic ?? ''),
  prepare: (folder) => folder,
  check: ({ value: row }, folder) => TOPICS[row.topic](row, folder),
}

const TOPICS = { ted_convert: ofConversion, persistent_h5: ofFile }

function ofConversion(row) {
  const steps = dictIn(row.data)
  const got = converted(row, steps)
  const isFirst = row.is_full && row.shift === 0
  if (row.ok === undefined || isFirst) {
    if (row.ok !== undefined || !isFirst) return isFirst ? 'the original fails' : 'the original converts it'
    return got.error ? undefined : decided(FIRST, comesBack(row, got.value, steps))
  }
  const want = plain(row.ok)
  const told = backDiffers(row, want)
  if (told) return told
  if (Object.values(want.back_equal).includes(false)) {
    const isRefused = got.error?.code === 'INCOMPATIBLE'
    // What came back is steps of which nothing is lost, and they have the same form.
    const back = dictIn(want.back)
    const again = converted(row, back)
    const form = again.error
      ? again.error.message
      : (formDiffers(again.value, want.converted) ?? comesBack(row, again.value, back))
    return decided(LOSSY, form, isRefused ? undefined : `must be refused: got ${got.value?.keys()}`)
  }
  if (got.error) return got.error.message
  return formDiffers(got.value, want.converted) ?? comesBack(row, got.value, steps)
}

const converted = ({ to, shift, is_full: isFull }, steps) =>
  attempt(() => new FORMS[to][0]().forward(steps, { shift, isFull }))

function formDiffers(form, want) {
  const names = Object.keys(want)
  const leaves = form.keys().filter((name) => !['is_full', 'shift', '_storage_shape'].includes(name))
  if (String(leaves.toSorted()) !== String(names.toSorted())) return `${form.keys()} for ${names}`
  const wrong = names.find((name) => differs(form.get(name), want[name]))
  return wrong && `${wrong} differs`
}

/** The steps are there again, and the nested form from a file. */
function comesBack({ to }, form, steps) {
  if (!new FORMS[to][1]().forward(form).equals(steps)) return 'the steps must come back'
  if (to === 'flat') return undefined
  const again = new H5Combine().forward(readHdf5(writeHdf5(new H5Split().forward(form))))
  return again.equals(form) ? undefined : 'the nested form must come back from a file'
}

/** The original's result for each leaf: whether it was equal, and all of it if not. */
function backDiffers({ data }, { back, back_equal: equal, converted, ...rest }) {
  const other = Object.keys(rest)[0]
  if (other || typeof converted !== 'object' || converted === null) return `${other} is not known`
  const leaves = (dict, path = []) =>
    Object.entries(dict.k).flatMap(([name, one]) =>
      one.$td ? leaves(one, [...path, name]) : [[[...path, name].join('.'), JSON.stringify(one)]],
    )
  const given = leaves(data)
  const returned = new Map(back === null ? given : leaves(back))
  const known = Object.fromEntries(given.map(([name, text]) => [name, returned.get(name) === text]))
  if (!isDeepStrictEqual(equal, known)) return `what came back is equal in ${JSON.stringify(known)}`
  const isWhole = Object.values(known).every(Boolean)
  if ((back === null) !== isWhole || returned.size !== given.length)
    return 'what came back is told where it differs'
  return back === null || sameSizes(back, data.$td) ? undefined : 'a batch size'
}

const sameSizes = (dict, sizes) =>
  isDeepStrictEqual(dict.$td, sizes) &&
  Object.values(dict.k).every((one) => !one.$td || sameSizes(one, sizes))

function ofFile(row, folder) {
  if (row.ok !== true) return `an answer is true: got ${row.ok}`
  const path = join(folder, row.fixture)
  if (!existsSync(path)) return skipped('its file')
  return differsFrom(readHdf5(readFileSync(path)), row.value)
}

/** Returns the leaf of a dictionary that differs; batch sizes are not in the file. */
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
    return (
      DTYPES[want.$t] !== got.dtype ||
      String(got.shape) !== String(want.s) ||
      String(elements) !== String(numbersIn(want.d))
    )
  }
  return JSON.stringify(got?.value) !== JSON.stringify(want.$nt ?? want.$tuple ?? want)
}
