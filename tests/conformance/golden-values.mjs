/** Dictionaries and tensors against the notation of golden rows: `$t`, `$td` and `$dict`. */

import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { Tensor } from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'

export const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`

/** The members of a `$dict`. */
export const membersIn = ({ $dict }) => Object.fromEntries($dict)

/** The first difference of a dictionary; a member `cls` is for its caller. */
export function dictDiffers(got, { $td, k, names, cls: _, ...rest }, relative = 0, absolute = 0) {
  const strange = Object.keys(rest)[0]
  if (strange !== undefined) return `a dictionary with ${strange}`
  const keys = Object.keys(k)
  return (
    same([...got.batchSize], $td) ??
    (names && same([...got.names], names)) ??
    same(got.keys().toSorted(), keys.toSorted()) ??
    keys.map((key) => entryDiffers(key, got, k[key], relative, absolute)).find((one) => one !== undefined)
  )
}

function entryDiffers(key, dict, want, ...near) {
  const difference = want.$td
    ? dictDiffers(dict.dict([key]), want, ...near)
    : tensorDiffers(dict.get([key]), want, ...near)
  return difference && `${key}: ${difference}`
}

/** The first difference of a tensor: its elements, or its hash with the first and last ones. Floats are near to `relative`. */
export function tensorDiffers(got, want, relative = 0, absolute = 0) {
  if (!(got instanceof Tensor)) return `got no tensor, expected ${want.$t}`
  const { $t, s, d, sha256, head, tail, ...rest } = want
  const strange = Object.keys(rest)[0]
  if (strange !== undefined) return `a tensor with ${strange}`
  const wrong = same([got.dtype, [...got.shape]], [DTYPES[$t], s])
  if (wrong) return wrong
  const values = Array.from(got.data, Number)
  if (d === undefined) {
    const bytes = new Uint8Array(got.data.buffer, got.data.byteOffset, got.data.byteLength)
    const hash = createHash('sha256').update(bytes).digest('hex')
    if (relative + absolute > 0) return endsDiffer(values, head, tail, absolute)
    return same([hash, values.slice(0, head.length), values.slice(-tail.length)], [sha256, head, tail])
  }
  const numbers = d.map(Number)
  const at = numbers.findIndex(
    (one, index) =>
      !Object.is(one, values[index]) &&
      !(Math.abs(one - values[index]) <= absolute + relative * Math.abs(one)),
  )
  if (values.length !== numbers.length) return `got ${values.length} elements, expected ${numbers.length}`
  return at < 0 ? undefined : `element ${at}: got ${values[at]}, expected ${d[at]}`
}

/** The first and last elements; a hash has no tolerance. */
function endsDiffer(values, head, tail, absolute) {
  const got = [...values.slice(0, head.length), ...values.slice(-tail.length)]
  const want = [...head, ...tail]
  const at = want.findIndex((one, index) => !(Math.abs(got[index] - one) <= absolute))
  return at < 0 ? undefined : `element ${at} of the first and last: got ${got[at]}, expected ${want[at]}`
}
