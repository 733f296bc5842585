/**
 * Compares sums, minima and searches of priorities with what TorchRL's segment trees gave. Our leaves are singles whose masses are whole
 * numbers of a unit: sums agree within a millionth, and a search may end at a neighbour where the sum is within that of the one sought.
 */

import { PriorityTree } from 'fulmar'

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

function ofTree({ kind, size, identity, ops }) {
  const tree = new PriorityTree(size)
  const leaves = new Array(size).fill(0)
  for (const op of ops) {
    const difference = played(() => OPS[op.op](tree, leaves, op, { kind, identity }), op)
    if (difference !== undefined) return `${op.op}: ${difference}`
  }
  return undefined
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

/** Whether the leaves reach `x` within rounding at both rows. */
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
