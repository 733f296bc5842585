/** Rows of torchrl's offline data sets: each is opened from the raw files of its folder, and read, drawn from, mapped and removed. */

import { existsSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  AtariDQNExperienceReplay,
  D4RLExperienceReplay,
  GenDGRLExperienceReplay,
  LeRobotExperienceReplay,
  MinariExperienceReplay,
  OpenMLExperienceReplay,
  OpenXExperienceReplay,
  RobosetExperienceReplay,
  VD4RLExperienceReplay,
} from 'fulmar/dataset'
import { Tensor } from 'fulmar/tensor'
import { filesDiffer, manifestDiffers } from './dataset-files.mjs'
import { membersOf, toleranceOf } from './dataset-members.mjs'
import { metadataDiffers, specsDiffer } from './dataset-metadata.mjs'
import { at, batchesDiffer, comparable, drawsDiffer, isUnsplit, storedDiffers } from './dataset-reads.mjs'
import { dictOfRowsDiffers } from './dataset-values.mjs'
import { folderWeb } from './folder-web.mjs'
import { same } from './golden-values.mjs'
import { camel, decided } from './loss-rows.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/dataset', import.meta.url))

const WRITES = 'data sets are read-only'
const TABLES = 'tables of OpenML are read-only and have a folder'
const SPLITS = '`splitTrajs` splits RoboSet and V-D4RL the first time too'
const STEPS = 'a data set of Gen-DGRL has as many rows as steps'
const FLOATS = 'flags of D4RL may be of any number type'
const METADATA = 'metadata of D4RL is there when it is opened again'
const ZEROS = 'values of Minari are those of its files'

/** The classes by the topic of a row. */
export const CLASSES = {
  D4RL: D4RLExperienceReplay,
  D4RL_from_env: D4RLExperienceReplay,
  Minari: MinariExperienceReplay,
  Minari_bug_all_zero: MinariExperienceReplay,
  AtariDQN: AtariDQNExperienceReplay,
  VD4RL: VD4RLExperienceReplay,
  Roboset: RobosetExperienceReplay,
  GenDGRL: GenDGRLExperienceReplay,
  OpenML: OpenMLExperienceReplay,
  OpenX: OpenXExperienceReplay,
  LeRobot: LeRobotExperienceReplay,
}

/** Classes whose files are in the hub. */
const IN_HUB = new Set(['Minari', 'VD4RL', 'Roboset', 'OpenX', 'LeRobot'])

/** Options that only torchrl has: where it gets files from, and what its tables hold. */
const THEIRS = new Set(['direct_download', 'nominal_length', 'load_from_local_minari'])

export const datasets = {
  topic: 'data sets',
  members: membersOf,
  tolerance: toleranceOf,
  matches: ({ topic, must }) => Object.hasOwn(CLASSES, topic) && must === undefined,
  prepare: (folder) => [folder, GOLDEN].find((one) => existsSync(join(one, 'raw/web'))),
  check,
}

const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

async function check({ value: row }, folder) {
  const world = await worldOf(folder)
  try {
    const { topic, dataset_id: id, error, ok } = row
    const open = (more = {}) => {
      const options = Object.entries({ ...optionsOf(row, world), ...more })
      return CLASSES[topic].open(id, Object.fromEntries(options.filter(([, value]) => value !== undefined)))
    }
    const opened = await attempted(open)
    if (!HAS_FILES && (error === undefined || opened.code === 'UNAVAILABLE'))
      return { skipped: 'files, which the WebAssembly module does not open' }
    if (error !== undefined) return await refusalDiffers(row, opened, open)
    if (opened.code) return opened.code
    const decisions = []
    const wrong = await openedDiffers({ row, ok, buffer: opened.value, open, world, decisions })
    return wrong ?? (decisions.length > 0 ? { byDecision: decisions.join('; ') } : undefined)
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
}

/** Servers that have the files of a folder, and an empty folder for rows. */
export async function worldOf(folder) {
  const raw = join(folder, 'raw')
  const root = await mkdtemp(join(tmpdir(), 'fulmar-conform-'))
  return { folder, raw, root, web: folderWeb(raw) }
}

/** torchrl's options in our names, and where files come from. */
export function optionsOf({ topic, options = {} }, { raw, root, web }) {
  const { client, endpoint } = web
  const ours = {}
  for (const [name, value] of Object.entries(options)) {
    if (THEIRS.has(name)) continue
    if (name === '_max_runs') ours.numSplits = value
    else if (name === 'key_map') ours.keyMap = JSON.parse(value.replaceAll("'", '"'))
    else ours[camel(name)] = value
  }
  const isLocal = options.load_from_local_minari === true
  if (isLocal) Object.assign(ours, { loadFromLocalMinari: true, minariRoot: join(raw, 'minari') })
  else Object.assign(ours, { client, retries: 0 })
  if (IN_HUB.has(topic) && !isLocal) Object.assign(ours, { endpoint, cache: join(root, 'hub') })
  if (topic === 'OpenX' && ours.streaming !== false) return ours
  return { ...ours, root: join(root, 'rows') }
}

async function attempted(body) {
  try {
    return { value: await body() }
  } catch (error) {
    if (error instanceof Error && error.name === 'FulmarError') return { code: error.code }
    throw error
  }
}

async function refusalDiffers({ topic, error }, { code, value }, open) {
  const isFloat = topic === 'D4RL' && error.class === 'NotImplementedError'
  if (!isFloat) return code ? undefined : 'must be refused'
  if (code) return code
  const flags = value.readAllInOrder().tensor(['next', 'terminated'])
  return decided(FLOATS, same(flags.dtype, 'bool'), same((await open()).length, value.length))
}

/** The first difference of a data set that was opened; pushes the decisions that it met. */
async function openedDiffers(seen) {
  const { row, ok, buffer, world, decisions } = seen
  if (row.topic === 'Minari_bug_all_zero') {
    decisions.push(ZEROS)
    const values = buffer.readAllInOrder().tensor('observation')
    if (!values.toFloat32().some((one) => one !== 0)) return 'all values are zero'
  }
  const checks = [
    () => strangeRequest(row, world),
    () => partsDiffer(seen),
    () => (row.topic === 'Minari_bug_all_zero' ? undefined : storedDiffers(seen)),
    () => (ok.metadata ? metadataDiffers(seen) : undefined),
    () => (ok.specs ? specsDiffer(seen) : undefined),
    () => (ok.processed ? processedDiffers(seen) : undefined),
    () => drawsDiffer(seen),
    () =>
      ok.epoch_sizes
        ? same(
            [...buffer].map(({ batchSize }) => batchSize[0]),
            ok.epoch_sizes,
          )
        : undefined,
    () => (ok.batches ? batchesDiffer(seen) : undefined),
    () => mappedDiffers(seen, 'preprocess'),
    () => mappedDiffers(seen, 'preprocess_first_7'),
    () => againDiffers(seen),
    () => writable(seen),
    () => removedDiffers(seen),
  ]
  for (const one of checks) {
    const wrong = await one()
    if (wrong) return wrong
  }
  return undefined
}

/** A file that we asked for and the original did not. */
function strangeRequest({ requests }, { web }) {
  // A cache that other rows had filled is asked for less.
  if (!requests?.some(({ host }) => host !== 'hub')) return undefined
  const asked = new Set(
    requests.map(({ host, path }) =>
      host === 'web' ? path : path.replace(/^\/(?:datasets\/)?/, '').replace(/\/resolve\/[^/]+\//, '/'),
    ),
  )
  const ours = [...web.seen].map((one) =>
    one.includes('://') ? decodeURIComponent(new URL(one).href.replace(/^\w+:\//, '')) : one,
  )
  if (ours.length === 0 && asked.size > 0) return 'nothing was asked for'
  const strange = ours.find((one) => !asked.has(one))
  return strange && `asked for ${strange}, which the original does not ask for`
}

/** Length, sampler, writer and folders. */
async function partsDiffer({ row: { topic, options, dataset_id: id }, ok, buffer, world, decisions }) {
  const root = join(world.root, 'rows')
  const isTable = topic === 'OpenML'
  const isSplit = isUnsplit({ topic, options })
  if (ok.writer === 'TensorDictRoundRobinWriter') decisions.push(isTable ? TABLES : WRITES)
  if (isSplit) decisions.push(SPLITS)
  if (topic === 'GenDGRL' && buffer.length !== ok.len) decisions.push(STEPS)
  const folders =
    ok.data_path === null
      ? [id, id]
      : isSplit
        ? [`${ok.data_path_root}_split`, ok.data_path_root]
        : [ok.data_path, ok.data_path_root]
  return (
    (isSplit ? undefined : same(topic === 'GenDGRL' ? options.nominal_length : buffer.length, ok.len)) ??
    (ok.sampler && same(buffer.sampler.constructor.name, ok.sampler)) ??
    (ok.data_path === undefined
      ? undefined
      : same(
          [buffer.dataPath, buffer.dataPathRoot],
          folders.map((one) => join(root, one)),
        )) ??
    (ok.max_outcome_val === undefined ? undefined : same(buffer.maxOutcomeVal, ok.max_outcome_val)) ??
    (ok.episodes && same(['int64', Array.from(buffer.episodes, Number)], [ok.episodes.$t, ok.episodes.d])) ??
    (ok.files && !isSplit && topic !== 'GenDGRL'
      ? await filesDiffer(buffer.dataPath, ok.files, topic === 'VD4RL' && id.endsWith('84px'))
      : undefined) ??
    (ok.tree && (await filesDiffer(root, ok.tree))) ??
    (ok.processed_json &&
      same(JSON.parse(await readFile(join(buffer.dataPath, 'processed.json'), 'utf8')), ok.processed_json)) ??
    (ok.manifest && (await manifestDiffers(buffer.dataPath, ok.manifest)))
  )
}

/** A folder that the original left opens without a request. */
async function processedDiffers(seen) {
  const { row, ok, open, world } = seen
  const root = join(world.root, 'processed')
  await cp(join(world.folder, ok.processed), join(root, ...row.dataset_id.split('/')), { recursive: true })
  const buffer = await open({ root, download: false })
  return at('processed', ok.all && comparable(seen)(buffer.readAllInOrder(), ok.all))
}

/** Selects action and next.reward and doubles the observation, as the original did. */
async function mappedDiffers({ ok, buffer, world }, name) {
  const { [name]: wanted } = ok
  if (wanted === undefined) return undefined
  const twice = (rows) => {
    const observation = rows.tensor('observation')
    const doubled = observation.data.map((one) => 2 * one)
    return rows
      .select(['action', ['next', 'reward']])
      .set('obs2', Tensor.from(doubled, { shape: [...observation.shape], dtype: observation.dtype }))
  }
  const { num_frames: numFrames } = wanted.kwargs
  const dest = join(world.root, name)
  const mapped = await buffer.preprocess(twice, { dest, ...(numFrames && { numFrames: Number(numFrames) }) })
  return at(
    name,
    same(mapped.length, wanted.len) ??
      dictOfRowsDiffers(mapped.readAllInOrder(), wanted.data) ??
      (await filesDiffer(dest, wanted.files)),
  )
}

/** Later constructions: without a request, with the same rows; or forced, with as many requests. */
async function againDiffers({ row, ok, buffer, open, world, decisions }) {
  const { seen } = world.web
  if (ok.again) {
    seen.clear()
    const again = await open()
    const isKept = again.metadata.keys().length > 0
    if (row.topic === 'D4RL' && ok.again.metadata_kept !== isKept) decisions.push(METADATA)
    const wrong =
      same([...seen], []) ??
      same(again.readAllInOrder().equals(buffer.readAllInOrder()), true) ??
      same(isKept, true)
    if (wrong) return `again: ${wrong}`
  }
  if (ok.force) {
    seen.clear()
    await open({ download: 'force' })
    if (seen.size !== ok.force.requests.length) return `force: ${seen.size} requests`
  }
  return undefined
}

/** A buffer that lets itself be written. */
function writable({ ok, buffer }) {
  const writes = {
    extend: () => buffer.extend(buffer.at([0])),
    add: () => buffer.add(buffer.at(0)),
    empty: () => buffer.clear(),
  }
  for (const name of Object.keys(ok.immutable ?? { extend: 0 })) {
    const wrong = refused(writes[name])
    if (wrong) return `${name}: ${wrong}`
  }
  return undefined
}

function refused(body) {
  try {
    body()
    return 'must be refused'
  } catch (error) {
    return error.name === 'FulmarError' ? undefined : String(error)
  }
}

async function removedDiffers({ ok, buffer }) {
  if (ok.delete === undefined) return undefined
  await buffer.delete()
  return same(existsSync(buffer.dataPath), ok.delete.exists)
}
