/**
 * Compares transforms with what TorchRL made of the same dictionaries: each row one class and one call, or a program of writes.
 *
 * Floats are compared to a relative 1e-5 and an absolute 1e-6, resized images to an absolute 1e-4. Of a refusal only the fact
 * counts.
 */

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
  LazyTensorStorage,
  MultiStep,
  MultiStepTransform,
  NextStateReconstructor,
  PolicyAgeFilter,
  RandomCropTensorDict,
  RenameTransform,
  ReplayBuffer,
  Resize,
  Reward2GoTransform,
  RewardClipping,
  RewardScaling,
  SelectTransform,
  SignTransform,
  splitTrajectories,
  splitTrajectoriesRagged,
  Tensor,
  TensorDict,
  ToTensorImage,
  UnsqueezeTransform,
} from 'fulmar'

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

/** An answer on purpose of ours: the rule's name, with its reason. */
const decided = (name) => ({ byDecision: name })

const PADDING = decided('nothing looks into padding')
const NONTERMINAL = decided('one step is terminal only where its trajectory ends')
const LAST_WINDOW = decided('the last window is drawn as often as the others')
const NESTED_KEY = decided('a list of names is a nested key')
const NEXT_KEPT = decided('rewards and ends of `next` are kept, too')
const FUNCTIONS = decided('a plain function can be put anywhere')

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
    if (compared(endless.forward(input), want) === undefined) return NESTED_KEY
  }
  if (row.topic === 'SelectTransform' && compared(withoutNext(got.value, want), want) === undefined)
    return NEXT_KEPT
  return difference
}

/** What was selected by name: without the rewards and ends of `next` that the original drops. */
function withoutNext(got, want) {
  const dropped = ['reward', 'done'].map((name) => ['next', name]).filter((key) => !want.has(key))
  const rest = got.exclude(dropped)
  const isBare = !want.has('next') && rest.has('next') && rest.dict('next').keys().length === 0
  return isBare ? rest.exclude(['next']) : rest
}

function ofMultiStep(row) {
  const input = dictIn(row.input)
  const run = (legacyDone) => attempt(() => new MultiStep({ ...stepsOf(row), legacyDone }).forward(input))
  const [legacy, fixed] = [run(true), run(false)]
  if (legacy.error || row.ok === undefined) return ofRefusal(row, fixed)
  return endsOfArrival(input, fixed.value, legacy.value) ?? judged(row, legacy.value, dictIn(row.ok))
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

/** Writes, each through a new transform that goes on where the one before was saved. */
function ofWrites(row) {
  const build = () => new MultiStepTransform({ ...stepsOf(row), legacyDone: true })
  const made = attempt(build)
  if (made.error) return ofRefusal(row, made)
  let transform = made.value
  let contents
  let outcome
  for (const { extend, contents: expected } of row.ops) {
    const state = transform.stateDict()
    transform = build()
    transform.loadStateDict(state)
    const items = dictIn(extend)
    const time = items.batchSize.length - 1
    const stored = transform.inverse(items)
    if (stored) contents = contents ? TensorDict.cat([contents, stored], time) : stored
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

function judged(row, got, want) {
  const difference = compared(got, want)
  if (difference === undefined) return undefined
  const mask = got.has(['collector', 'mask']) ? numbersOf(got.tensor(['collector', 'mask'])) : []
  if (mask.includes(0)) {
    // Steps in front of padding, and padding itself, differ; those of whole lanes are the same.
    const length = got.batchSize[1]
    const isWhole = (at) => !mask.slice(at - (at % length), at - (at % length) + length).includes(0)
    const rows = [...mask.keys()].filter(isWhole)
    const only = (dict) => dict.reshape([-1]).indexSelect(rows)
    return compared(only(got), only(want)) ?? PADDING
  }
  if (row.n_steps !== 1) return difference
  const without = (dict) => dict.exclude(['nonterminal'])
  const [ours, theirs] = [got, want].map((dict) => numbersOf(dict.tensor('nonterminal')))
  const isNamed =
    ours.includes(1) && !theirs.includes(1) && compared(without(got), without(want)) === undefined
  return isNamed ? NONTERMINAL : difference
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
  const theirs = row.ok?.$dict[0][1] ?? []
  const isNamed = all.every((start) => reached.has(start)) && String(theirs) === String(all.slice(0, -1))
  return isNamed ? LAST_WINDOW : `starts ${[...reached]}`
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
  const [input, want] = [dictIn(row.input), dictIn(row.ok)]
  const difference = compared(splitTrajectories(input, optionsOf(row)), want)
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
    return String(numbersOf(buffer.at({}).tensor('x'))) === '1,2,3' ? FUNCTIONS : 'it must be called'
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
  const known = pairs.filter(([name]) => name !== 'swap')
  return Object.fromEntries(known.map(([name, value]) => [camel(name), optionIn(value)]))
}

function optionIn(value) {
  if (Array.isArray(value)) return value.map(optionIn)
  if (value?.$tuple) return value.$tuple
  return value?.$dtype ? DTYPES[value.$dtype][0] : value
}

const camel = (name) => (name === 'N' ? 'n' : name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()))

/** What differs in keys, shapes, dtypes, or elements by more than `tolerance`. */
function compared(got, want, tolerance = 1e-6) {
  const keysOf = (dict) => JSON.stringify([dict.batchSize, dict.nestedKeys().map(String).sort()])
  if (keysOf(got) !== keysOf(want)) return `${keysOf(got)} for ${keysOf(want)}`
  const wrong = want.leafKeys().find((key) => differs(got.tensor(key), want.tensor(key), tolerance))
  return wrong && `${wrong}: ${numbersOf(got.tensor(wrong))} for ${numbersOf(want.tensor(wrong))}`
}

function differs(got, want, tolerance) {
  if (got.dtype !== want.dtype || String(got.shape) !== String(want.shape)) return true
  const wanted = numbersOf(want)
  const isNear = (a, b) => Object.is(a, b) || Math.abs(a - b) <= tolerance + 1e-5 * Math.abs(b)
  return !numbersOf(got).every((value, at) => isNear(value, wanted[at]))
}

const numbersOf = (tensor) => Array.from(tensor.data, Number)

function dictIn({ $td: batchSize, k: entries }) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [name, entry] of Object.entries(entries))
    dict.set(name, entry.$td ? dictIn(entry) : tensorIn(entry))
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
