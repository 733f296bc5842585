/**
 * Compares transforms with what TorchRL made of the same dictionaries: each row one class and one call, or a program of writes.
 *
 * Floats are compared to a relative 1e-5 and an absolute 1e-6, resized images to an absolute 1e-4. Of a refusal only the fact
 * counts.
 */

import { Tensor, TensorDict } from 'fulmar'
import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
import {
  ActionChunkTransform,
  BinarizeReward,
  BurnInTransform,
  CatFrames,
  CatTensors,
  CenterCrop,
  DensifyReward,
  DoubleToFloat,
  ExcludeTransform,
  FlattenObservation,
  GrayScale,
  MultiStep,
  MultiStepTransform,
  NextStateReconstructor,
  PolicyAgeFilter,
  RandomCropTensorDict,
  RenameTransform,
  Resize,
  Reward2GoTransform,
  RewardClipping,
  RewardScaling,
  SelectTransform,
  SignTransform,
  splitTrajectories,
  splitTrajectoriesRagged,
  ToTensorImage,
  UnsqueezeTransform,
} from 'fulmar/transform'
import { decided } from './loss-rows.mjs'

/** Classes of which a row is one call. */
const CLASSES = {
  ActionChunkTransform,
  BinarizeReward,
  CatFrames,
  CatTensors,
  CenterCrop,
  DensifyReward,
  DoubleToFloat,
  ExcludeTransform,
  FlattenObservation,
  GrayScale,
  NextStateReconstructor,
  PolicyAgeFilter,
  RenameTransform,
  Resize,
  Reward2GoTransform,
  RewardClipping,
  RewardScaling,
  SelectTransform,
  SignTransform,
  ToTensorImage,
  UnsqueezeTransform,
}
const DTYPES = {
  float32: ['f32', Float32Array],
  float64: ['f64', Float64Array],
  int64: ['i64', BigInt64Array],
  int8: ['i8', Int8Array],
  uint8: ['u8', Uint8Array],
  bool: ['bool', Uint8Array],
}
const DONES = ['done', 'terminated', 'truncated']

const PADDING = 'nothing looks into padding'
const NONTERMINAL = 'one step is terminal only where its trajectory ends'
const LAST_WINDOW = 'the last window is drawn as often as the others'
const NESTED_KEY = 'a list of names is a nested key'
const NEXT_KEPT = 'rewards and ends of `next` are kept, too'
const FUNCTIONS = 'a plain function can be put anywhere'

/** Topics that are no class with `config` and `direction`. */
const PROGRAMS = {
  MultiStep: ofMultiStep,
  MultiStepTransform: ofWrites,
  RandomCropTensorDict: ofCrops,
  BurnInTransform: ofBurnIn,
  split_trajectories: ofSplit,
  transform_order: ofOrder,
}

export const transforms = {
  topic: 'transforms',
  members: {
    input: 'id topic note config direction input n_steps gamma ndim length ops.*.extend',
    expected: 'ok ops.*.contents ops.*.len ops.*.ok',
    refusal: 'error:ok',
    aside: {},
  },
  tolerance: ({ topic }) => (topic === 'Resize' ? { relative: 1e-5, absolute: 1e-4 } : undefined),
  matches: ({ topic }) => topic in PROGRAMS || topic in CLASSES,
  prepare: () => undefined,
  check: ({ value: row }) => (PROGRAMS[row.topic] ?? ofCall)(row),
}

function ofCall(row) {
  const input = dictIn(row.input)
  const method = row.direction
  const got = attempt(() => new CLASSES[row.topic](optionsOf(row))[method](input))
  if (got.error || row.ok === undefined) return ofRefusal(row, got)
  const want = dictIn(row.ok)
  const difference = compared(got.value, want, row.topic === 'Resize' ? 1e-4 : 1e-6)
  if (difference === undefined) return undefined
  if (row.topic === 'ActionChunkTransform' && 'doneKey' in optionsOf(row)) {
    // TorchRL does not find a nested key that is a list, and then looks for no end at all.
    const endless = new ActionChunkTransform({ ...optionsOf(row), doneKey: null })
    if (compared(endless.forward(input), want) === undefined) return decided(NESTED_KEY)
  }
  if (row.topic === 'SelectTransform' && row.direction === 'forward')
    return decided(NEXT_KEPT, compared(withoutNext(got.value, optionsOf(row)), want))
  return difference
}

/** Without the rewards and ends of `next` that are not named, which the original drops. */
function withoutNext(got, { keys }) {
  const named = keys.map((key) => [key].flat().join())
  const kept = ['reward', ...DONES].map((name) => ['next', name]).filter((key) => !named.includes(key.join()))
  const rest = got.exclude(kept.filter((key) => got.has(key)))
  const isBare = rest.has('next') && rest.dict('next').keys().length === 0
  return isBare ? rest.exclude(['next']) : rest
}

function ofMultiStep(row) {
  const input = dictIn(row.input)
  const run = (legacyDone) => attempt(() => new MultiStep({ ...stepsOf(row), legacyDone }).forward(input))
  const [legacy, fixed] = [run(true), run(false)]
  if (legacy.error || row.ok === undefined) return ofRefusal(row, fixed)
  return endsOfArrival(input, fixed.value, legacy.value) ?? judged(row, legacy.value, dictIn(row.ok), input)
}

/** `fixed` is `legacy` but for the ends, which come from `steps_to_next_obs - 1` steps further on. */
function endsOfArrival(input, fixed, legacy) {
  const counts = numbersOf(fixed.tensor('steps_to_next_obs'))
  for (const name of DONES) {
    const before = numbersOf(input.tensor(['next', name]))
    const got = numbersOf(fixed.tensor(['next', name]))
    if (got.some((end, at) => end !== before[at + counts[at] - 1]))
      return `${name} is not that of the arrival`
  }
  const ends = DONES.map((name) => ['next', name])
  return compared(fixed.exclude(ends), legacy.exclude(ends), 0)
}

const rowsOf = (dict) => (dict ? dict.batchSize.reduce((count, length) => count * length, 1) : 0)

/** Rows in the order in which they are stored, time first. */
function placesDiffer({ ok, len, expected }, before, contents, time) {
  const after = rowsOf(contents)
  const lanes = time === 1 && contents ? contents.batchSize[0] : 1
  const places = (from, to) => Array.from({ length: to - from }, (_, at) => from + at)
  const written = places(before, after).flatMap((row) =>
    time === 1 ? [Math.floor(row / lanes), row % lanes] : [row],
  )
  const shape = time === 1 ? [after - before, 2] : after === before ? [0, 1] : [after - before]
  const want = JSON.stringify([after, 'int64', shape, written])
  const got = JSON.stringify([len, ok.$t, ok.s, ok.d])
  if (got !== want) return `rows are ${want}, not ${got}`
  if (expected === null) return undefined
  const { index } = expected.k
  const sizes = time === 1 ? contents.batchSize.toReversed() : contents.batchSize
  // In two dimensions each row shows the first of its coordinates alone.
  const shown = places(0, after).map((row) => (time === 1 ? Math.floor(row / lanes) : row))
  const isIndex = JSON.stringify([index.$t, index.s, index.d]) === JSON.stringify(['int64', sizes, shown])
  return isIndex ? undefined : `the index is ${JSON.stringify(index)}`
}

/** Writes, each through a new transform that restores the state of the one before. */
function ofWrites(row) {
  const build = () => new MultiStepTransform({ ...stepsOf(row), legacyDone: true })
  const made = attempt(build)
  if (made.error) return ofRefusal(row, made)
  let transform = made.value
  let contents
  let outcome
  for (const { extend, contents: expected, ok, len } of row.ops) {
    const before = rowsOf(contents)
    const state = transform.stateDict()
    transform = build()
    transform.loadStateDict(state)
    const items = dictIn(extend)
    const time = items.batchSize.length - 1
    const stored = transform.inverse(items)
    if (stored) contents = contents ? TensorDict.cat([contents, stored], time) : stored
    const placed = placesDiffer({ ok, len, expected }, before, contents, time)
    if (placed) return placed
    if (expected === null) {
      if (contents) return 'nothing must be stored yet'
      continue
    }
    const want = dictIn(expected).exclude(['index'])
    // A buffer of two dimensions lists time first.
    const isTurned = time === 1 && String(contents.batchSize) !== String(want.batchSize)
    const judgement = judged(row, isTurned ? contents.transpose(0, 1) : contents, want)
    if (typeof judgement === 'string') return judgement
    outcome = judgement ?? outcome
  }
  return outcome
}

function judged(row, got, want, input) {
  const difference = compared(got, want)
  if (difference === undefined) return undefined
  if (input?.has(['collector', 'mask'])) {
    // The original sees no padding: its answer is ours to steps that are all there.
    const bare = input.exclude([['collector', 'mask']])
    const whole = new MultiStep({ ...stepsOf(row), legacyDone: true }).forward(bare)
    const mask = input.get(['collector', 'mask'])
    const shown = numbersOf(mask)
    const goesOn = numbersOf(whole.tensor('nonterminal')).map((one, at) => one * shown[at])
    whole.set(['collector', 'mask'], mask)
    whole.set('nonterminal', Tensor.from(goesOn, { shape: whole.tensor('nonterminal').shape, dtype: 'bool' }))
    return decided(PADDING, compared(whole, want), wholeLanes(got, want))
  }
  if (row.n_steps !== 1) return difference
  const ours = got.tensor('nonterminal')
  const theirs = Tensor.zeros('bool', [...ours.shape])
  return decided(
    NONTERMINAL,
    compared(got.set('nonterminal', theirs), want),
    numbersOf(ours).includes(1) ? undefined : difference,
  )
}

/** Lanes without padding are the same. */
function wholeLanes(got, want) {
  const mask = numbersOf(got.tensor(['collector', 'mask']))
  const length = got.batchSize[1]
  const isWhole = (at) => !mask.slice(at - (at % length), at - (at % length) + length).includes(0)
  const rows = [...mask.keys()].filter(isWhole)
  const only = (dict) => dict.reshape([-1]).indexSelect(rows)
  return compared(only(got), only(want))
}

function ofCrops(row) {
  const { length } = row
  const size = row.config.sub_seq_len
  const crop = new RandomCropTensorDict(optionsOf(row))
  const ids = Tensor.from(
    Array.from({ length }, (_, at) => at),
    { shape: [1, length] },
  )
  const batch = TensorDict.from({ id: ids }, { batchSize: [1, length] })
  const reached = new Set()
  for (let draw = 0; draw < 300; draw++) {
    const got = attempt(() => crop.forward(batch))
    if (got.error) return row.error && size > length ? undefined : got.error.message
    const window = numbersOf(got.value.tensor('id'))
    const isWindow = window.length === size && window.every((id, at) => id === window[0] + at)
    if (!isWindow) return `no window: ${window}`
    reached.add(window[0])
  }
  const all = Array.from({ length: length - size + 1 }, (_, start) => start)
  const theirs =
    row.ok === undefined ? { starts_reached: [], length: size } : Object.fromEntries(row.ok.$dict)
  const known = { starts_reached: all.slice(0, -1), length: size }
  const shown =
    JSON.stringify(theirs) === JSON.stringify(known) ? undefined : `${JSON.stringify(theirs)} is not known`
  return decided(
    LAST_WINDOW,
    shown,
    all.every((start) => reached.has(start)) ? undefined : `starts ${[...reached]}`,
  )
}

/** `h = 0.5 (is_init ? 0 : h) + x`: the first step reads `h`, the others what the step before left. */
function ofBurnIn(row) {
  const module = (steps) => {
    const length = steps.batchSize[1]
    const [x, h, isInit] = ['x', 'h', 'is_init'].map((name) => numbersOf(steps.tensor(name)))
    const next = []
    for (const at of x.keys()) {
      const before = at % length === 0 ? h[at] : next[at - 1]
      next.push(0.5 * (isInit[at] ? 0 : before) + x[at])
    }
    return steps.set(['next', 'h'], Tensor.from(next, { shape: [...steps.batchSize, 1] }))
  }
  const options = { ...optionsOf(row), module, outKeys: 'h' }
  const got = attempt(() => new BurnInTransform(options).forward(dictIn(row.input)))
  return got.error || row.ok === undefined ? ofRefusal(row, got) : compared(got.value, dictIn(row.ok))
}

function ofSplit(row) {
  const input = dictIn(row.input)
  const got = attempt(() => splitTrajectories(input, optionsOf(row)))
  if (got.error || row.ok === undefined) return ofRefusal(row, got)
  const want = dictIn(row.ok)
  const difference = compared(got.value, want)
  const ragged = splitTrajectoriesRagged(input, optionsOf(row))
  const padded = (key) => ragged.ragged(key).toPadded({ side: 'right', fill: 0 })
  const wrong = ragged.leafKeys().find((key) => differs(padded(key), want.tensor(key), 1e-6))
  return difference ?? (wrong && `ragged ${wrong}`)
}

function ofOrder(row) {
  const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(3) })
  const given = TensorDict.from({ x: Tensor.from([0, 1, 2]) }, { batchSize: [3] })
  const each = (change) => (dict) => {
    const x = dict.tensor('x')
    return dict.select(['x']).set('x', Tensor.from(numbersOf(x).map(change), { shape: x.shape }))
  }
  if (row.config === 'insert_transform(0, callable)') {
    buffer
      .insertTransform(
        0,
        each((x) => x + 1),
      )
      .extend(given)
    return decided(
      FUNCTIONS,
      row.error ? undefined : 'the original fails',
      String(numbersOf(buffer.at({}).tensor('x'))) === '1,2,3' ? undefined : 'it must be called',
    )
  }
  if (
    !row.config.startsWith(
      'append x+1; append x*10; append(invert) x-100; append(invert) x*2; extend [0,1,2]',
    )
  ) {
    return `another program: ${row.config}`
  }
  buffer.appendTransform(each((x) => x + 1)).appendTransform(each((x) => x * 10))
  buffer.appendTransform(
    each((x) => x - 100),
    { invert: true },
  )
  buffer.appendTransform(
    each((x) => x * 2),
    { invert: true },
  )
  buffer.extend(given)
  const got = [given, buffer.storage.get([0, 1, 2]), buffer.at({}), buffer.at(1)]
  const names = ['given_td_after_extend', 'stored', 'read', 'read_one']
  if (String(row.ok.$dict.map(([name]) => name)) !== String(names)) return `parts are ${row.ok.$dict}`
  const wrong = row.ok.$dict.find(([, want], at) => differs(got[at].tensor('x'), tensorIn(want), 0))
  return wrong && `${wrong[0]} differs`
}

function ofRefusal(row, { value, error }) {
  if (error && row.ok === undefined) return undefined
  return error ? error.message : `must be refused: got ${value.leafKeys()}`
}

const stepsOf = ({ n_steps: nSteps, gamma = 0.5 }) => ({ nSteps, gamma })

/** The arguments of a row under our names; two rows leave theirs unsaid. */
function optionsOf({ topic, config, note }) {
  if (topic === 'RewardScaling' && config === null) return { loc: 1, scale: 0.5 }
  if (topic === 'PolicyAgeFilter' && config === null) return { strict: note.endsWith('strict True') }
  const pairs = config?.$dict ?? Object.entries(config ?? {})
  // `swap` says in the rows of this class that keys change places, which the keys say themselves.
  const known = pairs.filter(([name]) => topic !== 'RenameTransform' || name !== 'swap')
  return Object.fromEntries(known.map(([name, value]) => [camel(name), optionIn(value)]))
}

function optionIn(value) {
  if (Array.isArray(value)) return value.map(optionIn)
  if (value?.$tuple) return value.$tuple
  return value?.$dtype ? DTYPES[value.$dtype][0] : value
}

const camel = (name) => (name === 'N' ? 'n' : name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()))

/** The differences in keys, shapes, dtypes, or elements by more than `tolerance`. */
function compared(got, want, tolerance = 1e-6) {
  const keysOf = (dict) =>
    JSON.stringify([dict.batchSize, dict.names, dict.nestedKeys().map(nodeIn(dict)).sort()])
  if (keysOf(got) !== keysOf(want)) return `${keysOf(got)} for ${keysOf(want)}`
  const wrong = want.leafKeys().find((key) => differs(got.tensor(key), want.tensor(key), tolerance))
  return wrong && `${wrong}: ${numbersOf(got.tensor(wrong))} for ${numbersOf(want.tensor(wrong))}`
}

/** A key, with the batch size and the names of a dictionary. */
const nodeIn = (dict) => (key) => {
  const entry = dict.get(key)
  return entry instanceof TensorDict ? `${key} ${entry.batchSize} ${entry.names}` : String(key)
}

function differs(got, want, tolerance) {
  if (got.dtype !== want.dtype || String(got.shape) !== String(want.shape)) return true
  const wanted = numbersOf(want)
  const isNear = (a, b) => Object.is(a, b) || Math.abs(a - b) <= tolerance + 1e-5 * Math.abs(b)
  return !numbersOf(got).every((value, at) => isNear(value, wanted[at]))
}

const numbersOf = (tensor) => Array.from(tensor.data, Number)

function dictIn({ $td: batchSize, k: entries, names }) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [name, entry] of Object.entries(entries))
    dict.set(name, entry.$td ? dictIn(entry) : tensorIn(entry))
  // The names of a dictionary are those of all within it.
  const other = Object.entries(entries).find(
    ([, entry]) => entry.names && String(entry.names) !== String(names),
  )
  if (other) throw Object.assign(new Error(`${other[0]} has the names ${other[1].names}`), { name: 'Names' })
  if (names) dict.names = names
  return dict
}

function tensorIn({ $t, s: shape, d: elements }) {
  const [dtype, Elements] = DTYPES[$t]
  const element = dtype === 'i64' ? BigInt : Number
  return Tensor.from(
    Elements.from(elements, (value) => element(value)),
    { shape, dtype },
  )
}

function attempt(run) {
  try {
    return { value: run() }
  } catch (error) {
    if (error.code === undefined) throw error
    return { error }
  }
}
