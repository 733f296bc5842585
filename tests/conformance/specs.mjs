/**
 * Compares specs with what TorchRL printed: every class built, described, and asked. Of a refusal only the fact counts, of
 * draws only the domain.
 *
 * A row is many questions. It passes if all answers are as expected. Where Fulmar's answer differs on purpose, the row must have the one
 * that TorchRL gives by the rules of `spec-original.mjs`; the row then goes by the names of its decisions.
 */

import { isDeepStrictEqual } from 'node:util'
import { Rng } from 'fulmar'
import {
  Binary,
  Bounded,
  BoundedContinuous,
  BoundedDiscrete,
  Categorical,
  Choice,
  Composite,
  checkEnvSpecs,
  checkNoExclusiveKeys,
  consolidateSpec,
  containsLazySpec,
  MultiCategorical,
  MultiOneHot,
  makeCompositeFromTd,
  NonTensor,
  OneHot,
  StackedComposite,
  TensorSpec,
  Unbounded,
  UnboundedContinuous,
  UnboundedDiscrete,
} from 'fulmar/spec'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'
import { defined, described, nested, truthOf } from './spec-description.mjs'
import { isAnswer, originalAnswer, originalCheckedEncoding, originalSpec } from './spec-original.mjs'
import { kindOf } from './spec-shapes.mjs'

const CLASSES = {
  Binary,
  Bounded,
  BoundedContinuous,
  BoundedDiscrete,
  Categorical,
  MultiCategorical,
  MultiOneHot,
  NonTensor,
  OneHot,
  Unbounded,
  UnboundedContinuous,
  UnboundedDiscrete,
}
const NAN_BITS = { f16: 0x7e00, bf16: 0x7fc0 }
const POSITIONS = {
  Unbounded: ['shape'],
  NonTensor: ['shape'],
  Bounded: ['low', 'high', 'shape'],
  Categorical: ['n', 'shape'],
  OneHot: ['n', 'shape'],
  Binary: ['n', 'shape'],
  MultiCategorical: ['nvec', 'shape'],
  MultiOneHot: ['nvec', 'shape'],
}

/** An answer on purpose of ours: the rule's name, with its reason. */
const decided = (name) => ({ byDecision: name })
const skipped = (name) => ({ skipped: name })
const wrong = (got) => `got ${show(got)}`
const same = (isEqual, got) => (isEqual ? undefined : wrong(got))

const TOPICS = {
  spec: ofSpec,
  composite: ofSpec,
  stacked: ofSpec,
  encode_checked: (row) =>
    accounted(encoded(built(row.build), row.value, row.ok), originalCheckedEncoding(row), row),
  equality: ofEquality,
  choice_errors: ({ choices, error }) => (error ? refused(() => new Choice(choices)) : 'the original fails'),
  make_composite_from_td: ofDict,
  check_env_specs: ofEnv,
}

/** Members of a row, by topic. */
const SHAPES = {
  spec: ['build'],
  composite: ['build'],
  stacked: ['build'],
  encode_checked: ['build', 'value'],
  equality: ['specs', 'matrix'],
  choice_errors: ['choices'],
  make_composite_from_td: ['input', 'kwargs'],
  check_env_specs: ['env', 'check_dtype'],
}

export const specs = {
  topic: 'specs',
  members: {
    input: `id topic build note choices specs input kwargs env defect check_dtype value ops.*.op ops.*.shape ops.*.args ops.*.value
      ops.*.note ops.*.dim ops.*.after_unsqueeze ops.*.expanded_by ops.*.index ops.*.sizes ops.*.idx ops.*.tensor ops.*.mask ops.*.key
      ops.*.names`,
    expected: 'spec ops.*.ok matrix ok',
    refusal: 'build_error:spec ops.*.error:ok error:ok',
    aside: {},
  },
  matches: (row) => row.topic in TOPICS && SHAPES[row.topic].every((name) => row[name] !== undefined),
  prepare: () => undefined,
  check: ({ value: row }) => TOPICS[row.topic](row),
}

function ofSpec(row) {
  const { build } = row
  const made = attempt(() => built(build))
  const original = originalSpec(build)
  if (row.build_error !== undefined) {
    if (refusedBuild(build) !== undefined && original !== undefined && !original.error)
      return 'the original builds it'
    return made.error ? undefined : 'must not be built'
  }
  if (original !== undefined && !isAnswer(original, { ok: row.spec }))
    return `the original gives ${show(original.ok)}`
  if (made.error) return notBuilt(row, made.error)
  const spec = made.value
  if (!spec.equals(described(row.spec))) return wrong(spec.toJson())
  if (!TensorSpec.fromJson(spec.toJson()).equals(spec)) return 'its JSON is another spec'
  const outcomes = answersOf(row, spec)
  if (isFloatDiscrete(build)) outcomes.push(decided('BoundedDiscrete is of integers'))
  return together(outcomes)
}

/** One outcome of several: a difference, or else all decisions, or else what is skipped. */
function together(outcomes) {
  const difference = outcomes.find((outcome) => typeof outcome === 'string')
  if (difference !== undefined) return difference
  const names = new Set(outcomes.flatMap((outcome) => outcome?.byDecision ?? []))
  return names.size > 0 ? decided([...names].join('; ')) : outcomes.find((outcome) => outcome !== undefined)
}

/** A spec that Fulmar refuses: what the original says of it must follow from its rules all the same. */
function notBuilt(row, error) {
  const { build, spec, ops = [] } = row
  const outcome = refusedBuild(build)
  if (outcome === undefined || spec === undefined) return `not built: ${error.message}`
  return together([...questioned(spec, ops, build, () => undefined), outcome])
}

function refusedBuild(build) {
  if (build.cls === 'Categorical' && argument(build, 0, 'n') < 1)
    return decided('Categorical has at least one value')
  if (kindOf(build.cls) === 'Bounded') {
    const [low, high] = ['low', 'high'].map((name, at) => [argument(build, at, name)].flat(9))
    if (low.some((one, at) => one > (high[at] ?? high[0]))) return decided('low is at most high')
  }
  if (build.names && build.names.length !== build.shape.length)
    return decided('names are one for each dimension')
  return undefined
}

/** The outcome of every question of a row: undefined if the answer is as expected. */
export function answersOf({ build, spec: described, ops = [] }, spec = built(build)) {
  return questioned(described, ops, build, (op) => answer(spec, op, build))
}

/** Every question of a row, in order; `said` describes the spec as the row says that it has become. */
function questioned(described, ops, build, ask) {
  let said = described
  return ops.map((op) => {
    const outcome = accounted(ask(op), originalAnswer(said, op, build), op)
    if (['set', 'del', 'update_mask'].includes(op.op)) said = op.ok?.spec ?? said
    if (op.op === 'pop' && op.ok !== undefined) {
      const { [op.args[0]]: _, ...entries } = said.k ?? {}
      said = { ...said, k: entries }
    }
    return typeof outcome === 'string' ? `${JSON.stringify(op).slice(0, 200)}: ${outcome}` : outcome
  })
}

/** An outcome, if the row has the answer that the rules of the original give; a decision needs one. */
function accounted(outcome, original, row) {
  if (typeof outcome === 'string') return outcome
  if (original === undefined)
    return outcome?.byDecision === undefined
      ? outcome
      : `no rule says what the original gives: ${outcome.byDecision}`
  if (isAnswer(original, row)) return outcome
  return `the original ${original.error ? 'fails' : `gives ${show(original.ok) ?? 'a draw'}`}`
}

/** The answers by operation: the spec, the question with its expected answer, and how the spec was built. */
const ANSWERS = {
  zero: (spec, op) => ofConstant(spec, op, 'zero'),
  one: (spec, op) => ofConstant(spec, op, 'one'),
  cardinality: ofCardinality,
  ndim: (spec, { ok }) => same(spec.shape.length === ok, spec.shape),
  rand_shape: ofDraw,
  rand_support: ofSupport,
  rand_ok: ofOwnDraw,
  rand_in: ofOwnDraw,
  is_in_zero: (spec, { ok }) => {
    const got = attempt(() => spec.contains(spec.zero()))
    if (got.error) return ofStack(spec, got.error)
    if (ok === undefined) return decided('a stack along any dimension is checked')
    return same(got.value === truthOf(ok), got.value)
  },
  enumerate: ofEnumeration,
  is_in: ofMembership,
  project: ofProjection,
  encode: (spec, { value, ok }) =>
    value === undefined ? decided('a dictionary is encoded whole') : encoded(spec, value, ok),
  to_numpy: ofDecoding,
  eq_clone: ofClone,
  clone_eq: ofClone,
  to_one_hot: (spec, { value, ok }) => ofTensor(() => asked(spec, 'toOneHot', valueIn(value)), ok),
  to_categorical: (spec, { value, ok }) => ofTensor(() => asked(spec, 'toCategorical', valueIn(value)), ok),
  index: (spec, { idx, tensor, ok }) => {
    const got = attempt(() => spec.index(valueIn(idx), valueIn(tensor)))
    if (got.error || ok === undefined) return decided('a batch of indices names a batch of elements')
    const isEqual = isDeepStrictEqual(numbersOf(got.value), numbersIn(ok.d))
    return isEqual ? decided('a batch of indices names a batch of elements') : wrong(got.value)
  },
  update_mask: (spec, { mask, ok }, build) => moved(() => spec.updateMask(valueIn(mask)), ok, build),
  keys: (spec, { ok }) => ofKeys(() => spec.keys(), ok),
  keys_nested: (spec, { ok }) => ofKeys(() => spec.nestedKeys(), ok),
  keys_leaves: (spec, { ok }) => ofKeys(() => spec.leafKeys(), ok),
  is_empty: (spec, { ok }) => same((spec.keys().length === 0) === ok, spec.keys()),
  set: (spec, { key, value, ok }) => changed(() => spec.set(pathIn(key), built(value)), ok),
  del: ofDeletion,
  pop: (spec, { args, ok }) => changed(() => spec.pop(pathIn(args[0])), ok),
  // An entry that is missing is the default that was asked for, or 0, which the rows have in place of none.
  get: (spec, { args: [key, other = 0], ok }) =>
    spec.get(pathIn(key)) === undefined
      ? same(ok === other, 'nothing')
      : changed(() => spec.get(pathIn(key)), ok),
  lock: (spec, { args: [recurse = true], ok }) => same(spec.lock({ recurse }).isLocked === ok, spec.isLocked),
  unlock: (spec, { ok }) => same(spec.unlock().isLocked === ok, spec.isLocked),
  sub_unlock: (spec, { key, ok }) =>
    ok === undefined
      ? refused(() => spec.get(key).unlock())
      : same(spec.get(key).unlock().isLocked === ok, 'another'),
  getitem: ofItem,
  split: (_, { ok }) => (ok === undefined ? undefined : 'no spec has a method split'),
  expand: (spec, { shape, ok }, build) => moved(() => spec.expand(sizesIn(shape)), ok, build),
  unsqueeze: (spec, { dim = 0, ok }, build) => moved(() => spec.unsqueeze(dim), ok, build),
  squeeze: (spec, { after_unsqueeze: after, ok }, build) =>
    moved(() => (after === undefined ? spec.squeeze() : spec.unsqueeze(0).squeeze(0)), ok, build),
  unsqueeze_squeeze: (spec, { ok }, build) => moved(() => spec.unsqueeze(0).squeeze(0), ok, build),
  index_expanded: (spec, { expanded_by: by, index, ok }, build) =>
    indexed(() => widened(spec, by).at(...indexIn(index)), ok, build),
  reshape_expanded: (spec, { expanded_by: by, shape, ok }, build) =>
    moved(() => widened(spec, by).reshape(sizesIn(shape)), ok, build),
  flatten_expanded: (spec, { expanded_by: by, ok }, build) =>
    moved(() => widened(spec, by).flatten(0, 1), ok, build),
  unflatten_expanded: (spec, { sizes, ok }, build) =>
    moved(() => widened(spec, [6]).unflatten(0, sizesIn(sizes)), ok, build),
  unbind: (spec, { dim = 0, ok }, build) => ofParts(() => spec.unbind(dim), ok, build),
  unbind_expanded: (spec, { expanded_by: by, dim = 0, ok }, build) =>
    ofParts(() => widened(spec, by).unbind(dim), ok, build),
  eq_expand: (spec, { ok }) => {
    const isEqual = spec.expand([2, ...spec.shape]).equals(spec)
    if (isEqual === truthOf(ok)) return undefined
    return isEqual ? wrong(isEqual) : decided('specs of two shapes differ')
  },
  to_f64: (spec, { ok }, build) => moved(() => spec.to('f64'), ok, build),
  to: (spec, { ok }, build) => moved(() => spec.to('f64'), ok, build),
  to_i64: (spec, { ok }, build) => moved(() => spec.to('i64'), ok, build),
  to_one_hot_spec: (spec, { ok }, build) => moved(() => asked(spec, 'toOneHotSpec'), ok, build),
  to_categorical_spec: (spec, { ok }, build) => moved(() => asked(spec, 'toCategoricalSpec'), ok, build),
  empty: (spec, { ok }, build) =>
    ok === undefined ? decided('stacked dictionaries have empty ones') : moved(() => spec.empty(), ok, build),
  contains_lazy: (spec, { ok }) => same(containsLazySpec(spec) === ok, 'another answer'),
  no_exclusive: (spec, { ok }) => {
    const got = checkNoExclusiveKeys(spec)
    if (got === ok) return undefined
    return got ? wrong(got) : decided('nested exclusive keys are found')
  },
  consolidate: (spec, { ok }, build) => {
    const isDict = spec instanceof Composite || spec instanceof StackedComposite
    return moved(() => consolidateSpec(isDict ? spec : new Composite({ a: spec })), ok, build)
  },
  refine_names: (spec, { names, ok }, build) =>
    moved(() => spec.refineNames(...names.map((name) => (name?.$ellipsis ? '...' : name))), ok, build),
}

function answer(spec, op, build) {
  const ask = ANSWERS[op.op]
  return ask === undefined ? `no such question: ${op.op}` : ask(spec, op, build)
}

function ofConstant(spec, { shape = [], ok }, name) {
  const got = attempt(() => spec[name](shape))
  if (got.error) return ok === undefined ? undefined : ofStack(spec, got.error)
  if (ok === undefined) return decided('ones of every kind')
  const difference = equalTo(got.value, ok, false)
  // The original's ones of choices are whole numbers.
  const isWhole = isSame(got.value, ok, ([ours, theirs]) => ours === theirs || theirs === 'i64')
  return difference && isWhole ? decided('zeros and ones have the dtype of their spec') : difference
}

function ofCardinality(spec, { ok }, build) {
  const got = attempt(() => spec.cardinality())
  if (got.error) return ok === undefined ? undefined : got.error.message
  if (has(build, 'Binary') && ok !== undefined) {
    if (build.cls === 'Binary' && BigInt(spec.enumerate().shape[0]) !== got.value) return wrong(got.value)
    return decided('Binary has 2^n values')
  }
  if (got.value === 1n && ok === 0 && build.cls === 'Composite')
    return decided('an empty dictionary has one value')
  if (got.value !== undefined) return same(got.value === BigInt(ok?.d?.[0] ?? ok ?? -1), got.value)
  if (ok === undefined)
    return decided('the number of values of an unbounded spec is undefined, without an error')
  return same(Number(ok?.d?.[0] ?? ok) === Number.POSITIVE_INFINITY, got.value)
}

function ofDraw(spec, { shape, ok }, build) {
  const got = spec.rand(Rng.fromSeed(7), shape)
  if (!spec.contains(got)) return `outside: ${JSON.stringify(spec.explain(got))}`
  const said = Object.fromEntries(ok?.$dict ?? [])
  // A JSON value that a batch shares has no shape of its own here.
  if (!(got instanceof Tensor)) return said.is_in === true ? undefined : wrong(true)
  if (DTYPES[said.dtype] !== got.dtype) return wrong(got.dtype)
  if (
    build.cls === 'MultiCategorical' &&
    isDeepStrictEqual(got.shape, [...shape, 1]) &&
    said.shape.length < got.shape.length
  )
    return decided('a draw has the shape of the spec, also for one choice')
  if (!isDeepStrictEqual(got.shape, said.shape)) return wrong(got.shape)
  return truthOf(said.is_in) ? undefined : decided('a draw is in the domain')
}

/** Checks that the original's draws are in our domain. */
function ofSupport(spec, { ok }) {
  if (ok === undefined || ok === 'skipped') return undefined
  if (!Array.isArray(ok)) return `no list of values: ${show(ok)}`
  if (spec.dtype === undefined) return skipped('the support of JSON values')
  const outside = ok.find((value) => !spec.contains(tensorIn(spec.dtype, spec.shape, [value].flat())))
  return outside === undefined ? undefined : `outside: ${outside}`
}

function ofOwnDraw(spec, { ok }) {
  const got = attempt(() => spec.rand(Rng.fromSeed(3)))
  if (got.error) return ofStack(spec, got.error)
  if (!spec.contains(got.value)) return wrong(spec.explain(got.value))
  if (ok === undefined) return decided('a stack along any dimension is checked')
  return truthOf(ok) ? undefined : decided('a draw is in the domain')
}

function ofEnumeration(spec, { args = [], ok }, build) {
  const got = attempt(() => spec.enumerate({ useMask: args[0] === true }))
  if (got.error) {
    if (ok === undefined) return undefined
    return ofStack(spec, got.error)
  }
  if (ok === undefined) return decided('what may be anything is left out of an enumeration')
  if (has(build, 'Binary')) return decided('Binary has 2^n values')
  if (isDeepStrictEqual(ok.k, {})) return decided('an empty dictionary has one value')
  return equalTo(got.value, ok, false)
}

function ofMembership(spec, { value: given, ok }, build) {
  const value = valueIn(given)
  if (value === undefined)
    return given?.$lazy === undefined ? skipped('values that no dictionary holds') : decided(NO_STACK)
  const got = spec.contains(value)
  const want = truthOf(ok)
  if (got === want) return undefined
  if (!got && ok === undefined) return decided('a value of another form is in no domain')
  if (got || !want) return wrong(got)
  if (JSON.stringify(given).includes('NaN')) return decided('NaN is in no domain')
  if (isMasked(build)) return decided('a masked one-hot has one 1')
  if (spec.kind === 'OneHot') return decided('a one-hot holds one 1 and zeros')
  return ends(spec, value) ? wrong(spec.explain(value)) : decided('a value is not broadcast to its spec')
}

function ofProjection(spec, { value: given, ok }, build) {
  const value = valueIn(given)
  const got = attempt(() => spec.project(value))
  if (got.error) {
    if (ok === undefined) return undefined
    return ends(spec, value) ? got.error.message : decided('a value is not broadcast to its spec')
  }
  if (!spec.contains(got.value)) return `outside: ${JSON.stringify(spec.explain(got.value))}`
  if (ok === undefined) return decided('every dtype and class can be projected')
  const difference = equalTo(got.value, ok, false)
  if (difference === undefined) return undefined
  // The original returns a value in the domain unchanged.
  const isCast = isSame(got.value, ok, ([ours, theirs]) => ours === spec.dtype && theirs === DTYPES[given.$t])
  if (ok.$t && isCast) return decided('a projection has the dtype of its spec')
  if (ok.d?.includes('NaN') || !spec.contains(castLike(spec, ok)))
    return decided('a projection is in the domain')
  if (isMasked(build) || spec.kind.endsWith('OneHot')) return decided('a projection is the nearest, no draw')
  if (JSON.stringify(given.d ?? '').includes('-') && build.cls.startsWith('Unbounded'))
    return decided('integers saturate, they do not wrap')
  const isCut = given.d?.some((one) => typeof one === 'number' && !Number.isInteger(one))
  if (isCut && build.cls.startsWith('Unbounded')) return decided('a projection is rounded, not cut')
  if (isCut && ok.$t === given.$t) return decided('a projection has the dtype of its spec')
  return ok.$t && spec.shape.length === 0 && !isDeepStrictEqual(ok.s, given.s)
    ? decided('a projection has the shape of its value')
    : difference
}

function encoded(spec, value, ok) {
  const plain = value?.$t || value?.$np ? nested(value.s, value.d) : value
  const got = attempt(() => spec.encode(plain))
  const isOneHot = spec.kind.endsWith('OneHot')
  if (got.error === undefined) {
    if (ok !== undefined) {
      const difference = equalTo(got.value, ok, false)
      return difference && isOneHot
        ? decided('a one-hot value is encoded from one index for each choice')
        : difference
    }
    if (isOneHot) return decided('a one-hot value is encoded from one index for each choice')
    return typeof plain === 'boolean' ? decided('a bool is 0 or 1') : wrong(got.value)
  }
  if (ok === undefined) return undefined
  if (!spec.contains(castLike(spec, ok))) return decided('what is encoded is checked')
  if (isOneHot) return decided('a one-hot value is encoded from one index for each choice')
  if (spec.dtype === 'bool') return decided('a bool is 0 or 1')
  if (
    numbersIn([plain].flat(9)).some((number) => !Number.isInteger(number)) ||
    /\.[0-9]/.test(JSON.stringify(plain))
  )
    return decided('a fraction is no integer')
  if (!isDeepStrictEqual(ok.s, spec.shape) || Array.isArray(plain))
    return decided('what is encoded has the shape of the spec')
  return got.error.message
}

function ofDecoding(spec, { value: given, ok }) {
  const value = valueIn(given)
  if (value === undefined) return skipped('values that no dictionary holds')
  const got = attempt(() => spec.decode(value))
  if (got.error) {
    if (ok === undefined) return undefined
    return spec.contains(value) ? got.error.message : decided('what is decoded is checked')
  }
  if (ok?.$np === undefined) return skipped('to_numpy of dictionaries and JSON values')
  return same(isDeepStrictEqual(plainNumbers(got.value), plainNumbers(nested(ok.s, ok.d))), got.value)
}

const plainNumbers = (value) => (Array.isArray(value) ? value.map(plainNumbers) : Number(value) + 0)

function ofClone(spec, { ok }) {
  return same(spec.clone().equals(spec) === truthOf(ok), 'another answer')
}

function ofTensor(make, ok) {
  const got = attempt(make)
  if (got.error) return ok === undefined ? undefined : got.error.message
  return ok === undefined ? wrong(got.value) : equalTo(got.value, ok, false)
}

function ofKeys(keys, ok) {
  const got = keys().map((key) => (Array.isArray(key) && key.length === 1 ? key[0] : key))
  return same(isDeepStrictEqual(got, ok), got)
}

function ofDeletion(spec, { key, ok }) {
  const remove = () => (spec.delete(pathIn(key)) ? spec : refuse('there must be such a key'))
  if (!spec.isLocked) return changed(remove, ok)
  if (attempt(remove).error?.code !== 'CLOSED') return 'must be refused while it is locked'
  // The questions that follow are about a spec without the entry.
  spec.unlock().delete(pathIn(key))
  spec.lock()
  return ok === undefined ? undefined : decided('a locked spec keeps its entries')
}

function ofItem(spec, { key, index, ok }, build) {
  if (key === undefined) return indexed(() => spec.at(...indexIn(index)), ok, build)
  const found = spec.get(pathIn(key))
  return found === undefined ? same(ok === undefined, 'nothing') : moved(() => found, ok, build)
}

function ofParts(divide, ok, build) {
  const got = attempt(divide)
  if (got.error) return ok === undefined ? undefined : got.error.message
  if (ok === undefined || ok.malformed_result) return decided('what can be indexed can be unbound')
  if (got.value.length !== ok.length) return wrong(got.value.length)
  return got.value
    .map((part, at) => moved(() => part, ok[at], build))
    .find((outcome) => outcome !== undefined)
}

function changed(change, ok) {
  return moved(change, ok, {})
}

/** A spec after a structural operation against its description. */
function moved(move, ok, build) {
  const got = attempt(move)
  const { cls = '' } = build
  const text = JSON.stringify(build)
  if (ok === undefined) {
    if (got.error) return undefined
    if (text.includes('[-1,')) return decided('the known dimensions of a dynamic spec are reshaped')
    if (cls.endsWith('OneHot')) return decided('squeezing leaves the last dimension of a one-hot')
    if (cls === 'MultiCategorical') return decided('nvec is reshaped with its spec')
    if (cls.startsWith('Bounded')) return decided('bounds are reshaped with their spec')
    if (cls === 'Choice') return decided('a choice is indexed as its specs are')
    if (text.includes('null')) return decided('an entry that may be anything is passed over')
    if (build.names) return decided('names go with their dimensions')
    return isMasked(build) ? decided('masks are kept') : wrong(got.value.toJson())
  }
  const want = attempt(() => described(ok.spec))
  if (want.error) {
    if (text.includes('Infinity')) return decided('infinite bounds saturate')
    if (cls === 'OneHot') return decided('the last dimension of a one-hot is n')
    return `the description cannot be read: ${want.error.message}`
  }
  if (got.error) return refusedMove(got.error, want.value, cls)
  return differentMove(got.value, want.value, build)
}

function refusedMove(error, want, cls) {
  if (cls === 'OneHot') return decided('the last dimension of a one-hot is n')
  if (cls === 'MultiCategorical' && want.kind === 'Stacked')
    return decided('choices of different numbers have no one-hots of one shape')
  if (cls === 'MultiCategorical') return decided('the choices of a cell are not indexed')
  if (want.shape.length === 1) return decided('an expansion drops no dimension')
  if (want.shape.filter((length) => length === -1).length > 1)
    return decided('one dimension is counted, not two')
  return error.message
}

function differentMove(got, want, build) {
  if (got.equals(want)) return undefined
  const { cls } = build
  if (isDeepStrictEqual({ ...got.toJson(), names: 0 }, { ...want.toJson(), names: 0 }))
    return decided('names go with their dimensions')
  const isSameShape = isDeepStrictEqual(got.shape, want.shape)
  if (JSON.stringify(build).includes('Infinity') && got.dtype === 'i64')
    return decided('infinite bounds saturate')
  if (cls === 'MultiCategorical' && got.shape.length === want.shape.length)
    return decided('the choices of a cell are not indexed')
  if (cls === 'NonTensor' && isSameShape) return decided('what is batched stays batched')
  if (isDeepStrictEqual([want.shape, got.shape], [[1], []]))
    return decided('every dimension of length 1 is squeezed')
  if (isMasked(build) && want.mask && isSameShape) return decided('a mask is indexed as its spec is')
  if (isMasked(build) && !want.mask && got.mask && got.clone().updateMask(undefined).equals(want))
    return decided('masks are kept')
  if (JSON.stringify(build).includes('"mask"') && unmasked(got).equals(unmasked(want)))
    return decided('masks are kept')
  if (want.shape.includes(-1) && !got.shape.includes(-1))
    return decided('a dynamic dimension of a reshape is counted')
  return `got ${show(got.toJson())}, expected ${show(want.toJson())}`
}

/** The spec without the masks of its entries. */
const unmasked = (spec) =>
  TensorSpec.fromJson(
    JSON.parse(JSON.stringify(spec.toJson(), (name, value) => (name === 'mask' ? undefined : value))),
  )

/** The original indexes a stack along the stacked dimension alone, or its specs by what is left of the index. */
function indexed(move, ok, build) {
  const got = attempt(move)
  if (got.error?.code === 'FOREIGN') return ok === undefined ? undefined : skipped('an index by keys')
  const outcome = moved(() => got.value ?? raise(got.error), ok, build)
  return typeof outcome === 'string' && build.cls === 'stack'
    ? decided('a stack is indexed dimension by dimension')
    : outcome
}

/** TorchRL's comparison of a Binary asks any categorical for its n, which those of several choices have not. */
const isBeyond = (left, right) => left.cls === 'Binary' && right.cls === 'MultiCategorical'

function ofEquality({ specs: builds, matrix }) {
  const outcomes = []
  const all = builds.map(built)
  if (matrix.length !== all.length || matrix.some((row) => row.length !== all.length))
    return 'each is compared with all'
  for (const [row, left] of all.entries()) {
    for (const [column, right] of all.entries()) {
      const want = matrix[row][column]
      const fails = isBeyond(builds[row], builds[column])
      if (fails) outcomes.push(decided('any two specs can be compared'))
      if (want !== (fails ? 'AttributeError' : left.equals(right)))
        return `${row} equals ${column}: ${left.equals(right)}`
    }
  }
  return together(outcomes)
}

function ofDict({ input, kwargs, ok }) {
  const dict = valueIn(input)
  if (!(dict instanceof TensorDict)) return skipped('values that no dictionary holds')
  const { unsqueeze_null_shapes: unsqueezeNullShapes = true, dynamic_shape: dynamicShape = false } = kwargs
  const strange = Object.values(ok?.spec?.k ?? {}).find(
    ({ cls, shape, feature_dims: features }) =>
      cls === 'NonTensor' && features !== shape.length - input.$td.length,
  )
  if (strange !== undefined) return `the features of ${show(strange)}`
  return moved(() => makeCompositeFromTd(dict, { unsqueezeNullShapes, dynamicShape }), ok, {})
}

/** The environment of the rows: observations are 0.5, rewards 1, it never ends; `defect` is what is wrong with it. */
const ENV = 'obs [3] f32 constant 0.5, action Categorical(2), reward 1.0, never done'
const DEFECTS = new Set(
  `dtype shape bounded nan extra reset_missing reward_shape reward_dtype done_dtype inf missing_spec`.split(
    ' ',
  ),
)

async function ofEnv({ env: name, defect, check_dtype: _, ok }) {
  if (name !== ENV || (defect !== null && !DEFECTS.has(defect)))
    return `no such environment: ${name}, ${defect}`
  const numbers = (values, dtype = 'f32') => Tensor.from(values, { dtype })
  const flags = { terminated: flag(0), done: flag(0) }
  const observed = { dtype: numbers([0.5, 0.5, 0.5], 'f64'), shape: numbers([0.5, 0.5, 0.5, 0.5]) }
  observed.nan = numbers([Number.NaN, 0.5, 0.5])
  observed.inf = numbers([Number.POSITIVE_INFINITY, 0.5, 0.5])
  const rewards = { reward_shape: numbers([1, 1]), reward_dtype: numbers([1], 'f64') }
  const done = defect === 'done_dtype' ? { ...flags, done: numbers([0]) } : flags
  const obs = observed[defect] ?? numbers([0.5, 0.5, 0.5])
  const extra = defect === 'extra' || defect === 'missing_spec' ? { more: numbers([0]) } : {}
  const env = {
    observationSpec: new Composite({
      obs: defect === 'bounded' ? new Bounded(-0.1, 0.1, { shape: [3] }) : new Unbounded({ shape: [3] }),
    }),
    actionSpec: new Composite({ action: new Categorical(2) }),
    rewardSpec: new Composite({ reward: new Unbounded({ shape: [1] }) }),
    doneSpec: new Composite({
      done: new Binary(1, { dtype: 'bool' }),
      terminated: new Binary(1, { dtype: 'bool' }),
    }),
    reset: () => TensorDict.from({ ...(defect === 'reset_missing' ? {} : { obs }), ...done }),
    step: () => TensorDict.from({ obs, ...extra, ...done, reward: rewards[defect] ?? numbers([1]) }),
  }
  const error = await checkEnvSpecs(env).then(
    () => undefined,
    (cause) => cause,
  )
  if (error !== undefined && error.code === undefined) throw error
  if (ok !== undefined && ok !== 'pass') return `an answer is pass: got ${ok}`
  if (defect === 'nan' && error) return ok === 'pass' ? decided('NaN is in no domain') : 'the original passes'
  if ((error === undefined) === (ok === 'pass')) return undefined
  return `must ${ok ?? 'be refused'}: ${error?.message}`
}

function flag(value) {
  return Tensor.from(Uint8Array.of(value), { dtype: 'bool' })
}

/** The spec that a call of the original's constructor makes. */
function built(build) {
  if (build === null) return null
  const { cls } = build
  if (cls === 'stack') {
    const members = build.specs.map(built)
    return TensorSpec.stack(members, build.dim < 0 ? build.dim + members[0].shape.length + 1 : build.dim)
  }
  if (cls === 'Composite') {
    const entries = Object.fromEntries(Object.entries(build.k).map(([name, spec]) => [name, built(spec)]))
    return new Composite(entries, { shape: build.shape, ...(build.names ? { names: build.names } : {}) })
  }
  if (cls === 'Choice') {
    return new Choice(build.choices.map((choice) => (choice.cls ? built(choice) : valueIn(choice))))
  }
  return leafOf(build)
}

function leafOf(build) {
  const kind = kindOf(build.cls)
  const given = Object.fromEntries(POSITIONS[kind].map((name, at) => [name, argument(build, at, name)]))
  const { shape, ...own } = given
  const options = defined({
    shape,
    dtype: argument(build, Number.NaN, 'dtype'),
    mask: argument(build, Number.NaN, 'mask'),
    example: argument(build, Number.NaN, 'example_data'),
    batched: argument(build, Number.NaN, 'batched'),
  })
  return new CLASSES[isFloatDiscrete(build) ? 'Bounded' : build.cls](...Object.values(own), options)
}

/** Specs that the original calls discrete but gives a float dtype. */
const isFloatDiscrete = ({ cls, kwargs }) => cls === 'BoundedDiscrete' && kwargs.dtype === undefined

function argument(build, at, name) {
  const value = build.kwargs?.[name] ?? build.args?.[at]
  if (value?.$tuple) return value.$tuple
  if (value?.$dtype) return DTYPES[value.$dtype]
  if (value?.$t) return tableIn(value)
  return infinite(value)
}

const infinite = (value) => (typeof value === 'string' && value.endsWith('Infinity') ? Number(value) : value)
const tableIn = (value) => (value?.$t ? nested(value.s, value.d.map(infinite)) : value)

/** The golden value as ours; nothing for what no dictionary holds. */
function valueIn(value) {
  if (value?.$t) return tensorIn(DTYPES[value.$t], value.s, value.d)
  if (value?.$td) {
    const dict = TensorDict.from({}, { batchSize: value.$td })
    for (const [name, given] of Object.entries(value.k)) {
      const entry = valueIn(given)
      if (entry === undefined) return undefined
      dict.set([name], entry)
    }
    return dict
  }
  if (value?.$nts) return new NonTensorStack(value.$nts)
  return value !== null && typeof value === 'object' && '$nt' in value
    ? new NonTensorData(value.$nt)
    : undefined
}

function tensorIn(dtype, shape, elements) {
  const numbers = numbersIn(elements)
  if (dtype === 'f16' || dtype === 'bf16') {
    // A spec turns plain numbers into halves; it refuses NaN, whose bits are put in afterwards.
    const encoder = new Unbounded({ shape: [numbers.length], dtype })
    const bits = Uint16Array.from(encoder.encode(numbers.map((number) => number || 0)).data)
    for (const [at, number] of numbers.entries()) if (Number.isNaN(number)) bits[at] = NAN_BITS[dtype]
    return Tensor.from(bits, { shape, dtype })
  }
  if (dtype === 'i64') return Tensor.from(BigInt64Array.from(numbers, BigInt), { shape })
  return Tensor.from(numbers, { shape: shape.map((length) => (length === -1 ? 1 : length)), dtype })
}

/** Tensors of `value` as the dtype of `spec`, for comparisons that leave the dtype aside. */
function castLike(spec, value) {
  if (!value.$t || spec.dtype === undefined) return valueIn(value)
  const whole = !spec.dtype.includes('f')
  const elements = numbersIn(value.d).map((number) => (whole ? clamped(number, spec.dtype) : number))
  return tensorIn(spec.dtype, value.s, elements)
}

function clamped(number, dtype) {
  if (dtype === 'bool') return number === 0 ? 0 : 1
  const bits = Number(dtype.slice(1))
  const [low, high] = dtype.startsWith('u')
    ? [0, 2 ** bits - 1]
    : [
        Math.max(-(2 ** (bits - 1)), Number.MIN_SAFE_INTEGER),
        Math.min(2 ** (bits - 1) - 1, Number.MAX_SAFE_INTEGER),
      ]
  return Number.isNaN(number) ? 0 : Math.min(Math.max(Math.trunc(number), low), high)
}

/** Nothing if `got` is what the golden value says, else the difference. */
function equalTo(got, want, isAnyDtype) {
  return same(isSame(got, want, isAnyDtype), got)
}

/** Returns whether two dtypes are interchangeable: by a rule for both, all or only the same. */
const isDtype = (rule, ours, theirs) =>
  typeof rule === 'function' ? theirs !== undefined && rule([ours, theirs]) : rule || ours === theirs

function isSame(got, want, isAnyDtype) {
  if (got instanceof Tensor) {
    if (want.$njt) return want.$njt.every((row, at) => isSame(got.select(0, at), row, isAnyDtype))
    return (
      isDeepStrictEqual([...got.shape], want.s) &&
      isDtype(isAnyDtype, got.dtype, DTYPES[want.$t]) &&
      isDeepStrictEqual(numbersOf(got), numbersIn(want.d))
    )
  }
  if (got instanceof Ragged) {
    const rows = want.$njt ?? []
    return rows.length > 0 && rows.every((row, at) => isSame(got.row(at), row, isAnyDtype))
  }
  if (got instanceof TensorDict) {
    const names = got.keys()
    return (
      isDeepStrictEqual(got.batchSize, want.$td) &&
      names.length === Object.keys(want.k).length &&
      names.every((name) => want.k[name] && isSame(got.get([name]), want.k[name], isAnyDtype))
    )
  }
  const shown = got instanceof NonTensorData ? got.value : got.values
  const expected = '$nt' in want ? want.$nt : want.$nts
  return isDeepStrictEqual(shown, expected) || allAre(expected, shown) || allAre(shown, expected)
}

const allAre = (list, one) =>
  Array.isArray(list) && list.every((value) => isDeepStrictEqual(value, one) || allAre(value, one))

/** Elements as numbers; `Object.is` tells NaN and -0 apart, so -0 becomes 0. */
const numbersIn = (elements) => elements.map((element) => Number(element) + 0)
const numbersOf = (tensor) =>
  numbersIn(Array.from(tensor.dtype.endsWith('f16') ? tensor.toFloat32() : tensor.data))

const sizesIn = (value) => value.$tuple ?? value
const pathIn = (key) => key.$tuple ?? key

function indexIn(index) {
  return (index?.$tuple ?? [index]).map((item) => {
    if (item === null || typeof item === 'number' || Array.isArray(item)) return item
    if (item.$ellipsis) return '...'
    if (item.$slice) {
      const [start, stop, step] = item.$slice
      return defined({ start, stop, step })
    }
    if (item.$range)
      return Array.from({ length: item.$range[1] - item.$range[0] }, (_, at) => item.$range[0] + at)
    if (item.$t) return valueIn(item)
    return refuse('an index must be one of ours', 'FOREIGN')
  })
}

function widened(spec, by) {
  return spec.expand([...by, ...spec.shape])
}

const isMasked = (build) => build.kwargs?.mask !== undefined
const has = (build, cls) => JSON.stringify(build).includes(`"${cls}"`)
const ends = (spec, value) =>
  (value instanceof TensorDict && spec instanceof Composite
    ? spec.keys().every((name) => !value.has([name]) || ends(spec.get([name]), value.get([name])))
    : !(value instanceof Tensor)) ||
  (value instanceof Tensor &&
    value.shape.length >= spec.shape.length &&
    spec.shape.every(
      (length, dim) => length === -1 || length === value.shape[value.shape.length - spec.shape.length + dim],
    ))

/** Stacks of different shapes have no value but a ragged one. */
function ofStack(spec, error) {
  return spec.kind.startsWith('Stacked') ? decided(NO_STACK) : error.message
}

const NO_STACK = 'values of stacks whose shapes or keys differ are refused'

/** Asks what specs of other classes have no method for, which is a refusal. */
function asked(spec, method, ...args) {
  return typeof spec[method] === 'function' ? spec[method](...args) : refuse(`no ${method} of ${spec.kind}`)
}

function refused(run) {
  return attempt(run).error === undefined ? 'must be refused' : undefined
}

function raise(error) {
  throw error
}

function refuse(message, code = 'UNKNOWN_NAME') {
  throw Object.assign(new Error(message), { code })
}

function attempt(run) {
  try {
    return { value: run() }
  } catch (error) {
    if (error.code === undefined) throw error
    return { error }
  }
}

function show(value) {
  const plain = value instanceof Tensor ? [value.dtype, value.shape, [...value.data]] : value
  return JSON.stringify(plain, (_, part) => (typeof part === 'bigint' ? `${part}` : part))?.slice(0, 300)
}
