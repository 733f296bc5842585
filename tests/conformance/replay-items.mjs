/** Items of replay buffers as Fulmar holds them: what is no dictionary is made one by `fromPytree`, and given back by `toPytree`. */

import { isDeepStrictEqual } from 'node:util'
import { fromPytree, NonTensorStack, Tensor, TensorDict, toPytree } from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'
import { stepAt } from './golden-trees.mjs'
import { bare } from './replay-model.mjs'
import { dictIn, elementsOf, numbersIn, tensorIn } from './replay-rows.mjs'

const NAMES = Object.fromEntries(Object.entries(DTYPES).map(([name, dtype]) => [dtype, name]))

/** Returns true if Fulmar turns items of that form into dictionaries. */
export const isConverted = (data) => data?.$td === undefined

/** One item. */
export const itemIn = (data) => (data.$td ? dictIn(data) : fromPytree([treeIn(data)]))

/** A batch of items. */
export function itemsIn(data) {
  if (data.$td) return dictIn(data)
  if (Array.isArray(data)) return TensorDict.stack(data.map(itemIn))
  const tree = treeIn(data)
  return fromPytree([tree], { batchSize: [sizeOf(tree)] })
}

const sizeOf = (tree) => (tree instanceof Tensor ? tree.shape[0] : sizeOf(Object.values(tree)[0]))

function treeIn(value) {
  if (value?.$t) return tensorIn(value)
  const members = value?.$tuple ?? value
  if (Array.isArray(members)) return members.map(treeIn)
  if (value?.$dict) return Object.fromEntries(value.$dict.map(([name, inner]) => [name, treeIn(inner)]))
  return value
}

/** Returns the difference between Fulmar's result and a golden value, ignoring TorchRL's `index` leaves. */
export function differsFrom(got, want) {
  const shown = shownOf(got, want)
  return isSame(shown, bare(want))
    ? undefined
    : `items are ${JSON.stringify(shown)}, not ${JSON.stringify(want)}`
}

function shownOf(got, want) {
  if (got instanceof Tensor) return goldenOf(got)
  const isDict = want?.$td !== undefined || want?.$lazy !== undefined
  return isDict ? bare(goldenOf(got)) : goldenOf(toPytree(got)[0])
}

/** Converts Fulmar's result to the form of golden values. */
export function goldenOf(node) {
  if (node instanceof Tensor) {
    const values = elementsOf(node)
    return {
      $t: NAMES[node.dtype],
      s: [...node.shape],
      d: node.dtype === 'bool' ? values.map(Boolean) : values,
    }
  }
  if (node instanceof TensorDict) {
    const k = Object.fromEntries(node.keys().map((name) => [name, goldenOf(node.get([name]))]))
    return { $td: [...node.batchSize], k }
  }
  if (node instanceof NonTensorStack) return [...node.values]
  if (Array.isArray(node)) return node.map(goldenOf)
  if (typeof node !== 'object' || node === null) return node
  return { $dict: Object.entries(node).map(([name, one]) => [name, goldenOf(one)]) }
}

/** Memory that was not written may be anything. */
function isSame(got, want) {
  if (want?.$lazy !== undefined)
    return got.$td?.[0] === want.items.length && want.items.every((item, at) => isSame(stepAt(got, at), item))
  if (want?.$t) {
    const values = [want.d].flat()
    return (
      got?.$t === want.$t &&
      isDeepStrictEqual(got.s, want.s) &&
      got.d.length === values.length &&
      values.every((one, at) => one === 'uninit' || Number(got.d[at]) === numbersIn(one)[0])
    )
  }
  if (want?.$td) {
    const names = Object.keys(want.k)
    return (
      isDeepStrictEqual(got?.$td, want.$td) &&
      isDeepStrictEqual(Object.keys(got.k).sort(), names.toSorted()) &&
      names.every((name) => isSame(got.k[name], want.k[name]))
    )
  }
  if (want?.$tuple) return isSame(got, want.$tuple)
  if (want?.$dict)
    return (
      got?.$dict?.length === want.$dict.length &&
      want.$dict.every(([name, one]) => isSame(got.$dict.find(([key]) => key === name)?.[1], one))
    )
  if (Array.isArray(want))
    return Array.isArray(got) && got.length === want.length && want.every((one, at) => isSame(got[at], one))
  return got === want
}
