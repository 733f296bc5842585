/**
 * Compares hashes, maps, forests, scores and searches with what torchrl and mctx printed, and the moves of small games with the best ones.
 *
 * Hashes and maps are made with `compatible`, so -0 and NaN are those of the rows.
 */

import { isDeepStrictEqual } from 'node:util'
import { Tensor, TensorDict } from 'fulmar'
import * as room from 'fulmar/tree'
import { DTYPES } from './dtypes.mjs'
import { gameOf, grown, searched, solved } from './games.mjs'
import { decided } from './loss-rows.mjs'
import { attempt, dictIn, elementsOf, far, keyIn, numbersIn, range, skipped } from './replay-rows.mjs'

const KEYS = 'the length of a map or a forest counts keys, not writes'
const FIRST_DIM = 'a query takes a batch of any shape'
const CONTAINS = 'a map has only keys that were set'
const STATE = 'the numbers of hashes come back from their state'
const CLEARED = 'a map is emptied'
const MEETING = 'paths that meet share the vertex'

const WORDS = 'the words of another program'

const sip = () => new room.SipHash({ compatible: true })

/** The check of each topic, and the members of its rows. */
const TOPICS = {
  BinaryToDecimal: [ofBinary, 'num_bits convert_to_binary input', 'ok', 'error:ok'],
  SipHash: [ofSip, 'input', 'ok row_bytes_hex'],
  hash_info: [
    ofInfo,
    '',
    'algorithm hash_bits cutoff seed_bits',
    undefined,
    { python: 'the version of another program' },
  ],
  RandomProjectionHash: [
    ofProjection,
    'in_features n_components dtype_cast matrix input projected',
    'ok out_shape out_dtype repeatable transform_shape transform_dtype distinct',
    undefined,
    { statistics: 'numbers that were drawn' },
  ],
  HashToInt: [ofHashToInt, 'ops.*.keys ops.*.extend', 'ops.*.ok'],
  HashToInt_state_dict: [stateOfHashes, '', '', 'error:ok'],
  QueryModule: [ofQuery, 'in_keys clone ops.*.input ops.*.extend', 'ops.*.ok', 'ops.*.error:ok'],
  TensorDictMap: [ofMap, ...mapMembers()],
  TensorDictMap_write_fn: [ofMap, ...mapMembers()],
  MCTSForest: [
    ofForest,
    'rollouts max_size trees.*.compact trees.*.max_depth',
    'len_after forest_to_string trees.*.ok',
    'trees.*.error:ok',
    Object.fromEntries(
      [
        'len_after.*.error',
        'forest_to_string.class',
        'forest_to_string.bases',
        'forest_to_string.msg',
        'trees.*.ok.rollout_from_bad_path.error',
        'trees.*.ok.get_vertex_by_id.*.error',
        'trees.*.ok.by_hash_missing.error',
      ].map((path) => [path, WORDS]),
    ),
  ],
  MCTSForest_states: [
    ofStates,
    'rollouts root trees.*.compact',
    'len_after trees.*.ok',
    'trees.*.error:ok',
    { 'len_after.*.error': WORDS },
  ],
  MCTSForest_ctor: [ofDefaults, '', 'ok'],
  score: [ofScore, 'score input', 'ok', 'error:ok'],
  exp3: [
    ofExp3,
    'gamma input',
    'ok',
    undefined,
    // The action and the reward of an update are in the same list as its results.
    { 'ok.$dict.2.1.*.$dict.0.1': 'an input', 'ok.$dict.2.1.*.$dict.1.1': 'an input' },
  ],
  exp3_bad_gamma: [ofBadGamma, '', '', 'error:ok'],
  MCTSScores: [ofScores, '', 'members defaults'],
  muzero_policy: [ofSearch, ...searchMembers()],
  gumbel_muzero_policy: [ofSearch, ...searchMembers()],
  considered_visits_sequence: [ofHalving, 'max_num_considered_actions num_simulations', 'ok'],
  game: [ofGame, 'game state to_move', 'value best'],
}

function mapMembers() {
  return [
    'max_size in_keys out_keys write_fn ops.*.op ops.*.keys ops.*.values',
    'ops.*.ok ops.*.distinct ops.*.truth',
    undefined,
    { 'ops.*.upstream_len': 'a count of writes', 'ops.*.error': WORDS },
  ]
}

function searchMembers() {
  const input = 'S A batch num_simulations model root_state options invalid_actions root_gumbel'
  return [input, 'action action_weights tree summary']
}

export const trees = {
  topic: 'trees',
  members: ({ topic }) => {
    const [, input, expected, refusal, aside] = TOPICS[topic]
    return { input: `id topic note ${input}`, expected, ...(refusal && { refusal }), ...(aside && { aside }) }
  },
  tolerance: ({ topic }) =>
    /policy$|^score$|^exp3$/.test(topic) ? { relative: 1e-4, absolute: 1e-5 } : undefined,
  matches: ({ id, topic }) => id !== undefined && Object.hasOwn(TOPICS, topic ?? ''),
  prepare: () => undefined,
  check: ({ value: row }) => TOPICS[row.topic][0](row),
}

const exactly = (what, got, want) =>
  isDeepStrictEqual(got, want)
    ? undefined
    : `${what}: got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`

/** A tensor of any dtype of the rows. */
function tensorIn({ $t: name, s: shape, d: elements }) {
  const dtype = DTYPES[name]
  if (dtype === 'i64') return Tensor.from(BigInt64Array.from(elements, BigInt), { shape })
  if (dtype === 'bf16' || dtype === 'f16') return Tensor.from(numbersIn(elements), { shape }).to(dtype)
  const arrays = { f64: Float64Array, f32: Float32Array, i32: Int32Array, u8: Uint8Array, bool: Uint8Array }
  // Not `numbersIn`, which makes 0 of -0.
  return Tensor.from(arrays[dtype].from(elements, Number), { shape, dtype })
}

/** Integers of 64 bits, which a row has as numbers too long for JavaScript: compared as doubles. */
const longs = (tensor) => Array.from(tensor.data, Number)
const sameLongs = (what, got, want) =>
  exactly(`${what} dtype`, got.dtype, DTYPES[want.$t]) ??
  exactly(`${what} shape`, got.shape, want.s) ??
  exactly(what, longs(got), want.d.map(Number))

function sameTensor(what, got, want) {
  return (
    exactly(`${what} dtype`, got.dtype, DTYPES[want.$t]) ??
    exactly(`${what} shape`, [...got.shape], want.s) ??
    exactly(what, elementsOf(got), numbersIn(want.d))
  )
}

function nearTensor(what, got, want) {
  return (
    exactly(`${what} dtype`, got.dtype, DTYPES[want.$t]) ??
    exactly(`${what} shape`, [...got.shape], want.s) ??
    far(what, elementsOf(got), numbersIn(want.d), 1e-4, 1e-5)
  )
}

function sameDict(what, got, want) {
  const keys = exactly(`${what} keys`, got.keys().toSorted(), Object.keys(want.k).toSorted())
  const size = exactly(`${what} batch size`, [...got.batchSize], want.$td)
  return (
    keys ??
    size ??
    first(Object.entries(want.k), ([name, one]) =>
      one.$td ? sameDict(name, got.dict(name), one) : sameTensor(name, got.tensor(name), one),
    )
  )
}

function first(items, check) {
  for (const [at, item] of [...items].entries()) {
    const difference = check(item, at)
    if (difference !== undefined) return difference
  }
  return undefined
}

const refusedBy = (run) => (attempt(run).error ? undefined : 'must be refused')

function ofBadGamma({ error }) {
  return error ? refusedBy(() => new room.EXP3Score({ gamma: 1.5 })) : 'the original fails'
}

function ofBinary({ num_bits: numBits, convert_to_binary: convertToBinary, input, ok }) {
  const got = attempt(() => new room.BinaryToDecimal({ numBits, convertToBinary }).forward(tensorIn(input)))
  if (ok === undefined) return got.error ? undefined : 'must be refused'
  return got.error ? got.error.message : sameTensor('numbers', got.value, ok)
}

function ofSip({ input, ok, row_bytes_hex: hex }) {
  const rows = tensorIn(input)
  const given = input.$t === 'bfloat16' ? rows.to('f16') : rows
  const bytes = range(rows.shape[0]).map((at) => {
    const { data } = given.select(0, at)
    return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('hex')
  })
  return exactly('bytes', bytes, hex) ?? sameLongs('hashes', sip().forward(rows), ok)
}

function ofInfo({ algorithm, hash_bits: bits, cutoff, seed_bits: seed }) {
  const { data } = sip().forward(Tensor.from(Uint8Array.of(1), { shape: [1, 1] }))
  return exactly(
    'the hash',
    [algorithm, bits, cutoff, seed],
    ['siphash13', data.BYTES_PER_ELEMENT * 8, 0, 128],
  )
}

function ofProjection(row) {
  if (row.matrix) return ofGivenMatrix(row)
  if (row.statistics) return ofStatistics()
  const { in_features: features, n_components: numComponents } = row
  const rows = Tensor.from(
    Float32Array.from({ length: 5 * features }, (_, at) => Math.sin(at)),
    { shape: [5, features] },
  )
  const hash = new room.RandomProjectionHash({ numComponents })
  const hashes = hash.forward(rows)
  return (
    exactly('shape', [...hashes.shape], row.out_shape) ??
    exactly('dtype', hashes.dtype, DTYPES[row.out_dtype]) ??
    exactly('matrix', [...hash.matrix.shape], row.transform_shape) ??
    exactly('dtype of the matrix', hash.matrix.dtype, DTYPES[row.transform_dtype]) ??
    exactly('repeatable', isDeepStrictEqual(hash.forward(rows).data, hashes.data), row.repeatable) ??
    exactly('distinct', new Set(hashes.data).size, row.distinct)
  )
}

/** Whole numbers, whose sums are exact; a long matrix is given as a checksum only, with the projection. */
function ofGivenMatrix({ matrix, dtype_cast: cast, input, projected, ok }) {
  const dtype = DTYPES[cast]
  if (matrix.d === undefined)
    return sameLongs('hashes', new room.SipHash().forward(tensorIn(projected).to(dtype)), ok)
  const hash = new room.RandomProjectionHash({ matrix: tensorIn(matrix), dtype })
  return sameLongs('hashes', hash.forward(tensorIn(input)), ok)
}

function ofStatistics() {
  const hash = new room.RandomProjectionHash()
  hash.forward(Tensor.zeros('f32', [1, 4000]))
  const numbers = hash.matrix.toFloat32()
  const mean = numbers.reduce((sum, one) => sum + one, 0) / numbers.length
  const variance = numbers.reduce((sum, one) => sum + one * one, 0) / numbers.length - mean ** 2
  return Math.abs(mean) < 0.02 && Math.abs(variance - 1) < 0.03
    ? undefined
    : `mean ${mean}, variance ${variance}`
}

function ofHashToInt({ ops }) {
  const ids = new room.HashToInt()
  return first(ops, ({ keys, extend, ok }) =>
    sameLongs('numbers', ids.forward(Tensor.from(BigInt64Array.from(keys, BigInt)), { extend }), ok),
  )
}

function stateOfHashes({ error }) {
  if (error === undefined) return 'the original fails'
  const ids = new room.HashToInt()
  const hashes = Tensor.from(BigInt64Array.of(9n, -4n))
  ids.forward(hashes, { extend: true })
  const other = new room.HashToInt()
  other.loadStateDict(ids.stateDict())
  return decided(STATE, exactly('numbers', longs(other.forward(hashes)), [0, 1]))
}

function ofQuery({ in_keys: keys, ops }) {
  const hashModule = sip()
  const query = new room.QueryModule({ inKeys: keys.map(keyIn), hashModule, clone: true })
  let isDecided = false
  const difference = first(ops, ({ input, extend, ok }) => {
    const dict = mixedDict(input)
    const known = query.hashToInt.stateDict()
    const got = attempt(() => query.forward(dict, { extend }))
    if (ok === undefined) {
      const isMissing = query.inKeys.some((key) => !dict.has(key))
      if (isMissing || got.error) return isMissing && got.error ? undefined : 'any shape must be taken'
      if (dict.batchSize.length === 1) return 'the original takes rows'
      isDecided = true
      query.hashToInt.loadStateDict(known)
      // The original numbers the hashes of the first dimension before it fails.
      if (extend) query.forward(firstDim(dict, query.inKeys), { extend })
      return undefined
    }
    if (got.error) return got.error.message
    const [[, index], [, hash]] = ok.$dict
    return (
      exactly(
        'results',
        ok.$dict.map(([name]) => name[0]),
        ['i', 'h'],
      ) ??
      sameLongs('numbers', got.value.tensor('_index'), index) ??
      sameLongs('hashes', got.value.tensor('_hash'), hash)
    )
  })
  return difference ?? (isDecided ? decided(FIRST_DIM) : undefined)
}

function mixedDict({ $td: batchSize, k: entries }) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [name, value] of Object.entries(entries))
    dict.set([name], value.$td ? mixedDict(value) : tensorIn(value))
  return dict
}

function firstDim(dict, keys) {
  const rows = TensorDict.from({}, { batchSize: dict.batchSize.slice(0, 1) })
  for (const key of keys) rows.set(key, dict.tensor(key))
  return rows
}

/** `v` is a single; rows of keys have `w` in addition. */
function ofMap({ max_size: maxSize, write_fn: writeFn, ops }) {
  const sum = (values, old) => {
    if (!old) return values
    const merged = TensorDict.from({}, { batchSize: values.batchSize })
    for (const [key] of values.leafKeys()) {
      const [one, other] = [values.tensor(key), old.tensor(key)]
      merged.set(
        key,
        Tensor.from(
          one.data.map((number, at) => number + other.data[at]),
          { shape: one.shape },
        ),
      )
    }
    return merged
  }
  const queryModule = new room.QueryModule({ inKeys: ['k'] })
  const map = new room.TensorDictMap({ queryModule, maxSize, ...(writeFn && { writeFn: sum }) })
  const known = { names: new Set(), writes: 0 }
  const decisions = new Set()
  const difference = first(ops, (op) => ofMapOp(op, map, known, decisions))
  return difference ?? (decisions.size > 0 ? decided([...decisions].join('; ')) : undefined)
}

function ofMapOp({ op, keys, values, ok, error, truth, distinct }, map, known, decisions) {
  const batch = keys && keysDict(keys)
  const names = keys?.map(String)
  const has = names?.map((name) => known.names.has(name))
  const ours = (rule, is) => {
    if (is) decisions.add(rule)
    return undefined
  }
  const afterwards = () =>
    distinct === undefined ? undefined : exactly('distinct keys', map.length, distinct)
  switch (op) {
    case 'set': {
      const got = attempt(() => map.set(batch, valuesDict(values, Array.isArray(keys[0]))))
      if ((got.error !== undefined) !== (error !== undefined)) return got.error?.message ?? 'must be refused'
      if (!got.error) {
        for (const name of names) known.names.add(name)
        known.writes += names.length
      }
      return (ok === undefined || ok === null ? undefined : 'a write returns nothing') ?? afterwards()
    }
    case 'get': {
      const got = attempt(() => map.get(batch))
      return got.error ? got.error.message : (sameDict('values', got.value, ok) ?? afterwards())
    }
    case 'contains':
    case 'in': {
      const got = Array.from(map.contains(batch).data, Boolean)
      const wanted = exactly('contains', got, truth ?? has)
      const said = error ? undefined : op === 'in' ? [ok] : ok?.d
      if (ok?.$t !== undefined && ok.$t !== 'bool') return 'an answer is a bool'
      if (ok?.s && !isDeepStrictEqual(ok.s, [keys.length])) return 'an answer for each key'
      // To the original, a key that was never set is there once there were more writes than keys.
      const claimed = has.map((is) => is || known.names.size < known.writes)
      const original = said && exactly('what the original says', said, claimed)
      return wanted ?? original ?? ours(CONTAINS, !isDeepStrictEqual(said, got)) ?? afterwards()
    }
    case 'len':
      return (
        exactly('what the original counts', ok, known.writes) ??
        exactly('length', map.length, known.names.size) ??
        ours(KEYS, ok !== known.names.size)
      )
    case 'clear': {
      const before = known.names.size
      const copy = map.stateDict()
      map.clear()
      const emptied = exactly('length', map.length, 0)
      // The original fails, and keeps its content.
      map.loadStateDict(copy)
      return (
        emptied ??
        exactly('length', map.length, before) ??
        (error ? ours(CLEARED, true) : 'the original fails')
      )
    }
    default:
      return `${op} is not known`
  }
}

function keysDict(keys) {
  const shape = Array.isArray(keys[0]) ? [keys.length, keys[0].length] : [keys.length]
  const k = Tensor.from(BigInt64Array.from(keys.flat(), BigInt), { shape })
  return TensorDict.from({ k }, { batchSize: [keys.length] })
}

function valuesDict(values, hasWide) {
  const dict = TensorDict.from({ v: Tensor.from(values) }, { batchSize: [values.length] })
  const wide = BigInt64Array.from(
    values.flatMap((one) => [one, one, one]),
    BigInt,
  )
  return hasWide ? dict.set('w', Tensor.from(wide, { shape: [values.length, 3] })) : dict
}

/** Adds rollouts; returns what is wrong with the lengths after each, and whether the original counts writes. */
function filled(forest, { rollouts, len_after: lengths }) {
  let counts = false
  const pairs = new Set()
  const difference = first(rollouts, (rollout, at) => {
    const dict = dictIn(rollout)
    const got = attempt(() => forest.extend(dict))
    const want = lengths[at]
    if (want?.error !== undefined) return got.error ? undefined : 'must be refused'
    if (got.error) return got.error.message
    for (const step of range(dict.batchSize[0]))
      pairs.add(String([dict.index(step).tensor('observation').data, dict.index(step).tensor('action').data]))
    const written = lengths.slice(0, at).reduce((most, one) => Math.max(most, one), 0) + dict.batchSize[0]
    const isSame = want === pairs.size
    counts ||= !isSame
    return (
      exactly('length', forest.length, pairs.size) ??
      (isSame || want === written ? undefined : `a length of ${want}`)
    )
  })
  return { difference, counts }
}

function ofForest(row) {
  const { max_size: maxSize, trees: cases, forest_to_string: text } = row
  const forest = new room.MCTSForest({ compatible: true, ...(maxSize && { maxSize }) })
  const { difference, counts } = filled(forest, row)
  if (difference) return difference
  const root = dictIn(row.rollouts[0]).index(0)
  const label = (vertex) => `[${elementsOf(vertex.nodeObservation).join(', ')}]`
  const whole = attempt(() => forest.toString(root, label))
  const written =
    typeof text === 'string' ? exactly('text', whole.value, text) : refusedBy(() => forest.getTree(root))
  const wrong = written ?? first(cases, (one) => ofTree(forest, root, one, label))
  return wrong ?? (counts ? decided(KEYS) : undefined)
}

function ofTree(forest, root, { compact, max_depth: maxDepth, ok, error }, label) {
  const got = attempt(() => forest.getTree(root, { compact, ...(maxDepth !== null && { maxDepth }) }))
  if (error !== undefined) return got.error ? undefined : 'must be refused'
  if (got.error) return got.error.message
  const tree = got.value
  const { tree: vertex, rollout_from_path: along, ...facts } = ok
  return (
    ofVertex(tree, vertex, []) ??
    first(Object.entries(facts), ([name, want]) =>
      Object.hasOwn(FACTS, name) ? FACTS[name](tree, want, label) : `${name} is not known`,
    ) ??
    exactly(
      'paths of steps',
      along.map(({ path }) => path),
      [...tree.validPaths()],
    ) ??
    first(along, ({ path, ok: steps }) =>
      alongPath(tree.rolloutFromPath(path), Object.fromEntries(steps.$dict)),
    )
  )
}

const FACTS = {
  num_vertices: (tree, want) => exactly('vertices', tree.numVertices(), want),
  num_vertices_repeat: (tree, want) =>
    exactly('vertices', new Set(tree.vertices({ keyType: 'path' }).values()).size, want),
  edges: (tree, want) => exactly('edges', tree.edges(), want),
  valid_paths: (tree, want) => exactly('paths', [...tree.validPaths()], want),
  max_length: (tree, want) => exactly('length', tree.maxLength(), want),
  vertex_ids: (tree, want) => exactly('ids', [...tree.vertices().keys()].map(Number), want),
  vertex_hash_keys: (tree, want) =>
    exactly(
      'ids',
      [...tree.vertices({ keyType: 'hash' }).values()].map((one) => one.nodeId),
      want,
    ),
  vertex_paths: (tree, want) =>
    exactly(
      'paths',
      [...tree.paths()].map(([path]) => path),
      want,
    ),
  to_string: (tree, want, label) => exactly('text', tree.toString(label), want),
  rollout_from_bad_path: (tree, want) =>
    want.error ? refusedBy(() => tree.rolloutFromPath([99])) : 'the original fails',
  rollout_from_empty_path: (tree, { ok }) => {
    const steps = tree.rolloutFromPath([])
    if (ok === null || steps === undefined) return exactly('steps', steps ?? null, ok)
    return sameDict('steps', steps, ok)
  },
  get_vertex_by_id: (tree, want) =>
    exactly('ids', want.length, 3) ??
    first([0, 1, 99], (id, at) => {
      const one = want[at]
      const got = attempt(() => tree.getVertexById(id).nodeId)
      return one.error ? (got.error ? undefined : 'must be refused') : exactly('id', got.value, one.ok)
    }),
  by_hash: (tree, { ok }) =>
    exactly('vertex', tree.getVertexByHash(tree.getVertexById(ok).hash).nodeId, ok) ??
    (ok === 1 ? undefined : 'the vertex 1'),
  by_hash_missing: (tree, want) =>
    want.error ? refusedBy(() => tree.getVertexByHash(1234n)) : 'the original fails',
  in: (tree, want) => {
    const stranger = { hash: 1234n }
    return exactly(
      'in',
      [tree.has(tree.getVertexById(1)), tree.has(stranger)],
      want.map(({ ok }) => ok),
    )
  },
}

function ofVertex(vertex, row, path) {
  const tensor = (dtype, shape, elements) => ({ $t: dtype, s: shape, d: elements })
  const terminal =
    typeof row.is_terminal === 'boolean' ? vertex.isTerminal : tensor('bool', [], [vertex.isTerminal])
  const places = vertex.index === undefined ? null : [...vertex.index]
  const action = (what, got, want) =>
    want === null ? exactly(what, got, undefined) : sameTensor(what, got, want)
  return (
    exactly('path', path, row.path) ??
    exactly('id', vertex.nodeId, row.node_id) ??
    exactly('count', vertex.count, 0) ??
    exactly('count', tensor('int32', [], [0]), row.count) ??
    exactly('wins', tensor('float32', [], [0]), row.wins) ??
    exactly('index', places && tensor('int64', [places.length], places), row.index) ??
    exactly('hash', vertex.hash === undefined ? null : Number(vertex.hash), row.hash) ??
    exactly('children', vertex.numChildren, row.num_children) ??
    exactly('terminal', terminal, row.is_terminal) ??
    sameDict('data', vertex.nodeData, row.node_data) ??
    (row.rollout ? alongPath(vertex.rollout, row.rollout) : exactly('steps', vertex.rollout, undefined)) ??
    action('first action', vertex.branchingAction, row.branching_action) ??
    action('last action', vertex.prevAction, row.prev_action) ??
    exactly('children', vertex.subtree.length, row.children.length) ??
    first(row.children, (child, at) => ofVertex(vertex.subtree[at], child, [...path, at]))
  )
}

/** The columns of steps as lists. */
function alongPath(steps, want) {
  const of = {
    action: ['action'],
    observation: ['observation'],
    next_observation: ['next', 'observation'],
    reward: ['next', 'reward'],
  }
  return first(Object.entries(want), ([name, numbers]) =>
    Object.hasOwn(of, name)
      ? exactly(name, elementsOf(steps.tensor(of[name])), numbers)
      : `${name} is not known`,
  )
}

function ofStates(row) {
  const isWrong = row.len_after.some((one) => one?.error)
  const forest = new room.MCTSForest({ compatible: true, ...(isWrong && { observationKeys: ['obs'] }) })
  const { difference, counts } = filled(forest, row)
  if (difference) return difference
  let meets = false
  const wrong = first(row.trees, ({ compact, ok, error }) => {
    const got = attempt(() => forest.getTree(dictIn(row.root), { compact }))
    if (error) {
      // The original stacks the steps of two ways to one vertex, and fails.
      const shared =
        got.value && [...got.value.vertices().values()].some((vertex) => vertex.parents.length > 1)
      meets ||= shared === true
      return got.error || shared ? undefined : 'must be refused'
    }
    if (got.error) return got.error.message
    return ofStatesTree(got.value, ok)
  })
  const rules = [...(meets ? [MEETING] : []), ...(counts ? [KEYS] : [])]
  return wrong ?? (rules.length > 0 ? decided(rules.join('; ')) : undefined)
}

function ofStatesTree(tree, ok) {
  const { num_vertices: count, edges, valid_paths: paths, max_length: length, to_string: text, rollouts } = ok
  const label = (vertex) => String(elementsOf(vertex.nodeObservation))
  return (
    exactly('vertices', tree.numVertices(), count) ??
    exactly('edges', tree.edges(), edges) ??
    exactly('paths', [...tree.validPaths()], paths) ??
    exactly('length', tree.maxLength(), length) ??
    exactly('text', tree.toString(label), text) ??
    exactly(
      'paths of steps',
      (rollouts ?? []).map(({ path }) => path),
      rollouts ? paths : [],
    ) ??
    first(rollouts ?? [], ({ path, ...columns }) => alongPath(tree.rolloutFromPath(path), columns))
  )
}

function ofDefaults({ ok }) {
  const { rewardKeys, doneKeys, actionKeys, observationKeys } = new room.MCTSForest()
  return exactly('keys', [rewardKeys, doneKeys, actionKeys, observationKeys], ok)
}

const SCORES = {
  'PUCT(c=5)': () => room.MCTSScores.PUCT(),
  'PUCT(c=1.5)': () => new room.PUCTScore({ c: 1.5 }),
  'UCB(c=sqrt2)': () => room.MCTSScores.UCB(),
  'UCB(c=0)': () => new room.UCBScore({ c: 0 }),
  'UCB1_TUNED(2)': () => room.MCTSScores.UCB1_TUNED(),
  'UCB1_TUNED(.5)': () => new room.UCB1TunedScore({ explorationConstant: 0.5 }),
}

function ofScore({ score, input, ok }) {
  const made = scoreOf(score)
  if (made === undefined) return `${score} is not known`
  const got = attempt(() => made.forward(dictIn(input)).tensor('score'))
  if (ok === undefined) return got.error ? undefined : 'must be refused'
  return got.error ? got.error.message : nearTensor('score', got.value, ok)
}

/** The score of a text such as `UCB(c=0.3)`. */
function scoreOf(text) {
  if (Object.hasOwn(SCORES, text)) return SCORES[text]()
  const [, name, constant] = /^(\w+)\((?:c=)?([\d.]+)\)$/.exec(text) ?? []
  if (name === 'PUCT') return new room.PUCTScore({ c: Number(constant) })
  if (name === 'UCB') return new room.UCBScore({ c: Number(constant) })
  return name === 'UCB1_TUNED'
    ? new room.UCB1TunedScore({ explorationConstant: Number(constant) })
    : undefined
}

function ofExp3({ gamma, input, ok }) {
  const score = new room.EXP3Score({ gamma })
  const node = score.forward(dictIn(input))
  const plain = Object.fromEntries(ok.$dict)
  const asTensor = (value) => (value.$dict ? Object.fromEntries(value.$dict) : value)
  return (
    exactly('results', Object.keys(plain), ['score', 'action_prob', 'updates']) ??
    nearTensor('score', node.tensor('score'), plain.score) ??
    nearTensor('action_prob', node.tensor('action_prob'), plain.action_prob) ??
    first(plain.updates, (update) => {
      const { action, reward, weights, score: after, ...others } = Object.fromEntries(update.$dict)
      if (!weights || !after || Object.keys(others).length > 0) return 'weights and scores after an update'
      score.updateWeights(node, action, reward)
      const wrong = nearTensor('weights', node.tensor('weights'), asTensor(weights))
      return wrong ?? nearTensor('score', score.forward(node).tensor('score'), asTensor(after))
    })
  )
}

/** Each class computes with the constants and the keys that the row names. */
function ofScores({ members, defaults }) {
  const keys = {
    win_count: [1, 2],
    visits: [1000, 900],
    total_visits: [3000, 3000],
    prior_prob: [0.5, 0.5],
    sum_squared_rewards: [1, 2],
    weights: [2, 1],
  }
  const node = () =>
    TensorDict.from({
      ...Object.fromEntries(Object.entries(keys).map(([name, one]) => [name, Tensor.from(one)])),
      num_actions: Tensor.from([2], { shape: [] }),
    })
  const { PUCTScore, UCBScore, UCB1TunedScore, EXP3Score } = room
  const classes = { PUCT: PUCTScore, UCB: UCBScore, UCB1_TUNED: UCB1TunedScore, EXP3: EXP3Score }
  const renamed = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())
  return (
    exactly('names', Object.keys(room.MCTSScores), members) ??
    exactly('names', Object.keys(defaults), members) ??
    first(members, (name) => {
      const want = room.MCTSScores[name]().forward(node()).tensor('score').data
      const { reward_key: reward, ...options } = defaults[name]
      if (name === 'EXP3' && reward !== 'reward') return 'the key of a reward'
      const made = new classes[name](
        Object.fromEntries(Object.entries(options).map(([key, value]) => [renamed(key), value])),
      )
      const got = made.forward(node())
      const written = ['score', ...(name === 'EXP3' ? ['action_prob'] : [])]
      const added = got.keys().filter((key) => key !== 'num_actions' && !Object.hasOwn(keys, key))
      return exactly(`${name} writes`, added, written) ?? exactly(name, got.tensor('score').data, want)
    })
  )
}

const SEARCHES = { muzero_policy: 'muzero', gumbel_muzero_policy: 'gumbel' }
const UPSTREAM_OPTIONS = {
  max_depth: 'maxDepth',
  pb_c_init: 'pbCInit',
  pb_c_base: 'pbCBase',
  gumbel_scale: 'gumbelScale',
  max_num_considered_actions: 'maxNumConsideredActions',
  temperature: 'temperature',
  dirichlet_fraction: 'dirichletFraction',
  dirichlet_alpha: 'dirichletAlpha',
}

async function ofSearch(row) {
  const columns = Object.fromEntries(Object.entries(row.model).map(([name, one]) => [name, tensorIn(one)]))
  const model = new room.TableModel(columns)
  const options = Object.entries(row.options).map(([name, value]) => [UPSTREAM_OPTIONS[name], value])
  if (options.some(([name]) => name === undefined)) return skipped('an option that is not known')
  const result = await room.search({
    root: model.root(row.root_state.d),
    model,
    numSimulations: row.num_simulations,
    policy: SEARCHES[row.topic],
    dirichletFraction: 0,
    temperature: 0,
    ...(row.invalid_actions && { invalidActions: numbersIn(row.invalid_actions) }),
    ...(row.root_gumbel && { rootGumbel: tensorIn(row.root_gumbel) }),
    ...Object.fromEntries(options),
  })
  const { embeddings, ...arrays } = row.tree
  const tree = result.tree
  const { visitCounts, visitProbs, value, qvalues } = result.summary
  const summary = { visit_counts: visitCounts, visit_probs: visitProbs, value, qvalues }
  return (
    first(Object.entries(arrays), ([name, want]) =>
      want.$t === 'int32'
        ? sameTensor(name, tree.tensor(name), want)
        : nearTensor(name, tree.tensor(name), want),
    ) ??
    exactly('summary', Object.keys(row.summary).toSorted(), Object.keys(summary).toSorted()) ??
    first(Object.entries(row.summary), ([name, want]) => nearTensor(name, summary[name], want)) ??
    nearTensor('weights', result.actionWeights, row.action_weights) ??
    exactly('action', { $t: 'int32', s: [tree.batchSize[0]], d: [...result.action] }, row.action) ??
    embedded(row, tree, embeddings)
  )
}

/** The states of all nodes, from the root along the actions. */
function embedded({ model, root_state: roots }, tree, want) {
  const [numTrees, numNodes] = tree.batchSize
  const [parents, actions] = [tree.tensor('parents').data, tree.tensor('action_from_parent').data]
  const numActions = model.next.s[1]
  const states = range(numTrees).flatMap((at) => {
    const known = [roots.d[at]]
    for (const node of range(numNodes).slice(1)) {
      const cell = at * numNodes + node
      known.push(parents[cell] < 0 ? 0 : model.next.d[known[parents[cell]] * numActions + actions[cell]])
    }
    return known
  })
  return exactly('embeddings', want, { $t: 'int32', s: [numTrees, numNodes], d: states })
}

/** The visits that a bandit of equal values gives each action, which are those that halving considers. */
async function ofHalving({ max_num_considered_actions: max, num_simulations: numSimulations, ok }) {
  const numActions = Math.max(1, max)
  const zeros = () => Tensor.zeros('f32', [1, numActions])
  const model = new room.TableModel({
    next: Tensor.zeros('i32', [1, numActions]),
    reward: zeros(),
    discount: zeros(),
    logits: zeros(),
    value: Tensor.zeros('f32', [1]),
  })
  // The first of equal actions is taken, so its visits before each simulation are those that are considered.
  const rootGumbel = Float32Array.from({ length: numActions }, (_, at) => -at * 100)
  const root = model.root([0])
  const options = { root, model, policy: 'gumbel', rootGumbel, maxNumConsideredActions: max, numSimulations }
  const { tree } = await room.search(options)
  const [parents, actions] = [tree.tensor('parents').data, tree.tensor('action_from_parent').data]
  const visits = range(numActions).map(() => 0)
  const depth = [0]
  const firstAction = [undefined]
  const considered = range(numSimulations).map((at) => {
    const node = at + 1
    const parent = parents[node]
    depth[node] = depth[parent] + 1
    firstAction[node] = parent === 0 ? actions[node] : firstAction[parent]
    return visits[firstAction[node]]++
  })
  return exactly('considered visits', considered, ok)
}

const answered = new Map()

/** A search that grows a forest takes a second, so it plays every eighth position; with `FULMAR_TEST_LONG` all. */
const GROWN_SHARE = process.env.FULMAR_TEST_LONG ? 1 : 8

/** The row's moves are those of an exhaustive search, and both searches find one of them. */
async function ofGame(row) {
  const game = gameOf(row)
  const { value, best } = solved(game.rules, game.position)
  const wrong = exactly('value', value, row.value) ?? exactly('moves', best.map(game.move), row.best)
  if (wrong) return wrong
  const key = JSON.stringify([row.game, row.state, row.to_move])
  if (!answered.has(key)) answered.set(key, await answersTo(game, answered.size % GROWN_SHARE === 0))
  const { move, value: estimate, grownMove = move } = answered.get(key)
  if (!best.includes(move)) return `the search moves ${game.move(move)}, best ${row.best}`
  if (!best.includes(grownMove)) return `the forest moves ${game.move(grownMove)}, best ${row.best}`
  const isEmpty = row.game.startsWith('tic-tac-toe') && row.state.every((cell) => cell === 0)
  return isEmpty && Math.abs(estimate) > 0.05 ? `the empty board is worth ${estimate}` : undefined
}

async function answersTo(game, isGrown) {
  const numSimulations = game.simulations ?? 2000
  const found = await searched(game, numSimulations)
  return isGrown ? { ...found, grownMove: grown(game, numSimulations) } : found
}
