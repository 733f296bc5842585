/**
 * Compares sums, minima and searches of priorities with what TorchRL's segment trees gave. Our leaves are singles whose masses are whole
 * numbers of a unit: sums agree within a millionth, and a search may end at a neighbour where the sum is within that of the one sought.
 */

import { isDeepStrictEqual } from 'node:util'
import { PriorityTree } from 'fulmar/replay'

const RELATIVE = 1e-6

export const priorityTrees = {
  topic: 'priority trees',
  members: {
    input: `id kind dtype size capacity identity note ops.*.op ops.*.index ops.*.value ops.*.l ops.*.r ops.*.x`,
    expected: 'ops.*.ok',
    refusal: 'ops.*.error:ok',
  },
  matches: ({ kind, identity, size, ops }) =>
    ['sum', 'min'].includes(kind) && identity !== undefined && size !== undefined && Array.isArray(ops),
  prepare: () => undefined,
  check: ({ value: row }) => ofTree(row),
}

function ofTree(row) {
  const { kind, size, identity, ops } = row
  const tree = new PriorityTree(size)
  const theirs = new TreeModel(row)
  const leaves = new Array(size).fill(0)
  for (const [at, op] of ops.entries()) {
    const golden = theirs.differs(op)
    if (golden !== undefined) return `op ${at} ${op.op}: the original gives ${golden}`
    const difference = played(() => OPS[op.op](tree, leaves, op, { kind, identity }), op)
    if (difference !== undefined) return `op ${at} ${op.op}: ${difference}`
  }
  return undefined
}

/** TorchRL's tree: each node joins the two below it, in the dtype of the leaves. */
class TreeModel {
  #nodes
  #capacity
  #join
  #round

  constructor({ kind, dtype, size, capacity, identity }) {
    this.#round = dtype === 'float32' ? Math.fround : (value) => value
    this.#join = kind === 'sum' ? (a, b) => this.#round(a + b) : Math.min
    this.size = size
    this.identity = Number(identity)
    this.#capacity = 2 ** Math.floor(Math.log2(size) + 1)
    this.isWrong = capacity !== undefined && capacity !== this.#capacity
    this.#nodes = new Array(2 * this.#capacity).fill(this.identity)
  }

  /** Result of the original, if it differs from the row. */
  differs({ op, ok, error, ...args }) {
    if (this.isWrong) return `a capacity of ${this.#capacity}`
    if (error !== undefined) return undefined
    if (op === 'update') {
      this.#update([args.index].flat(), [args.value].flat())
      return ok === null ? undefined : 'nothing'
    }
    const all = {
      at: () => this.#leavesAt(args.index),
      query: () => [args.l].flat().map((start, at) => this.#query(start, [args.r].flat()[at])),
      scan: () => [args.x].flat().map((x) => this.#scan(this.#round(x))),
    }[op]()
    const shown = [ok].flat().map((value) => (typeof value === 'string' ? Number(value) : value))
    return isDeepStrictEqual(all, shown) && Array.isArray(ok) === Object.values(args).some(Array.isArray)
      ? undefined
      : JSON.stringify(all)
  }

  /** Of a list of one row the leaf comes as a single, whatever the dtype. */
  #leavesAt(index) {
    const leaves = [index].flat().map((row) => this.#nodes[row | this.#capacity])
    return Array.isArray(index) && index.length === 1 ? leaves.map(Math.fround) : leaves
  }

  #update(rows, values) {
    rows.forEach((row, at) => {
      let node = row | this.#capacity
      this.#nodes[node] = this.#round(values.length === 1 ? values[0] : values[at])
      for (node >>= 1; node > 0; node >>= 1)
        this.#nodes[node] = this.#join(this.#nodes[2 * node], this.#nodes[2 * node + 1])
    })
  }

  #query(start, end) {
    if (start <= 0 && end >= this.size) return this.#nodes[1]
    let result = this.identity
    let [left, right] = [start | this.#capacity, end | this.#capacity]
    while (left < right) {
      if (left & 1) result = this.#join(result, this.#nodes[left++])
      if (right & 1) result = this.#join(result, this.#nodes[--right])
      left >>= 1
      right >>= 1
    }
    return result
  }

  #scan(x) {
    if (x > this.#nodes[1]) return this.size
    let [node, left] = [1, x]
    while (node < this.#capacity) {
      node *= 2
      if (left > this.#nodes[node]) {
        left = this.#round(left - this.#nodes[node])
        node += 1
      }
    }
    return node ^ this.#capacity
  }
}

/** A call that must fail, or whose answer is compared. */
function played(run, { op, ok, error }) {
  try {
    const difference = run()
    if (error !== undefined) return 'must be refused'
    return op === 'update' && ok !== null ? `gives nothing, not ${ok}` : difference
  } catch (cause) {
    if (cause.code === undefined) throw cause
    return error === undefined ? cause.message : undefined
  }
}

const OPS = {
  update(tree, leaves, { index: rows, value: given }) {
    const [index, value] = [[rows].flat(), [given].flat()]
    const values = index.map((_, at) => (value.length === 1 ? value[0] : value[at]))
    tree.update(index, values)
    index.forEach((row, at) => {
      leaves[row] = values[at]
    })
  },
  at: (tree, _, { index, ok }, { identity }) =>
    firstDifference(tree.leaves([index].flat()), [ok].flat(), (got, want) =>
      got === undefined ? want === identity : got === Math.fround(want),
    ),
  query(tree, leaves, { l, r, ok }, { kind, identity }) {
    const ends = [r].flat()
    const got = [l].flat().map((start, at) => tree[kind](start, ends[at]))
    const near = (sum, want) => Math.abs(sum - want) <= slackOf(leaves, want)
    const least = (min, want) => (min === undefined ? want === identity : min === Math.fround(want))
    return firstDifference(got, [ok].flat(), kind === 'sum' ? near : least)
  },
  scan(tree, leaves, { x, ok }) {
    const got = tree.lowerBound([x].flat())
    // Sums of singles let the original run past its last leaf where x is all of them.
    const want = [ok].flat().map((row) => Math.min(row, leaves.length))
    return firstDifference(
      got,
      want,
      (row, other, at) => row === other || isTie(leaves, [x].flat()[at], row, other),
    )
  },
}

/** Returns whether the leaves reach `x` within rounding at both rows. */
function isTie(leaves, x, row, other) {
  const through = (last) => leaves.slice(0, last + 1).reduce((sum, leaf) => sum + leaf, 0)
  const [first, last] = [through(Math.min(row, other)), through(Math.max(row, other) - 1)]
  const slack = slackOf(leaves, x)
  // Sums of zeros are not rounded.
  return slack > 0 && [first, last].every((sum) => Math.abs(sum - x) <= slack)
}

const slackOf = (leaves, value) => RELATIVE * Math.max(Math.abs(value), ...leaves)

function firstDifference(got, want, isEqual) {
  if (got.length !== want.length) return `${got.length} items, not ${want.length}`
  const at = want.findIndex((value, index) => !isEqual(got[index], value, index))
  return at === -1 ? undefined : `item ${at} is ${got[at]}, not ${want[at]}`
}
