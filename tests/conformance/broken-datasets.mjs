/** Damaged and hostile files of data sets: each takes the place of a good one, and is read, or refused with its name and without a folder left. */

import { existsSync, readdirSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CLASSES } from './datasets.mjs'
import { folderWeb } from './folder-web.mjs'
import { same } from './golden-values.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/dataset', import.meta.url))

const OPENML = 'web/www.openml.org'

/** The data set that a file of each class takes the place of, and where that is below the raw files. */
const PLACES = {
  D4RL: [
    'hopper-medium-v2',
    'web/rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/hopper_medium-v2.hdf5',
  ],
  VD4RL: [
    'main/walker_walk/random/64px',
    'hub/datasets/conglu/vd4rl/vd4rl/main/walker_walk/random/64px/a.npz',
  ],
  Roboset: ['DAPG(expert)/door_v2d-v1', 'hub/datasets/jdvakil/RoboSet_Sim/DAPG(expert)/door_v2d-v1/seed0.h5'],
  GenDGRL: [
    'bigfish-level_1_E',
    'web/dl.fbaipublicfiles.com/DGRL/Procgen/Datasets/Compressed/100k/level_1/expert/bigfish.tar.xz',
  ],
  OpenX: ['viola', 'hub/datasets/jxu124/OpenX-Embodiment/viola/viola_00000.tar'],
  OpenML: ['magic', `${OPENML}/data/v1/download/2120/MagicTelescope.arff`],
  LeRobot: ['lerobot/x', 'hub/datasets/lerobot/x'],
}

/** A row that allows two outcomes. */
const EITHER = /^(?:refused or passed over|passed over or refused|loads, or)/
const REFUSED = /^(?:typed error|refused|LIMIT_EXCEEDED|INCOMPATIBLE|stops at)/

/** The WebAssembly module opens no files. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

export const brokenDatasets = {
  topic: 'damaged data sets',
  members: {
    input: 'id topic case files must ids',
    aside: {
      upstream: 'what the original does with it',
      ok: 'what the original makes of it, which the tests of Rust read',
      note: 'a remark',
    },
  },
  matches: ({ topic, must }) => must !== undefined && (Object.hasOwn(CLASSES, topic) || topic === 'transfer'),
  prepare: (folder) => [folder, GOLDEN].find((one) => existsSync(join(one, 'broken'))),
  check,
}

async function check({ value: row }, folder) {
  if (row.topic === 'transfer')
    return { skipped: 'a server that misbehaves: ts/test/fetch/download.test.ts has one for each case' }
  if (!HAS_FILES) return { skipped: 'files, which the WebAssembly module does not open' }
  const root = await mkdtemp(join(tmpdir(), 'fulmar-conform-'))
  try {
    if (row.ids) return await idsDiffer(row, root)
    return await opened(row, folder, root)
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/** Ids that would be paths. */
async function idsDiffer({ topic, ids }, root) {
  for (const id of ids) {
    const { error } = await attempted(() => CLASSES[topic].open(id, { root: join(root, 'rows') }))
    if (error === undefined) return `must refuse ${JSON.stringify(id)}`
  }
  return same(readdirSync(root), [])
}

async function opened(row, folder, root) {
  const { id, options, name } = await placed(row, folder, join(root, 'raw'))
  const rows = join(root, 'rows')
  const { value, error } = await attempted(() =>
    CLASSES[row.topic].open(id, { ...options, root: rows, ...cacheOf(row, root) }),
  )
  if (error === undefined) {
    if (REFUSED.test(row.must) && !EITHER.test(row.must)) return 'must be refused'
    return value.length > 0 ? undefined : 'a data set without rows'
  }
  if (!REFUSED.test(row.must) && !EITHER.test(row.must)) return `${error.code}: ${error.message}`
  const left = existsSync(join(rows, ...id.split('/'))) ? `${id} is left behind` : undefined
  return left ?? misnamed(row, error, name)
}

const cacheOf = ({ topic }, root) =>
  PLACES[topic]?.[1].startsWith('hub/') ? { cache: join(root, 'hub') } : {}

/** Copies the damaged file to where its class looks for it. Returns the options, and what the error must name. */
async function placed({ topic, files = [], case: damage }, folder, raw) {
  const [first] = files
  const from = first && join(folder, first)
  if (topic === 'Minari') {
    const minariRoot = from.slice(0, from.indexOf('/x-v0/'))
    return {
      id: 'x-v0',
      options: { loadFromLocalMinari: true, minariRoot },
      name: /main_data\.hdf5|metadata\.json/,
    }
  }
  if (topic === 'AtariDQN') return { id: 'Pong/1', options: { folder: dirname(from) }, name: /_ckpt\.0\.gz/ }
  const [id, place] = PLACES[topic]
  if (topic === 'OpenML') await describeTable(folder, raw, from)
  const to = join(raw, place)
  await mkdir(dirname(to), { recursive: true })
  await cp(from ?? join(folder, 'broken/openml/good.arff'), to, { recursive: true })
  const { client, endpoint } = folderWeb(raw)
  const isHub = place.startsWith('hub/')
  const options = { client, retries: 0, ...(isHub && { endpoint }) }
  if (topic === 'OpenX') Object.assign(options, { streaming: false })
  if (topic === 'LeRobot') Object.assign(options, { decodeVideo: false })
  const name =
    topic === 'LeRobot' ? /info\.json|\.parquet|\.mp4|tasks|episodes|lerobot\/x|data/ : basename(place)
  return { id, options, name: damage.startsWith('md5') ? 'MagicTelescope' : name }
}

/** The answers of OpenML about a table whose last column is its outcome; with the checksum of another file if `from` is not given. */
async function describeTable(folder, raw, from) {
  const api = join(folder, 'raw', OPENML, 'api')
  await cp(api, join(raw, OPENML, 'api'), { recursive: true })
  if (from === undefined) return
  const text = await readFile(from, 'utf8')
  const outcome = [...text.matchAll(/^@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(\S+))/gim)].at(
    -1,
  )
  const data_set_description = {
    url: 'https://www.openml.org/data/v1/download/2120/MagicTelescope.arff',
    default_target_attribute: outcome?.slice(1).find((one) => one !== undefined) ?? 'b',
  }
  await writeFile(join(raw, OPENML, 'api/v1/json/data/1120'), JSON.stringify({ data_set_description }))
}

/** A difference unless an error names the file, and has the code and the numbers that the row asks for. */
function misnamed({ must }, { code, message }, name) {
  const isNamed = typeof name === 'string' ? message.includes(name) : name.test(message)
  if (!isNamed) return `must name ${name}: ${code}: ${message}`
  if (/both|numbers|two lengths/.test(must) && (message.match(/\d+/g) ?? []).length < 2)
    return `must have both: ${message}`
  const codes = must.match(/LIMIT_EXCEEDED|INCOMPATIBLE/g) ?? []
  const isFree = /or typed error|memory is taken$/.test(must) && !must.startsWith('LIMIT_EXCEEDED before')
  return codes.length === 0 || isFree || codes.includes(code)
    ? undefined
    : `must be ${codes}: ${code}: ${message}`
}

async function attempted(body) {
  try {
    return { value: await body() }
  } catch (error) {
    if (error instanceof Error && error.name === 'FulmarError') return { error }
    throw error
  }
}
