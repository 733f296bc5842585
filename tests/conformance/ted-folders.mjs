/** Opens what TorchRL and tensordict wrote on disk: folders of memory maps, archives, consolidated files and folders of whole buffers. */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  LazyMemmapStorage,
  LazyTensorStorage,
  PrioritizedSampler,
  PrioritizedSliceSampler,
  RandomSampler,
  ReplayBuffer,
  RoundRobinWriter,
  SamplerWithoutReplacement,
  SliceSamplerWithoutReplacement,
  StalenessAwareSampler,
  TensorDictMaxValueWriter,
  TensorDictReplayBuffer,
} from 'fulmar/replay'
import {
  FlatStorageCheckpointer,
  H5StorageCheckpointer,
  NestedStorageCheckpointer,
  TensorStorageCheckpointer,
} from 'fulmar/replay/files'
import {
  LazyStack,
  loadMemmap,
  NonTensorData,
  NonTensorStack,
  Ragged,
  readArchive,
  readConsolidated,
  Tensor,
  TensorDict,
  writeConsolidated,
} from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'
import { decided } from './loss-rows.mjs'
import { far, partsOf, skipped } from './replay-rows.mjs'

const CHECKPOINTERS = {
  TensorStorageCheckpointer,
  FlatStorageCheckpointer,
  NestedStorageCheckpointer,
  H5StorageCheckpointer,
}
const CLASH = 'a leaf that is named as the format names itself is refused'
const ONE_DICT = 'a stack of parts is read as one dictionary'
const NO_PICKLES = 'pickles are never run'

const CHECKS = {
  memmap: ofMemmap,
  archive: ofArchive,
  consolidate: ofConsolidated,
  rb_checkpoint: ofBuffer,
  rb_parts: ofParts,
  storage_checkpoint: () => skipped('storages of one tensor or of trees on disk, which the Rust tests read'),
}
/** WebAssembly has no files. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

export const tedFolders = {
  topic: 'files of TorchRL',
  members: {
    input: 'id topic note fixture value checkpointer storage sampler writer max_size data',
    expected: `files meta loaded members bytes json_len metadata len cursor write_count is_full contents after_load ran_out leaves
      max_priority generations json`,
    refusal: 'dump_error:loaded error:ok',
    aside: {
      pickles_removed: 'they are not there',
      h5_tree: 'what is in a file is compared as contents',
      h5_attrs: 'what is in a file is compared as contents',
      'after_load.error': "it is the original's own",
      sample_list: 'the Rust tests of fulmar-replay-files compare the state of each part',
      top_values: 'the Rust tests of fulmar-replay-files compare the state of each part',
    },
  },
  matches: ({ topic, id }) =>
    id !== undefined && (Object.hasOwn(CHECKS, topic) || /^corrupt_/.test(topic ?? '')),
  prepare: (folder) => folder,
  check({ value: row }, folder) {
    if (!HAS_FILES) return skipped('files in WebAssembly')
    if (row.fixture === undefined)
      return row.dump_error ? skipped('what upstream could not write') : 'nothing was written'
    if (row.dump_error) return 'upstream wrote nothing'
    const path = join(folder, row.fixture)
    if (!existsSync(path)) return skipped('its files')
    if (row.topic.startsWith('corrupt_')) return ofDamaged(row, path)
    return filesDiffer(row, path) ?? CHECKS[row.topic](row, path)
  },
}

/** A damaged file is refused with a code, or gives what the row says. */
function ofDamaged(row, path) {
  const readers = {
    memmap: loadMemmap,
    archive: (at) => readArchive(readFileSync(at)),
    consolidate: (at) => readConsolidated(readFileSync(at)),
  }
  const reader = readers[row.topic.slice('corrupt_'.length)]
  if (reader === undefined) return `no reader knows ${row.topic}`
  const { value, error } = attempt(() => reader(path))
  if (row.ok === undefined) return error ? undefined : 'must be refused'
  return error?.message ?? differs(value, row.ok)
}

/** Names and lengths of files on disk are those of the row; a folder lists its contents. */
function filesDiffer({ files, pickles_removed: removed = [], meta = {}, json = {} }, path) {
  if (files === undefined) return undefined
  const kept = files.filter(([name]) => !removed.includes(name) && !name.endsWith('.pickle'))
  const found = readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .map((file) => [file.slice(path.length + 1), statSync(file).size])
  const sorted = (list) => [...list].sort(([a], [b]) => (a < b ? -1 : 1))
  if (!isDeepStrictEqual(sorted(found), sorted(kept))) return `files are ${JSON.stringify(sorted(found))}`
  for (const [name, want] of Object.entries({ ...meta, ...json })) {
    const got = JSON.parse(readFileSync(join(path, name), 'utf8'))
    if (!isDeepStrictEqual(got, want)) return `${name} holds ${JSON.stringify(got)}`
  }
  return undefined
}

function ofMemmap(row, path) {
  const { value, error } = attempt(() => loadMemmap(path))
  if (row.pickles_removed.length > 0)
    return decided(
      NO_PICKLES,
      row.loaded === 'equal' ? undefined : 'it was loaded',
      error ? undefined : 'must be refused',
    )
  if (row.value.$lazy !== undefined) return stackDiffers(row, value, error)
  if (error) {
    const isClash = Object.keys(row.value.k ?? {}).some((name) => ['shape', 'device', '_type'].includes(name))
    const kept =
      isClash && JSON.stringify(row.loaded) === JSON.stringify({ ...row.value, k: withoutClash(row.value.k) })
    return isClash ? decided(CLASH, kept ? undefined : 'the original loses them') : error.message
  }
  return loadedDiffers(row, value)
}

/** Parts that are alike are one dictionary; others are refused. */
function stackDiffers({ value: { $lazy: dim, items }, loaded }, got, error) {
  const keys = items.map((item) =>
    JSON.stringify([Object.entries(item.k).map(([name, one]) => [name, one.s]), item.$td]),
  )
  const isAlike = new Set(keys).size === 1
  const theirs = loaded === 'equal' ? undefined : 'the original keeps the parts'
  if (!isAlike) return decided(ONE_DICT, theirs, error ? undefined : 'must be refused')
  if (error) return error.message
  const parts = items.map((item, at) => differs(got.select ? partOf(got, dim, at) : got, item))
  return decided(ONE_DICT, theirs, first(parts))
}

const partOf = (dict, dim, at) => dict.at(...Array.from({ length: dim }, () => ({})), at)

const withoutClash = (entries) =>
  Object.fromEntries(Object.entries(entries).filter(([name]) => !['shape', 'device', '_type'].includes(name)))

function ofArchive(row, path) {
  const bytes = readFileSync(path)
  const members = localMembers(bytes)
  if (!isDeepStrictEqual(members, row.members)) return `members are ${JSON.stringify(members)}`
  const { value, error } = attempt(() => readArchive(bytes))
  return error?.message ?? loadedDiffers(row, value)
}

/** The entries of the directory at the end of a ZIP archive: name, length, method and offset. */
function localMembers(bytes) {
  const members = []
  let at = bytes.indexOf(Buffer.from([0x50, 0x4b, 0x01, 0x02]))
  while (at >= 0 && bytes.readUInt32LE(at) === 0x02014b50) {
    const [method, size] = [bytes.readUInt16LE(at + 10), bytes.readUInt32LE(at + 24)]
    const [nameLength, extra, comment] = [28, 30, 32].map((place) => bytes.readUInt16LE(at + place))
    const name = bytes.subarray(at + 46, at + 46 + nameLength).toString()
    members.push([name, size, method, bytes.readUInt32LE(at + 42)])
    at += 46 + nameLength + extra + comment
  }
  return members
}

function ofConsolidated(row, path) {
  const bytes = readFileSync(path)
  const length = Number(bytes.readBigUInt64LE(bytes.length - 8))
  const head = Number(bytes.readBigUInt64LE(0))
  const size = [length, head].find((one) => one === row.json_len)
  if (bytes.length !== row.bytes || size === undefined)
    return `${bytes.length} bytes, ${length} or ${head} of JSON`
  const text = [bytes.subarray(bytes.length - 8 - size, bytes.length - 8), bytes.subarray(8, 8 + size)]
    .map((part) => attemptJson(part.toString()))
    .find((one) => one !== undefined)
  if (!isDeepStrictEqual(text, row.metadata)) return `its description is ${JSON.stringify(text)}`
  const { value, error } = attempt(() => readConsolidated(bytes))
  if (row.value.$lazy !== undefined) return stackDiffers(row, value, error)
  if (error) return error.message
  return (
    loadedDiffers(row, value) ??
    (Buffer.from(writeConsolidated(value)).equals(bytes) ? undefined : 'it is written otherwise')
  )
}

function attemptJson(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const loadedDiffers = ({ loaded, value }, got) => {
  const isKnown = loaded === 'equal' || (typeof loaded === 'object' && loaded !== null)
  return isKnown ? differs(got, loaded === 'equal' ? value : loaded) : `loaded is ${loaded}`
}

function ofBuffer(row, path) {
  const { storage: kind, after_load: after } = row
  const lanes = kind.ndim === 2 ? row.contents.$td.slice(1) : []
  const buffer = new ReplayBuffer({ storage: new LazyMemmapStorage(kind.max_size, { lanes }) })
  const { error } = attempt(() => buffer.loads(path, new CHECKPOINTERS[row.checkpointer]()))
  if (error) return error.message
  const { cursor } = partsOf(buffer).writer
  const { writeCount } = buffer.stats
  const known = [buffer.length, cursor, writeCount, buffer.storage.length === kind.max_size]
  const shown = [row.len, row.cursor, row.write_count, row.is_full]
  if (!isDeepStrictEqual(known, shown)) return `got ${known}, expected ${shown}`
  const all = buffer.storage.get(Array.from({ length: buffer.storage.length }, (_, at) => at))
  const shaped = lanes.length > 0 ? all.unflatten(0, [-1, ...lanes]) : all
  const told = [after.len, after.cursor, after.write_count]
  if (typeof after.contents === 'string' && after.contents !== 'equal')
    return `after loading ${after.contents}`
  if (after.contents === 'equal' && !isDeepStrictEqual(told, shown.slice(0, 3)))
    return `after loading ${told}`
  return differs(shaped, row.contents)
}

const SAMPLERS = {
  RandomSampler: () => new RandomSampler(),
  SamplerWithoutReplacement: () => new SamplerWithoutReplacement(),
  PrioritizedSampler: () => new PrioritizedSampler(),
  PrioritizedSliceSampler: () => new PrioritizedSliceSampler({ sliceLen: 2, endKeys: [['next', 'done']] }),
  SliceSamplerWithoutReplacement: () =>
    new SliceSamplerWithoutReplacement({ sliceLen: 2, endKeys: [['next', 'done']] }),
  StalenessAwareSampler: () => new StalenessAwareSampler(),
}

function ofParts(row, path) {
  if (SAMPLERS[row.sampler] === undefined) return skipped(`the state of ${row.sampler}`)
  const { shape } = JSON.parse(readFileSync(join(path, 'storage/storage_metadata.json'), 'utf8'))
  const writer = row.writer.includes('MaxValue')
    ? new TensorDictMaxValueWriter()
    : new RoundRobinWriter({ trackGenerations: row.generations !== undefined })
  const buffer = new TensorDictReplayBuffer({
    storage: new LazyTensorStorage(shape?.[0] ?? 6),
    sampler: SAMPLERS[row.sampler](),
    writer,
  })
  const { error } = attempt(() => buffer.loads(path, new TensorStorageCheckpointer()))
  if (error) return skipped(`the options of ${row.sampler}: ${error.message}`)
  const { writer: held, sampler } = partsOf(buffer)
  const tree = (sampler?.tree ?? sampler?.priorities?.tree)?.leaves
  const count = buffer.storage.length
  const largest = sampler?.maxPriority ?? sampler?.priorities?.maxPriority
  const lengths = [row.leaves, row.generations].filter((list) => list !== undefined && list.length !== count)
  return (
    same([held?.cursor ?? 0, buffer.stats.writeCount, lengths], [row.cursor, row.write_count, []]) ??
    (row.leaves && far('leaves', tree.slice(0, count), row.leaves)) ??
    (row.max_priority && far('largest', largest, row.max_priority)) ??
    (row.ran_out === undefined ? undefined : same(buffer.sampler.ranOut, row.ran_out)) ??
    (row.generations && same(buffer.generationsOf(row.generations.map((_, at) => at)), row.generations))
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

/** The first difference of what was read from a golden value: dtypes, shapes, elements, keys, batch sizes and names. */
function differs(got, want, path = '') {
  if (want.$lazy !== undefined) {
    if (!(got instanceof LazyStack)) return `${path} is no stack`
    if (got.dim !== want.$lazy || got.parts.length !== want.items.length) return `${path} is another stack`
    return first(want.items.map((item, at) => differs(got.parts[at], item, `${path}/${at}`)))
  }
  if (want.$td) {
    if (!(got instanceof TensorDict)) return `${path} is no dictionary`
    const names = want.names ?? want.$td.map(() => null)
    const wrong =
      same([got.batchSize, got.names], [want.$td, names]) ??
      same(got.keys().toSorted(), Object.keys(want.k).toSorted())
    if (wrong) return `${path}: ${wrong}`
    return first(
      Object.entries(want.k).map(([name, one]) => differs(got.get([name]), one, `${path}/${name}`)),
    )
  }
  if (want.$njt) {
    if (!(got instanceof Ragged) || got.numRows !== want.$njt.length) return `${path} is another ragged one`
    return first(want.$njt.map((row, at) => differs(got.row(at), row, `${path}/${at}`)))
  }
  if (want.$t) {
    if (!(got instanceof Tensor)) return `${path} is no tensor`
    const isHalf = got.dtype.endsWith('f16')
    const elements = Array.from(isHalf ? got.toFloat32() : got.data, (one) => Number(one) + 0)
    const wrong = same(
      [got.dtype, [...got.shape], elements],
      [DTYPES[want.$t], want.s, want.d.map((one) => Number(one) + 0)],
    )
    return wrong && `${path}: ${wrong}`
  }
  if (got instanceof NonTensorData || got instanceof NonTensorStack) {
    const value = got instanceof NonTensorData ? got.value : got.values
    const wrong = same(value, plainIn('$nt' in want ? want.$nt : want.$nts))
    return wrong && `${path}: ${wrong}`
  }
  return `${path} is ${typeof got}`
}

/** Maps and tuples as JSON has them. */
function plainIn(value) {
  if (Array.isArray(value)) return value.map(plainIn)
  if (value?.$tuple) return value.$tuple.map(plainIn)
  if (value?.$dict) return Object.fromEntries(value.$dict.map(([name, one]) => [name, plainIn(one)]))
  return value
}

const first = (differences) => differences.find((one) => one !== undefined)
const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
