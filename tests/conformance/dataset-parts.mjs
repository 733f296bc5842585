/** Rows about data sets that open none as a buffer: their ids and addresses, sources, streams, frames of videos, and tables of columns. */

import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  datasetSources,
  LeRobotExperienceReplay,
  lerobotColumnsToTensorDict,
  loadDataset,
  OpenXStream,
  registerDataset,
  VideoClipRef,
} from 'fulmar/dataset'
import { Sampler } from 'fulmar/replay'
import { D4RL_FILES, D4RL_SERVER } from '../../dist/dataset/d4rl-files.js'
import { GEN_DGRL_FILES, GEN_DGRL_SERVER } from '../../dist/dataset/gen-dgrl-files.js'
import { OpenXEpisodes } from '../../dist/dataset/openx-episodes.js'
import { findVideoDecoder } from '../../dist/dataset/video-decoder.js'
import { dictOfRowsDiffers, plain, without } from './dataset-values.mjs'
import { CLASSES, worldOf } from './datasets.mjs'
import { same } from './golden-values.mjs'
import { camel, decided } from './loss-rows.mjs'
import { tensorIn } from './replay-rows.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/dataset', import.meta.url))
const HUB_IDS = 'the ids of V-D4RL are those of the hub'
const INDEX = 'positions of slices are `[rows]`'

const CHECKS = {
  available,
  GenDGRL_urls: addresses,
  load_dataset: loaded,
  register_dataset: registered,
  prefixes: ({ ok }) =>
    same(
      datasetSources().filter((one) => one !== 'toy'),
      ok,
    ),
  OpenX_stream: streamed,
  video_frames: framesOf,
  lerobot_columns_to_tensordict: tableOf,
  LeRobot_from_columns: drawnFrom,
}

const EXPECTED = {
  available: 'datasets',
  GenDGRL_urls: 'urls nominal',
  video_frames: 'frames.*.yuv420p_sha256 frames.*.time frames.*.mean_rgb',
}

/** The WebAssembly module opens no files. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')
const WITHOUT_FILES = new Set(['available', 'GenDGRL_urls', 'load_dataset', 'register_dataset', 'prefixes'])

export const datasetParts = {
  topic: 'parts of data sets',
  members: ({ topic }) => ({
    input: 'id topic cls dataset prefix dataset_id options batch iterate u_draws columns file',
    expected: EXPECTED[topic] ?? 'ok',
    refusal: 'error:ok',
    aside: {
      note: 'a remark',
      codec: 'that of the file',
      'frames.*.rgb24_sha256': 'conversions to RGB differ by 3',
      'ok.k.index.s': 'positions of slices are one a row',
      // A sampler of slices sets these in batches of the original, and the slices of rows are given to ours.
      'ok.k.next.k.terminated': 'a flag that slices add',
    },
  }),
  tolerance: ({ topic }) =>
    topic === 'video_frames' ? { relative: 0, absolute: 3 } : { relative: 0, absolute: 1e-7 },
  matches: ({ topic, must }) => Object.hasOwn(CHECKS, topic) && must === undefined,
  prepare: (folder) => [folder, GOLDEN].find((one) => existsSync(join(one, 'raw/web'))),
  check: ({ value: row }, folder) =>
    HAS_FILES || WITHOUT_FILES.has(row.topic)
      ? CHECKS[row.topic](row, folder)
      : { skipped: 'files, which the WebAssembly module does not open' },
}

async function available({ cls, datasets }, folder) {
  const isMap = !Array.isArray(datasets)
  const theirs = isMap ? Object.keys(datasets) : datasets
  if (cls === 'D4RL') {
    const urls = Object.fromEntries([...D4RL_FILES].map(([id, file]) => [id, `${D4RL_SERVER}/${file}`]))
    return same(urls, datasets) ?? same([...CLASSES.D4RL.availableDatasets].sort(), theirs.toSorted())
  }
  if (cls !== 'VD4RL') return same([...CLASSES[cls].availableDatasets].sort(), theirs.toSorted())
  const world = await worldOf(folder)
  try {
    const { client, endpoint } = world.web
    const ids = await CLASSES.VD4RL.availableDatasets({ client, endpoint, cache: join(world.root, 'hub') })
    return decided(HUB_IDS, same(ids, theirs))
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
}

function addresses({ urls, nominal }) {
  const files = [...GEN_DGRL_FILES]
  return (
    same(Object.fromEntries(files.map(([id, { path }]) => [id, `${GEN_DGRL_SERVER}/${path}`])), urls) ??
    same(
      Object.fromEntries(files.map(([id, { numRowsMax }]) => [id.slice(id.indexOf('-') + 1), numRowsMax])),
      nominal,
    )
  )
}

/** The source `toy` gives the id that it got. */
async function loaded({ dataset, ok, error }) {
  registerDataset('toy', (id) => `${id}`, { replace: true })
  try {
    const got = await loadDataset(dataset)
    return error ? 'must be refused' : same(got, ok)
  } catch ({ name, message }) {
    return error && name === 'FulmarError' ? undefined : message
  }
}

function registered({ prefix, dataset, options, ok, error }) {
  registerDataset('toy', (id) => `${id}`, { replace: true })
  const factory = dataset.startsWith('<class')
    ? (id) => id
    : Number.isNaN(Number(dataset))
      ? dataset
      : Number(dataset)
  try {
    registerDataset(prefix, factory, options)
    return error ? 'must be refused' : same(ok, null)
  } catch ({ name, message }) {
    return error && name === 'FulmarError' ? undefined : message
  }
}

/** Batches of a stream, or all that it yields, with the numbers that the original drew. */
async function streamed(row, folder) {
  const world = await worldOf(folder)
  try {
    const batches = []
    const stream = await streamOf(row, world)
    if (row.iterate) for await (const batch of stream) batches.push(batch)
    else for (const _ of row.ok ?? [0]) batches.push(await stream.sample())
    if (row.error) return 'must be refused'
    const wanted = row.ok.map(unpaired)
    const differences = batches.map((batch, at) => dictOfRowsDiffers(batch, wanted[at]))
    return same(batches.length, wanted.length) ?? differences.find((one) => one !== undefined)
  } catch (error) {
    if (row.error && error.name === 'FulmarError') return undefined
    throw error
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
}

async function streamOf({ dataset_id: datasetId, options, batch, u_draws: draws }, world) {
  const { client, endpoint } = world.web
  const ours = { client, endpoint, cache: join(world.root, 'hub'), retries: 0 }
  for (const [name, value] of Object.entries(options)) ours[camel(name)] = value
  if (batch !== null) ours.batchSize = batch
  const { pad } = ours
  if (draws === null) return await CLASSES.OpenX.open(datasetId, ours)
  await CLASSES.OpenX.open(datasetId, ours)
  return new OpenXStream({
    datasetId,
    episodes: await OpenXEpisodes.open(datasetId, ours),
    uniform: (episode) => draws[episode],
    pad: pad === true ? 0 : pad === false ? undefined : pad,
    options: ours,
  })
}

/** Dictionaries of a stream are lists of pairs in the rows. */
function unpaired(value) {
  if (Array.isArray(value)) return value.map(unpaired)
  if (typeof value !== 'object' || value === null) return value
  const entries = value.$dict ?? Object.entries(value)
  return Object.fromEntries(entries.map(([key, one]) => [key, unpaired(one)]))
}

/** The planes and colours of each frame, decoded by `node-av` where it is installed. */
async function framesOf({ file, frames }, folder) {
  const path = join(folder, file)
  const clip = new VideoClipRef(path)
  const times = []
  await clip.decode({ decoder: (track, encoded) => blank(track, encoded, times) })
  const late = times
    .sort((left, right) => left - right)
    .findIndex((time, at) => Math.abs(time - frames[at]?.time) > 1e-6)
  if (times.length !== frames.length || late >= 0) return `times: got ${times}`
  const nodeAv = await findVideoDecoder()
  if (nodeAv === undefined) return { skipped: 'node-av, which decodes H.264' }
  const hashes = []
  const decoder = async (track, encoded) => {
    const pictures = await nodeAv(track, encoded)
    hashes.push(...pictures.map(({ data }) => createHash('sha256').update(data).digest('hex')))
    return pictures
  }
  const decoded = await clip.decode({ decoder })
  const [count, , height, width] = decoded.shape
  const size = height * width
  const wrong =
    same(count, frames.length) ??
    same(
      hashes,
      frames.map((frame) => frame.yuv420p_sha256),
    )
  if (wrong) return wrong
  for (const [at, { mean_rgb: mean }] of frames.entries()) {
    for (const [color, want] of mean.entries()) {
      const plane = decoded.data.subarray((3 * at + color) * size, (3 * at + color + 1) * size)
      const got = plane.reduce((sum, value) => sum + value, 0) / size
      if (Math.abs(got - want) >= 3) return `colour ${color} of frame ${at}: got ${got}, expected ${want}`
    }
  }
  return undefined
}

/** Pictures without colour, one for each frame; notes the times, in seconds. */
function blank({ codedWidth: width, codedHeight: height }, encoded, times) {
  times.push(...encoded.map(({ timestamp }) => timestamp / 1e6))
  return encoded.map(() => ({ width, height, format: 'rgb24', data: new Uint8Array(3 * width * height) }))
}

const columnsOf = ({ columns }) =>
  Object.fromEntries(
    (columns.$dict ?? Object.entries(columns)).map(([name, one]) => [
      name,
      one.$t ? tensorIn(one) : plain(one),
    ]),
  )

function tableOf(row) {
  try {
    const dict = lerobotColumnsToTensorDict(columnsOf(row))
    return row.error ? 'must be refused' : dictOfRowsDiffers(dict, row.ok)
  } catch (error) {
    if (row.error && error.name === 'FulmarError') return undefined
    throw error
  }
}

/** The rows that the original's sampler of slices drew, which sets the flags of their ends. */
async function drawnFrom(row) {
  const { index, next } = row.ok.k
  const positions = [index.d].flat().map(Number)
  const options = row.options.rehydrate ? { rehydrate: true } : {}
  const sampler = Sampler.from({ sample: () => ({ rows: positions }) })
  const buffer = await LeRobotExperienceReplay.fromColumns(columnsOf(row), { ...options, sampler })
  const drawn = buffer.sample(positions.length)
  const stored = Array.from(drawn.tensor(['next', 'done']).data, Boolean)
  const ends = positions.map((one, at) => positions[at + 1] !== one + 1)
  return decided(
    INDEX,
    same(Array.from(drawn.tensor('index').data, Number), positions),
    same(
      next.k.truncated.d.map(Boolean),
      ends.map((end, at) => end && next.k.truncated.d[at]),
    ),
    same(
      next.k.done.d.map(Boolean),
      stored.map((done, at) => done || Boolean(next.k.truncated.d[at])),
    ),
    next.k.terminated ? undefined : 'next.terminated is not in the row',
    same([index.$t, next.k.truncated.$t, next.k.done.$t], ['int64', 'bool', 'bool']),
    same(
      [next.k.truncated.s, next.k.done.s],
      [
        [positions.length, 1],
        [positions.length, 1],
      ],
    ),
    dictOfRowsDiffers(
      drawn.exclude(['index', ['next', 'done']]),
      without(row.ok, 'index', ['next', 'done'], ['next', 'truncated'], ['next', 'terminated']),
    ),
  )
}
