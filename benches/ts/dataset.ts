/**
 * Data sets of D4RL, Minari, Atari DQN replay and LeRobot: fetched or read, converted and opened; rows and parts of episodes drawn from them.
 * Compared with TorchRL, with h5py that reads alone, and with Minari that iterates alone. Ours from Node, through its public classes.
 */

import { createHash } from 'node:crypto'
import { createReadStream, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { fetchClient, type Tensor, type TensorDict } from 'fulmar'
import {
  AtariDQNExperienceReplay,
  type BaseDatasetExperienceReplay,
  D4RLExperienceReplay,
  LeRobotExperienceReplay,
  MinariExperienceReplay,
  readD4RL,
} from 'fulmar/dataset'
import { SliceSampler } from 'fulmar/replay'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  type Report,
  ROOT,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

const D4RL_ID = 'hopper-medium-v2'
const D4RL_FILE = 'hopper_medium-v2.hdf5'
const MINARI_ID = 'bench/halfcheetah-v0'
const ATARI_ID = 'Pong/1'
const ROBOT_ID = 'bench/robot'
const [SLICES, SLICE] = [8, 32]
const BATCH = 256
const FRAMES = 32
/** The largest relative difference of two sums of all rewards, added in other orders. */
const TOLERANCE = 1e-9

interface Work {
  readonly work: string
  readonly run: () => unknown
  /** Gives the number that both sides must give. */
  readonly result: () => Promise<number> | number
  readonly repeats: number
  /** The goals, by the name of the rival's work. */
  readonly rivals: Readonly<
    Record<string, { readonly name: string; readonly goal: Goal; readonly compares: boolean }>
  >
}

const options = readOptions({ rounds: 7 })
const folder = fileURLToPath(new URL('target/bench-dataset', ROOT))
const robot = join(folder, 'robot')
/** The checksums of the files of `robot`. */
const etags = new Map<string, string>()
rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
try {
  hand(await measure())
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measure(): Promise<Report> {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed)
    throw new Error(`the rival must be there to write the files: ${installed.skipped}`)
  const program = fileURLToPath(new URL('benches/rival/torchrl/dataset.py', ROOT))
  const environment = { OMP_NUM_THREADS: '2', ...PYTHON_ENVIRONMENT }
  using peer = new Peer('TorchRL', installed.python, [program, folder], environment)
  const { versions } = (await peer.answer()) as { versions: Record<string, string> }
  say('writing the files')
  await peer.ask(JSON.stringify({ kind: 'make' }))
  const [checks, figures, notes]: [string[], Figure[], string[]] = [[], [], []]
  const works = await worksOf()
  for (const { work, run, result, repeats, rivals } of works) {
    say(work)
    const ours = await result()
    for (const [name, { compares }] of Object.entries(rivals)) {
      const { total } = await asked(peer, name, 1)
      if (!compares) continue
      if (!(Math.abs(total - ours) <= TOLERANCE * Math.max(1, Math.abs(total))))
        throw new Error(`${work} must give ${total}, as ${name} does: got ${ours}`)
      checks.push(`${work}: equal to ${name}`)
    }
    const contestants: Record<string, () => Promise<Sample>> = {
      ours: async () => {
        const startMs = performance.now()
        for (let repeat = 0; repeat < repeats; repeat++) await run()
        return { value: (performance.now() - startMs) / repeats }
      },
    }
    for (const name of Object.keys(rivals)) {
      contestants[name] = async () => {
        const { ms, cpuMs } = await asked(peer, name, repeats)
        return { value: ms / repeats, rivalCpuMs: cpuMs }
      }
    }
    const limits = { ...options, patienceMs: options.patienceMs / works.length, warmup: 1 }
    const rounds = await alternate<string>(contestants, limits)
    for (const [at, { name, goal }] of Object.entries(rivals)) {
      const rival = { name, samples: rounds.of(at).warm }
      figures.push({ work, unit: 'ms', ours: rounds.of('ours').warm, rival, goal })
    }
    notes.push(`${work}: ${rounds.disturbance}`)
  }
  notes.push(`the most memory that ours held: ${(process.resourceUsage().maxRSS / 1024).toFixed(0)} MiB`)
  notes.push('TorchRL 0.14.1 writes zeros for all rows of Minari, so these are not compared')
  return { setting: { batch: BATCH, slices: `${SLICES} x ${SLICE}` }, checks, figures, notes, versions }
}

async function asked(peer: Peer, name: string, repeats: number) {
  const request = JSON.stringify({ kind: 'run', name, repeats })
  return (await peer.ask(request)) as { readonly ms: number; readonly cpuMs: number; readonly total: number }
}

async function worksOf(): Promise<Work[]> {
  const steps = await openD4rl('force')
  const sampled = await openMinari('force')
  const slices = new SliceSampler({ numSlices: SLICES, trajKey: 'episode', endKeys: [] })
  const sliced = await openMinari(false, { sampler: slices, batchSize: SLICES * SLICE })
  const frames = await openAtari('force')
  const robot = await openRobot('force')
  const rival = (name: string, atLeast: number, compares = true) => ({ name, goal: { atLeast }, compares })
  const rewards = (rows: TensorDict) => sumOf(rows.tensor(['next', 'reward']))
  const inMemory = () => readD4RL(readFileSync(join(folder, D4RL_FILE))).steps
  return [
    {
      work: 'D4RL, 1 M steps: fetched, converted, opened',
      run: () => openD4rl('force'),
      result: async () => rewards((await openD4rl('force')).readAllInOrder()),
      repeats: 1,
      rivals: { 'convert d4rl': rival('TorchRL', 3) },
    },
    {
      work: 'D4RL, 1 M steps: read and converted in memory',
      run: inMemory,
      result: () => rewards(inMemory()),
      repeats: 1,
      rivals: {
        'convert d4rl': rival('TorchRL, to a folder', 3),
        'read h5py': rival('h5py, reads', 1.3, false),
      },
    },
    drawn(`${BATCH} rows of D4RL drawn`, steps, { 'sample d4rl': rival('TorchRL', 8) }),
    {
      work: 'Minari, 100,000 steps: read, converted, opened',
      run: () => openMinari('force'),
      result: async () => rewards((await openMinari('force')).readAllInOrder()),
      repeats: 1,
      rivals: {
        'convert minari': rival('TorchRL', 10, false),
        'iterate minari': rival('Minari, iterates', 1),
      },
    },
    drawn(`${BATCH} rows of Minari drawn`, sampled, { 'sample minari': rival('TorchRL', 8) }),
    drawn(`${SLICES} parts of ${SLICE} steps of Minari drawn`, sliced, {
      'slices cached': rival('TorchRL, cached', 20),
      slices: rival('TorchRL', 20),
    }),
    {
      work: 'Atari DQN replay, a split of 20,000 frames: read, converted, opened',
      run: () => openAtari('force'),
      result: async () => (await openAtari('force')).length,
      repeats: 1,
      rivals: { 'convert atari': rival('TorchRL', 1.5) },
    },
    drawn(`${FRAMES} rows of Atari DQN replay drawn`, frames, { 'sample atari': rival('TorchRL', 8) }),
    {
      work: 'LeRobot, 100,000 frames of 14 + 14 floats: fetched, converted, opened',
      run: () => openRobot('force'),
      result: async () => sumOf((await openRobot('force')).readAllInOrder().tensor('action')),
      repeats: 1,
      rivals: { 'convert robot': rival('TorchRL', 30) },
    },
    drawn(`${BATCH} rows of LeRobot drawn`, robot, { 'sample robot': rival('TorchRL', 8) }),
  ]
}

function drawn(work: string, buffer: BaseDatasetExperienceReplay, rivals: Work['rivals']): Work {
  // Disposed, as the rival's batches are freed at once too.
  const result = () => {
    using batch = buffer.sample()
    return batch.batchSize[0] ?? 0
  }
  return { work, run: result, result, repeats: 100, rivals }
}

/** The client reads the file: what a server on another machine costs is no part of the work. */
async function openD4rl(download: boolean | 'force') {
  const path = join(folder, D4RL_FILE)
  const headers = { 'content-length': String(statSync(path).size) }
  const client = fetchClient(
    async () => new Response(Readable.toWeb(createReadStream(path)) as ReadableStream, { headers }),
  )
  return await D4RLExperienceReplay.open(D4RL_ID, {
    client,
    root: join(folder, 'd4rl'),
    download,
    batchSize: BATCH,
  })
}

async function openMinari(
  download: boolean | 'force',
  more: { readonly sampler?: SliceSampler; readonly batchSize?: number } = {},
) {
  return await MinariExperienceReplay.open(MINARI_ID, {
    ...{ loadFromLocalMinari: true, minariRoot: join(folder, 'minari'), root: join(folder, 'ours') },
    ...{ download, batchSize: BATCH, ...more },
  })
}

async function openAtari(download: boolean | 'force') {
  return await AtariDQNExperienceReplay.open(ATARI_ID, {
    ...{ folder: join(folder, 'gs', 'atari-replay-datasets'), root: join(folder, 'atari'), numSplits: 1 },
    ...{ download, batchSize: FRAMES },
  })
}

/** The client is a hub that reads the files; their checksums are made once, as a hub has them. TorchRL reads the files where they are. */
async function openRobot(download: boolean | 'force') {
  const commit = '0'.repeat(40)
  const client = fetchClient(async (url, { method }) => {
    const { pathname } = new URL(url)
    if (pathname.includes('/revision/')) return Response.json({ sha: commit })
    if (pathname.includes('/tree/')) return Response.json(filesIn(robot))
    const path = join(robot, pathname.split(`/resolve/${commit}/`)[1] ?? '')
    const etag = etags.get(path) ?? `"${sha1(readFileSync(path))}"`
    etags.set(path, etag)
    const headers = { etag, 'x-repo-commit': commit }
    const sized = { ...headers, 'content-length': String(statSync(path).size) }
    return new Response(method === 'HEAD' ? null : readFileSync(path), { headers: sized })
  })
  return await LeRobotExperienceReplay.open(ROBOT_ID, {
    ...{ client, cache: join(folder, 'hub'), root: join(folder, 'robot-rows'), decodeVideo: false },
    ...{ download, batchSize: BATCH },
  })
}

function filesIn(root: string) {
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' })
  const files = names.filter((name) => statSync(join(root, name)).isFile())
  return files.map((path) => ({ type: 'file', path, size: statSync(join(root, path)).size }))
}

/** The id that git gives to a file. */
function sha1(bytes: Uint8Array): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
}

function sumOf({ data }: Tensor): number {
  let sum = 0
  for (const number of data) sum += Number(number)
  return sum
}
