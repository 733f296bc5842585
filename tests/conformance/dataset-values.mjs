/** Rows of data sets against the notation of golden rows: tensors, texts, images and addresses of frames. */

import { NonTensorData, NonTensorStack, Tensor, TensorDict } from 'fulmar/tensor'
import { same, tensorDiffers } from './golden-values.mjs'

/** Flags of an end, which a sampler of slices sets. */
const FLAGS = ['done', 'terminated', 'truncated']

/** Root flags, and those of the next step. */
export const FLAG_KEYS = FLAGS.flatMap((name) => [[name], ['next', name]])

/**
 * The first difference of rows. Those of nested dictionaries may have the dimensions that torchrl finds in the shapes of all their leaves. Floats
 * are near to `near`; images of JPEG, `images`, may differ by 3. With `some`, keys that are not in `want` are not compared.
 */
export function rowsDiffer(got, want, options = {}) {
  if (!(got instanceof TensorDict)) return `got ${got}, expected a dictionary`
  const names = Object.keys(want.k).toSorted()
  const wrong = options.some ? undefined : same(got.keys().toSorted(), names)
  if (wrong) return wrong
  const differences = Object.entries(want.k).map(([key, one]) => {
    const difference = entryDiffers(got.get(key), one, key, options)
    return difference && `${key}: ${difference}`
  })
  return differences.find((one) => one !== undefined)
}

/** The same, with the batch size of the rows themselves. */
export const dictOfRowsDiffers = (got, want, options) =>
  same([...got.batchSize], want.$td) ?? rowsDiffer(got, want, options)

function entryDiffers(found, want, key, options) {
  if (want.$video) return framesDiffer(found, want.$video)
  if (want.cls === 'VideoClipRef') return framesDiffer(found, { ...want.k, batch: want.$td })
  if (want.$td) return batchDiffers(found, want, options) ?? rowsDiffer(found, want, options)
  if (want.$nt !== undefined || want.$nts !== undefined) return textsDiffer(found, want)
  if (options.images && key === 'image') return imageDiffers(found, want)
  return tensorDiffers(found, want, options.near, options.near)
}

function batchDiffers(found, want, { some }) {
  if (some || !(found instanceof TensorDict)) return undefined
  const wrong = same([...found.batchSize], want.$td)
  return wrong && same(sharedShape(want), want.$td) && wrong
}

/** The first dimensions that all leaves of a golden dictionary have. */
function sharedShape(want) {
  const shapes = Object.values(want.k).map((one) => one.s ?? one.b ?? (one.$td ? sharedShape(one) : []))
  const [first = [], ...others] = shapes
  const length = first.findIndex((size, at) => others.some((shape) => shape[at] !== size))
  return length < 0 ? first : first.slice(0, length)
}

/** Addresses of frames. Their files are at another path here: names below the snapshot are compared. */
function framesDiffer(found, { frame_index, file_id, batch, sources, auto_decode, ...rest }) {
  if (!(found instanceof TensorDict)) return `got ${found}, expected addresses of frames`
  const strange = Object.keys(rest)[0]
  if (strange !== undefined) return `addresses with ${strange}`
  const isWhole = (auto_decode === undefined) === (sources === undefined)
  const isLazy = batch && isWhole && (auto_decode?.$nt ?? false) === false
  if (!isLazy) return 'addresses that decode by themselves, or lack a part'
  return (
    same([...found.batchSize], batch) ??
    tensorDiffers(found.tensor('frame_index'), frame_index) ??
    tensorDiffers(found.tensor('file_id'), file_id) ??
    (sources && sourcesDiffer(found.get('sources'), sources.$nt.$tuple.map(below)))
  )
}

/** One list of files for all rows, or one a row. */
function sourcesDiffer(found, wanted) {
  const lists = found instanceof NonTensorStack ? found.values : [found.value]
  return lists.map((one) => same([one].flat().map(below), wanted)).find((one) => one !== undefined)
}

const below = (path) => path.split(/snapshots\/\w+\//).at(-1)

function textsDiffer(found, want) {
  const count = (want.b ?? []).reduce((product, size) => product * size, 1)
  const wanted = want.$nts ? want.$nts.map(plain) : Array(count).fill(plain(want.$nt))
  if (found instanceof NonTensorStack) return same(found.values.map(sorted), wanted.map(sorted))
  if (!(found instanceof NonTensorData)) return `got ${found}, expected texts`
  return same(Array(wanted.length).fill(sorted(found.value)), wanted.map(sorted))
}

/** A value of Python: bytes are text in UTF-8, a tensor is a list or a number. */
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  if (/^[0-9a-f]*$/.test(value.$hex)) return Buffer.from(value.$hex, 'hex').toString()
  const numbers = [value.d].flat()
  const isList = value.s?.length <= 1 && numbers.length === (value.s[0] ?? 1)
  if (value.$t === 'int64' && isList) return value.s.length === 0 ? numbers[0] : numbers
  if (value.$dict) return Object.fromEntries(value.$dict.map(([name, one]) => [name, plain(one)]))
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one)]))
}

/** A value with its members in the order of their names. */
export function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const members = Object.entries(value).toSorted(([left], [right]) => (left < right ? -1 : 1))
  return Object.fromEntries(members.map(([name, one]) => [name, sorted(one)]))
}

/** Of an image with many numbers the first and last ones are in the row. */
function imageDiffers(found, want) {
  const wrong = same([found.dtype, want.$t, [...found.shape]], ['u8', 'uint8', want.s])
  if (wrong) return wrong
  const pixels = Array.from(found.data, Number)
  const { head = want.d, tail = [] } = want
  const [got, wanted] = [
    [...pixels.slice(0, head.length), ...pixels.slice(pixels.length - tail.length)],
    [...head, ...tail],
  ]
  const at = wanted.findIndex((one, index) => !(Math.abs(got[index] - one) <= 3))
  return at < 0 ? undefined : `pixel ${at}: got ${got[at]}, expected ${wanted[at]}`
}

/** `rows` with flags as torchrl keeps them of Atari: bytes, one a row. */
export function withByteFlags(rows) {
  const keys = FLAG_KEYS.filter((key) => rows.has(key))
  const bytes = keys.map((key) => Uint8Array.from(rows.tensor(key).data, Number))
  const others = rows.exclude(keys)
  for (const [at, key] of keys.entries())
    others.set(key, Tensor.from(bytes[at], { shape: [...rows.batchSize], dtype: 'u8' }))
  return others
}

/** Golden flags of Atari as bytes, one a row; of those of each row against each, the diagonal. */
export function flagsAsBytes(want, batchSize) {
  const count = batchSize.reduce((product, size) => product * size, 1)
  const bytes = ({ d }) => {
    const step = [d].flat().length === count ? 1 : count + 1
    return {
      $t: 'uint8',
      s: [...batchSize],
      d: Array.from({ length: count }, (_, at) => Number([d].flat()[at * step])),
    }
  }
  const k = { ...want.k, next: { ...want.k.next, k: { ...want.k.next.k } } }
  for (const [name, inner] of FLAG_KEYS) {
    const [owner, key] = inner === undefined ? [k, name] : [k.next.k, inner]
    if (owner[key]) owner[key] = bytes(owner[key])
  }
  return { ...want, k }
}

/** A golden dictionary without some keys, each a name or a path of two names. */
export function without({ k, ...rest }, ...keys) {
  const root = { ...k }
  for (const [name, inner] of keys.map((key) => [key].flat())) {
    if (inner === undefined) delete root[name]
    else if (root[name]) root[name] = without(root[name], inner)
  }
  return { ...rest, k: root }
}
