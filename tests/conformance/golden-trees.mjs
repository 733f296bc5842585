/** Golden values of several steps cut into one value a step, and put together again. A value is a dictionary, a tensor or a tree of these. */

const range = (count) => Array.from({ length: count }, (_, at) => at)
const numel = (shape) => shape.reduce((product, size) => product * size, 1)
const isLeaf = (node) => node?.$t !== undefined
const mapped = (entries, change) =>
  Object.fromEntries(Object.entries(entries).map(([name, one]) => [name, change(one)]))

/** The nodes below a node, as `[name, node]`; nothing of a leaf. */
export function partsIn(node) {
  if (node?.$td) return Object.entries(node.k)
  if (node?.$dict) return node.$dict
  const list = node?.$tuple ?? node
  return Array.isArray(list) ? list.map((one, at) => [at, one]) : []
}

/** The leaves of a value, each with its path, in order. */
export function leavesIn(node, path = []) {
  if (isLeaf(node)) return [{ path, leaf: node }]
  return partsIn(node).flatMap(([name, one]) => leavesIn(one, [...path, name]))
}

/** Returns the value of `node` at a path, or `undefined`. */
export const partAt = (node, path) =>
  path.reduce((value, name) => partsIn(value).find(([key]) => key === name)?.[1], node)

/** A value with every leaf changed, and every batch size. */
export function changedLeaves(node, ofLeaf, ofBatch = (size) => size) {
  const change = (one) => changedLeaves(one, ofLeaf, ofBatch)
  if (isLeaf(node)) return ofLeaf(node)
  if (node?.$td) return { ...node, $td: ofBatch(node.$td), k: mapped(node.k, change) }
  if (node?.$dict) return { $dict: node.$dict.map(([name, one]) => [name, change(one)]) }
  if (node?.$tuple) return { $tuple: node.$tuple.map(change) }
  return Array.isArray(node) ? node.map(change) : node
}

/** Returns the number of steps of a value; of a list, its length. */
export function stepsOf(data) {
  if (Array.isArray(data)) return data.length
  return data.$td ? data.$td[0] : leavesIn(data)[0].leaf.s[0]
}

/** The step at a position of the first dimension. */
export function stepAt(data, at) {
  const ofLeaf = ({ $t, s: [, ...shape], d }) => {
    const size = numel(shape)
    return { $t, s: shape, d: [d].flat().slice(at * size, (at + 1) * size) }
  }
  return changedLeaves(data, ofLeaf, (size) => size.slice(1))
}

/** All steps of a value. */
export const stepsIn = (data) =>
  Array.isArray(data) ? data : range(stepsOf(data)).map((at) => stepAt(data, at))

/** Steps put together along a new first dimension; `like` is one of them, or has their leaves. */
export function stacked(steps, like = steps[0]) {
  const count = steps.length
  const join = (node, all) => {
    if (isLeaf(node)) {
      const shape = node.s
      return { $t: node.$t, s: [count, ...shape], d: all.flatMap((one) => [one.d].flat()) }
    }
    const part = (name) => all.map((one) => partAt(one, [name]))
    if (node?.$td) {
      const k = Object.fromEntries(Object.entries(node.k).map(([name, one]) => [name, join(one, part(name))]))
      return { ...node, $td: [count, ...node.$td], k }
    }
    if (node?.$dict) return { $dict: node.$dict.map(([name, one]) => [name, join(one, part(name))]) }
    if (node?.$tuple) return { $tuple: node.$tuple.map((one, at) => join(one, part(at))) }
    return Array.isArray(node) ? node.map((one, at) => join(one, part(at))) : node
  }
  return join(like, steps)
}

/** Returns true if values have the same leaves, with the same dtypes and shapes. */
export function isAlike(values) {
  const forms = values.map((value) =>
    leavesIn(value)
      .map(({ path, leaf }) => `${path.join('.')} ${leaf.$t} ${leaf.s}`)
      .sort()
      .join(),
  )
  return forms.every((form) => form === forms[0])
}

/** The first two dimensions in each other's place. */
export function transposed(data) {
  const ofLeaf = ({ $t, s: [rows, columns, ...shape], d }) => {
    const size = numel(shape)
    const at = (row, column) => d.slice((row * columns + column) * size, (row * columns + column + 1) * size)
    const values = range(columns).flatMap((column) => range(rows).flatMap((row) => at(row, column)))
    return { $t, s: [columns, rows, ...shape], d: values }
  }
  return changedLeaves(data, ofLeaf, ([rows, columns, ...rest]) => [columns, rows, ...rest])
}

/** A value with the part at a path put in; what is missing on the way becomes a dictionary. */
export function withPart(node, [name, ...rest], part) {
  if (name === undefined) return part
  const set = (inner) => (rest.length === 0 ? part : withPart(inner ?? { $td: node.$td, k: {} }, rest, part))
  if (node.$td) return { ...node, k: { ...node.k, [name]: set(node.k[name]) } }
  if (node.$dict) return { $dict: node.$dict.map(([key, one]) => [key, key === name ? set(one) : one]) }
  if (node.$tuple) return { $tuple: node.$tuple.map((one, at) => (at === name ? set(one) : one)) }
  return node.map((one, at) => (at === name ? set(one) : one))
}

/** A dictionary without an entry. */
export function withoutEntry(node, name) {
  if (!node?.$td || !(name in node.k)) return node
  const { [name]: _, ...k } = node.k
  return { ...node, k }
}

/** A leaf with one value everywhere. */
export const filled = ($t, s, value) => ({ $t, s, d: Array(numel(s)).fill(value) })
/** The zero of a dtype. */
export const zeroOf = (dtype) => (dtype === 'bool' ? false : 0)
