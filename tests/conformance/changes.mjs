/** The changes of what a row expects, one value at a time: numbers, texts, truths, lengths, shapes, dtypes, keys, and what fails or does not. */

import { membersOf, pathsOf } from './members.mjs'

/** The default tolerance of numbers: relative to the largest of its list, and absolute. */
const NEAR = { relative: 1e-5, absolute: 1e-6 }
/** A number is moved by as many times its tolerance. */
const STEPS = 4

const DTYPES = {
  float64: 'float32',
  float32: 'float64',
  float16: 'float32',
  bfloat16: 'float32',
  int64: 'int32',
  int32: 'int64',
}
const isFloat = (dtype) => /float/.test(dtype)
const NUMERIC = new Set(['NaN', 'Infinity', '-Infinity'])
const REFUSAL = {
  kind: 'RuntimeError',
  class: 'RuntimeError',
  bases: [],
  msg: 'a change',
  message: 'a change',
}

/** One change of every kind and place of a row: `{ value, place, what, path }`, the place with `*` for positions. */
export function changesOf(row, adapter, below) {
  const { tolerance = () => NEAR } = adapter
  const { expected, refusals, aside } = pathsOf(membersOf(adapter, row))
  const ignored = aside.map((path) => path.split('.'))
  const isAside = (path) =>
    ignored.some(
      (names) =>
        names.length <= path.length && names.every((name, at) => name === '*' || name === String(path[at])),
    )
  const groups = new Map()
  const offer = (path, what, change) => {
    if (isAside(path)) return
    // Of operations one after another, those of one name are alike.
    const named = (name, at) => (at === 1 && row[path[0]]?.[name]?.op) || '*'
    const place = path.map((name, at) => (typeof name === 'number' ? named(name, at) : name)).join('.')
    const key = `${place} ${what}`
    const group = groups.get(key) ?? { place, what, count: 0 }
    group.count += 1
    // Each of a group is as likely as the others.
    if (below(group.count) === 0) Object.assign(group, { path, change })
    groups.set(key, group)
  }
  const near = tolerance(row) ?? NEAR
  for (const pattern of expected) {
    for (const path of found(row, pattern.split('.'))) walk(at(row, path), path, offer, near)
  }
  for (const [error, ok] of refusals) {
    const names = error.split('.')
    const parents = names.length === 1 ? [[]] : found(row, names.slice(0, -1))
    for (const parent of parents) {
      const owner = at(row, parent)
      const name = names.at(-1)
      const isSet = (one) =>
        owner[one] !== undefined && (owner[one] !== null || !(name in owner && ok in owner))
      if (isSet(name) && owner[name] !== null)
        offer(
          [...parent, name],
          'a failure into a success',
          ({ [name]: _, ...rest }) => ({ ...rest, ...(ok in rest ? {} : { [ok]: 'a change' }) }),
          parent,
        )
      else if (isSet(ok))
        offer(
          [...parent, ok],
          'a success into a failure',
          ({ [ok]: _, ...rest }) => ({ ...rest, [name]: REFUSAL }),
          parent,
        )
    }
  }
  return [...groups.values()].map(({ place, what, path, change }) => {
    const target = /^a (failure|success)/.test(what) ? path.slice(0, -1) : path
    return { place, what, path: path.join('.'), value: changed(row, target, change) }
  })
}

/** Everything below a value that can be another. */
function walk(value, path, offer, near, context = {}) {
  const set = (what, other) => offer(path, what, () => other)
  if (value === undefined) return
  if (value === null) return set('null', 'a change')
  if (typeof value === 'boolean') return set('truth', !value)
  if (typeof value === 'number') return set('number', moved(value, near, context))
  if (typeof value === 'string') {
    if (value === 'uninit') return
    if (NUMERIC.has(value)) return set('number', value === 'NaN' ? 0.5 : 'NaN')
    return set('text', `${value}~`)
  }
  if (Array.isArray(value)) {
    if (value.length > 0) set('length', value.slice(0, -1))
    const inner = context.isList ? context : { ...context, isList: true, ...scaleOf(value) }
    for (const [index, one] of value.entries()) walk(one, [...path, index], offer, near, inner)
    return
  }
  walkObject(value, path, offer, near)
}

function walkObject(value, path, offer, near) {
  if (value.$repr !== undefined || value.$same !== undefined) return
  const dtype = value.$t ?? value.$np
  if (dtype !== undefined && value.s !== undefined) {
    const name = value.$t ? '$t' : '$np'
    offer([...path, name], 'dtype', () => DTYPES[dtype] ?? 'int64')
    offer([...path, 's'], 'shape', () => [...value.s, 1])
    const scale = isFloat(dtype) ? { isWhole: false } : { isWhole: true }
    for (const [index, one] of [value.d].flat().entries()) {
      const target = Array.isArray(value.d) ? [...path, 'd', index] : [...path, 'd']
      walk(typeof one === 'number' && dtype === 'bool' ? one !== 0 : one, target, offer, near, {
        ...scaleOf([value.d].flat()),
        ...scale,
        isList: true,
      })
    }
    return
  }
  if (value.$td !== undefined) {
    offer([...path, '$td'], 'batch size', () => [...value.$td, 1])
    const names = Object.keys(value.k)
    for (const name of names) offer([...path, 'k'], 'a key less', ({ [name]: _, ...rest }) => rest)
    if (names.length > 0)
      offer([...path, 'k'], 'a key more', (entries) => ({ ...entries, 'a change': entries[names[0]] }))
    for (const name of names) walk(value.k[name], [...path, 'k', name], offer, near)
    if (value.names) walk(value.names, [...path, 'names'], offer, near)
    return
  }
  if (value.$dict !== undefined) {
    for (const [index, pair] of value.$dict.entries())
      walk(pair[1], [...path, '$dict', index, 1], offer, near)
    return
  }
  for (const [name, inner] of Object.entries(value)) {
    // Sizes and dimensions of stacked or shared values only repeat those of the values.
    if (('$nt' in value || '$nts' in value || '$lazy' in value) && (name === 'b' || name === 'dim')) continue
    walk(inner, [...path, name], offer, near)
  }
}

/** Returns whether numbers are counts, and the largest number. */
function scaleOf(list) {
  const numbers = list.flat(Number.POSITIVE_INFINITY).filter((one) => typeof one === 'number')
  return { isWhole: numbers.every(Number.isInteger), largest: Math.max(0, ...numbers.map(Math.abs)) }
}

function moved(
  value,
  { relative, absolute },
  { isWhole = Number.isInteger(value), largest = Math.abs(value) },
) {
  if (isWhole) return value + 1 === value ? Math.trunc(value / 2) : value + 1
  return value + STEPS * (relative * Math.max(largest, Math.abs(value)) + absolute)
}

/** The paths of a pattern that are there. */
function found(row, [name, ...rest], path = [], value = row) {
  if (name === undefined) return [path]
  if (typeof value !== 'object' || value === null) return []
  const names =
    name === '*'
      ? [...Object.keys(value)].map((key) => (Array.isArray(value) ? Number(key) : key))
      : Object.hasOwn(value, name)
        ? [name]
        : []
  return names.flatMap((one) => found(row, rest, [...path, one], value[one]))
}

const at = (row, path) => path.reduce((value, name) => value[name], row)

/** A copy of `value` with the part at `path` changed. */
function changed(value, [name, ...rest], change) {
  if (name === undefined) return change(value)
  const copy = Array.isArray(value) ? [...value] : { ...value }
  copy[name] = changed(value[name], rest, change)
  return copy
}
