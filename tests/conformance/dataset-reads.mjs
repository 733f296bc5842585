/** Rows of an open data set against those that torchrl read and drew from it. */

import { Sampler } from 'fulmar/replay'
import {
  dictOfRowsDiffers,
  FLAG_KEYS,
  flagsAsBytes,
  rowsDiffer,
  withByteFlags,
  without,
} from './dataset-values.mjs'
import { same } from './golden-values.mjs'

const PIXEL_FLAGS = 'V-D4RL of 84 pixels has `is_init` and flags'
const ATARI_FLAGS = 'slices of Atari DQN replay end with terminal steps, and flags are bool `[rows, 1]`'
const ATARI_NEXT =
  'rows of Atari DQN replay are in the order asked for, and `next.observation` is zero behind every terminal step'

const NEXT_FRAME = ['next', 'observation']

/** torchrl writes rows of these unsplit the first time. */
export const isUnsplit = ({ topic, options }) =>
  options.split_trajs === true && (topic === 'Roboset' || topic === 'VD4RL')

/** Puts a place before a difference. */
export const at = (place, difference) => difference && `${place}: ${difference}`

/** Notes a decision once. */
export const note = (decisions, name) => void (decisions.includes(name) || decisions.push(name))

/** The comparison of rows of a class: those of the original where ours have more or other flags. */
export function comparable({ row: { topic, dataset_id: id, options }, decisions }) {
  const near = topic === 'OpenML' ? 1e-12 : options.image_size ? 1e-4 : 0
  const images = topic === 'OpenX' && id === 'viola'
  if (topic === 'VD4RL' && id.endsWith('84px')) {
    note(decisions, PIXEL_FLAGS)
    return (got, want) => dictOfRowsDiffers(got.exclude(['is_init', ...FLAG_KEYS]), want, { near })
  }
  if (topic !== 'AtariDQN') return (got, want) => dictOfRowsDiffers(got, want, { near, images })
  note(decisions, ATARI_FLAGS)
  return (got, want) => {
    const [ours, theirs] = [withByteFlags(got), flagsAsBytes(want, got.batchSize)]
    const wrong = dictOfRowsDiffers(ours, theirs)
    const isTerminal = [theirs.k.next.k.terminated?.d ?? 1].flat().includes(1)
    if (wrong === undefined || !isTerminal) return wrong
    const frame = theirs.k.next.k.observation
    const { dtype, shape } = ours.tensor(NEXT_FRAME)
    if (same([dtype, frame?.$t, [...shape]], ['u8', 'uint8', frame?.s])) return wrong
    // A terminal step that is alone of its split keeps the frame behind it.
    note(decisions, ATARI_NEXT)
    return dictOfRowsDiffers(ours.exclude([NEXT_FRAME]), without(theirs, NEXT_FRAME))
  }
}

/** All rows, some of them, one of them. */
export async function storedDiffers(seen) {
  const { row, ok, buffer, open } = seen
  if (isUnsplit(row)) return await unsplitDiffers(seen)
  if (row.topic === 'GenDGRL') return stepsDiffer(seen)
  const differ = comparable(seen)
  const isMapped = row.topic === 'VD4RL' && row.options.totensor !== false
  const plain = ok.stored && isMapped ? await open({ totensor: false, imageSize: undefined }) : buffer
  return (
    (ok.stored && differ(plain.readAllInOrder(), ok.stored)) ??
    (ok.all && differ(buffer.readAllInOrder(), ok.all)) ??
    (ok.rows && at('rows', differ(buffer.storage.get(ok.rows.index), ok.rows.data))) ??
    (ok.row0 && at('row0', differ(buffer.storage.get([0]).index(0), ok.row0))) ??
    (ok.get && readsDiffer(buffer, ok.get, differ))
  )
}

/** The original left rows that were not split. */
async function unsplitDiffers(seen) {
  const { ok, buffer, open } = seen
  const differ = comparable(seen)
  const steps = (await open({ splitTrajs: false })).readAllInOrder()
  const rows = buffer.readAllInOrder()
  const mask = Array.from(rows.tensor('mask').data, Number)
  return (
    (ok.all && differ(steps, ok.all)) ??
    (ok.stored && differ(steps, ok.stored)) ??
    same(mask.filter((one) => one === 1).length, ok.len) ??
    same(rows.batchSize.length, 2)
  )
}

/** Ways to read, by their names in the rows. */
const READS = {
  int: (buffer) => buffer.at(3),
  slice: (buffer) => buffer.at({ start: 2, stop: 10, step: 2 }),
  list: (buffer) => buffer.at([0, 5, 2]),
  across: (buffer) => buffer.at([1, 0, 26, 52]),
  column: (buffer) => buffer.at([1, 4]),
}

function readsDiffer(buffer, get, differ) {
  for (const [kind, want] of Object.entries(get)) {
    const wrong = differ(READS[kind](buffer), want)
    if (wrong) return `get: ${kind}: ${wrong}`
  }
  return undefined
}

/** The original has its nominal length: it cuts rows, or leaves zeros behind them. */
function stepsDiffer({ ok, buffer }) {
  const differ = (positions, want) => {
    const inReach = positions.flatMap((one, place) => (one < buffer.length ? [place] : []))
    const some = inReach.length < positions.length
    const wrong = same(want.$td, [positions.length])
    if (wrong) return wrong
    return rowsDiffer(
      buffer.at(inReach.map((place) => positions[place])),
      some ? picked(want, inReach) : want,
      { some },
    )
  }
  return (
    (ok.all &&
      differ(
        Array.from({ length: ok.len }, (_, place) => place),
        ok.all,
      )) ??
    (ok.rows && at('rows', differ(ok.rows.index, ok.rows.data))) ??
    (ok.row0 && at('row0', rowsDiffer(buffer.at(0), ok.row0)))
  )
}

/** Some rows of a golden dictionary, without leaves that are there as a hash alone. */
function picked(want, places) {
  const [length] = want.$td
  const one = (value) => {
    if (value.$td) return picked(value, places)
    if (value.sha256 !== undefined) return undefined
    const size = value.d.length / length
    const d = places.flatMap((place) => value.d.slice(place * size, (place + 1) * size))
    return { ...value, s: [places.length, ...value.s.slice(1)], d }
  }
  const kept = Object.entries(want.k).map(([key, value]) => [key, one(value)])
  return { $td: [places.length], k: Object.fromEntries(kept.filter(([, value]) => value !== undefined)) }
}

/** The first difference of rows that the original drew. */
export async function drawsDiffer(seen) {
  for (const name of ['sample', 'slice_sample']) {
    const draw = seen.ok[name]
    const wrong = draw && (await drawDiffers(seen, draw))
    if (wrong) return `${name}: ${wrong}`
  }
  return undefined
}

async function drawDiffers(seen, { index, batch }) {
  const positions = numbersOf(index)
  const sampler = Sampler.from({ sample: () => ({ rows: positions }) })
  const none = { numSlices: undefined, sliceLen: undefined, strictLength: undefined, replacement: undefined }
  const drawn = (await seen.open({ ...none, sampler })).sample(positions.length)
  const [want, differ] = [without(batch, 'index'), comparable(seen)]
  const rows =
    seen.row.topic === 'AtariDQN' ? bySplit(drawn.exclude(['index']), seen) : drawn.exclude(['index'])
  return (
    at('index', same([positions, 'int64'], [numbersOf(batch.k.index), batch.k.index.$t])) ??
    at('index', same(Array.from(drawn.tensor('index').data, Number), positions)) ??
    (index.s.length === 1
      ? differ(rows, want)
      : slicesDiffer(rows, want, positions, seen.row.options, differ))
  )
}

/** Rows of Atari in the order of their splits, in which the original gives them whatever was asked for. */
function bySplit(rows, { decisions }) {
  const splits = [rows.get('metadata')].flatMap(
    ({ values, value }) => values ?? Array(rows.batchSize[0]).fill(value),
  )
  const names = [...new Set(splits.map(({ add_count: count }) => count))].sort((one, other) => one - other)
  const order = names.flatMap((name) =>
    splits.flatMap(({ add_count: count }, place) => (count === name ? [place] : [])),
  )
  if (order.every((place, at) => place === at)) return rows
  note(decisions, ATARI_NEXT)
  return rows.at(order)
}

const FLAGS = ['done', 'terminated', 'truncated'].map((name) => ['next', name])

/** A sampler of slices sets the ends of its slices, and `is_init` at their beginnings where it is stored. */
function slicesDiffer(rows, want, positions, { slice_len: sliceLen }, differ) {
  const isEnd = positions.map(
    (one, place) =>
      positions[place + 1] !== one + 1 || (sliceLen !== undefined && (place + 1) % sliceLen === 0),
  )
  const isBegin = isEnd.map((_, place) => place === 0 || isEnd[place - 1])
  const stored = (key) =>
    rows.has(key) ? Array.from(rows.tensor(key).data, Boolean) : positions.map(() => false)
  // The flags of `next.done` of Atari are of each row against each.
  const wanted = ({ d }) => {
    const step = d.length === positions.length ? 1 : positions.length + 1
    return positions.map((_, place) => Boolean(d[place * step]))
  }
  const { done, terminated, truncated } = want.k.next.k
  const differs = (name, got, flags) => {
    if (flags === undefined) return rows.has(['next', name]) ? `next.${name} is not in the row` : undefined
    const shapes =
      name === 'is_init'
        ? [[positions.length]]
        : [[positions.length, 1], [positions.length], [positions.length, positions.length]]
    const wrong = flags.$t === 'bool' || flags.$t === 'uint8' ? undefined : `flags of ${flags.$t}`
    return at(
      name,
      wrong ??
        (shapes.some((shape) => same(shape, flags.s) === undefined)
          ? same(got, wanted(flags))
          : `flags ${flags.s}`),
    )
  }
  return (
    differs('truncated', isEnd, truncated) ??
    differs(
      'done',
      stored(FLAGS[0]).map((flag, place) => flag || isEnd[place]),
      done,
    ) ??
    differs('terminated', stored(FLAGS[1]), terminated) ??
    differs(
      'is_init',
      stored('is_init').map((flag, place) => flag || isBegin[place]),
      want.k.is_init,
    ) ??
    differ(rows.exclude(['is_init', ...FLAGS]), without(want, 'is_init', ...FLAGS))
  )
}

const numbersOf = (tensor) => [tensor.d].flat().map(Number)

/** Batches that come in the order of the rows. */
export function batchesDiffer({ ok, buffer }) {
  const got = [...buffer]
  const wrong = same(got.length, ok.batches.length)
  if (wrong) return wrong
  const differences = got.map((batch, place) => {
    const want = ok.batches[place]
    const index = Array.from(batch.tensor('index').data, Number)
    // A slice of each episode, from where the generator of the original put it.
    const difference = want.$t
      ? (same(index.length, want.d.length) ?? sameEpisode(buffer, index, numbersOf(want)))
      : (same(['int64', index], [want.k.index.$t, numbersOf(want.k.index)]) ??
        rowsDiffer(batch.exclude(['index']), without(want, 'index')))
    return at(`batch ${place}`, difference)
  })
  return differences.find((one) => one !== undefined)
}

function sameEpisode(buffer, ...indices) {
  const episodesOf = (index) => new Set(Array.from(buffer.at(index).tensor('episode').data, Number))
  const [got, want] = indices.map((index) => [...episodesOf(index)])
  return same(got, want)
}
