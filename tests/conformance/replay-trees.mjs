/**
 * Plays the rows of replay buffers whose items are no dictionaries. Here `fromPytree` makes them such and `toPytree` gives them back: an
 * item that is one leaf is a list of one.
 */

import { isDeepStrictEqual } from 'node:util'
import {
  fromPytree,
  LazyTensorStorage,
  ListStorage,
  NonTensorStack,
  ReplayBuffer,
  Tensor,
  TensorDict,
  toPytree,
} from 'fulmar'
import { decided, elementsOf, range, tensorIn } from './replay-rows.mjs'

const TOPICS = new Set(['pytree_payload', 'list_payload', 'string_payload'])
const CONVERTED = decided('an item that is no dictionary is made one by fromPytree')
const BATCHES = decided('a list of items takes a tree as a batch, not its members as items')

export const replayTrees = {
  topic: 'replay trees',
  members: {
    input: `id topic note setup.buffer setup.batch_size setup.storage.cls setup.storage.max_size setup.sampler.cls setup.writer.cls
      ops.*.op ops.*.data ops.*.index`,
    expected: 'ops.*.ok ops.*.state',
    refusal: 'ops.*.error:ok',
    aside: {},
  },
  matches: ({ topic, setup }) => setup !== undefined && TOPICS.has(topic),
  prepare: () => undefined,
  check: ({ value: row }) => played(row),
}

/** A row is compared to its end, also where the original fails half-way, and then counted as one that differs on purpose. */
function played({ setup, ops }) {
  const { cls, max_size: capacity } = setup.storage
  const isList = cls === 'ListStorage'
  const buffer = new ReplayBuffer({
    storage: isList ? new ListStorage(capacity) : new LazyTensorStorage(capacity),
  })
  const departs = isList && ops[0].data.$tuple !== undefined
  for (const [at, { op, data, index, ok, state }] of ops.entries()) {
    const got = OPS[op](buffer, data, index)
    const want = ok === undefined || departs ? undefined : plainOf(ok)
    if (want !== undefined && !isDeepStrictEqual(got, want)) {
      return `op ${at} ${op}: got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
    }
    if (departs || state.contents === 'same') continue
    const contents = treeOf(buffer.storage.get(range(buffer.length)))
    if (!isDeepStrictEqual(contents, plainOf(state.contents)))
      return `op ${at} ${op}: contents ${JSON.stringify(contents)}`
  }
  return departs ? BATCHES : CONVERTED
}

const OPS = {
  extend: (buffer, data) => plain([buffer.extend(batchOf(data))])[0],
  add: (buffer, data) => buffer.add(fromPytree([treeIn(data)])),
  len: (buffer) => buffer.length,
  get(buffer, _, index) {
    if (typeof index === 'number') return treeOf(buffer.storage.get([index]).index(0))
    const [start, stop] = index.$slice
    return treeOf(buffer.storage.get(range(stop ?? buffer.length).slice(start ?? 0)))
  },
}

function batchOf(data) {
  if (Array.isArray(data)) return TensorDict.stack(data.map((item) => fromPytree([treeIn(item)])))
  const tree = treeIn(data)
  return fromPytree(tree, { batchSize: [tree[0].shape[0]] })
}

function treeIn(value) {
  if (value?.$t) return tensorIn(value)
  const members = value?.$tuple ?? value
  if (Array.isArray(members)) return members.map(treeIn)
  if (value?.$dict) return Object.fromEntries(value.$dict.map(([name, inner]) => [name, treeIn(inner)]))
  return value
}

/** The tree of a dictionary as plain values; the leaf itself where it has one alone. */
function treeOf(dict) {
  const tree = plain(toPytree(dict))
  return Array.isArray(tree) && tree.length === 1 ? tree[0] : tree
}

const plainOf = (value) => plain(treeIn(value))

function plain(node) {
  if (node instanceof Tensor) return nested(elementsOf(node), node.shape)
  if (node instanceof NonTensorStack) return [...node.values]
  if (Array.isArray(node)) return node.map(plain)
  if (typeof node !== 'object' || node === null) return node
  return Object.fromEntries(Object.entries(node).map(([name, inner]) => [name, plain(inner)]))
}

function nested(elements, shape) {
  if (shape.length === 0) return elements[0]
  const size = elements.length / shape[0]
  return range(shape[0]).map((at) => nested(elements.slice(at * size, (at + 1) * size), shape.slice(1)))
}
