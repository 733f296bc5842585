/** Files of every source of data sets, large enough that their conversion can be killed before its end. */

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { parquetWriteBuffer, type SchemaElement } from 'hyparquet-writer'
import { readMinari, writeMinari } from '../../src/dataset/index.js'
import { writeHdf5 } from '../../src/ted/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { d4rlOptions, genDgrlOptions, goldenBytes, openmlOptions } from './golden-rows.js'

/** A data set that a process can open by its name and its options. */
export interface LargeDataset {
  /** `SOURCE:ID`. */
  readonly name: string
  readonly options: Readonly<Record<string, boolean | number | string>> & { readonly root: string }
  /** Folder of the rows. */
  readonly folder: string
}

export const MINARI_ID = 'toy/steps-v0'

/** Makes the files of each source, in folders and on servers of the test; some have `times` as many of them. */
export const LARGE_DATASETS = {
  async atari() {
    const [logs, root] = [await writtenAtari(2000), await temporaryFolder()]
    return dataset('atari:Pong/1', { root, folder: logs })
  },
  async d4rl() {
    const { options } = await d4rlOptions({ 'hopper_medium-v2.hdf5': writtenColumns(40_000) })
    return dataset('d4rl:hopper-medium-v2', options)
  },
  async gen_dgrl() {
    const { options } = await genDgrlOptions({ 'bigfish.tar.xz': goldenBytes('long/bigfish.tar.xz') })
    return dataset('gen_dgrl:bigfish-level_1_E', options)
  },
  async lerobot() {
    const info = JSON.stringify({ codebase_version: 'v3.0', fps: 10 })
    const file = (at: number) => [`data/chunk-000/file-00${at}.parquet`, writtenTable(at, 8000)] as const
    const hub = await onHub('lerobot:toy/steps', 'toy/steps', {
      'meta/info.json': new TextEncoder().encode(info),
      ...Object.fromEntries(Array.from({ length: 5 }, (_, at) => file(at))),
    })
    return { ...hub, folder: join(hub.options.root, 'toy_steps') }
  },
  async minari(times = 1) {
    const { minariRoot } = await writtenMinari(20_000 * times, 32)
    const root = await temporaryFolder()
    return dataset(`minari:${MINARI_ID}`, { root, minariRoot, loadFromLocalMinari: true })
  },
  async openml() {
    const url = 'https://www.openml.org/data/v1/download/2120/MagicTelescope.arff'
    const described = { data_set_description: { url, default_target_attribute: 'class:' } }
    const { options } = await openmlOptions({
      '/data/1120': new TextEncoder().encode(JSON.stringify(described)),
      'MagicTelescope.arff': writtenArff(60_000),
    })
    return dataset('openml:magic', options)
  },
  async openx() {
    const golden = goldenBytes('raw/hub/datasets/jxu124/OpenX-Embodiment/viola/viola_00000.tar')
    const file = (at: number) => [`viola/viola_0000${at}.tar`, repeatedTar(golden, 60)] as const
    const files = Object.fromEntries(Array.from({ length: 4 }, (_, at) => file(at)))
    return await onHub('openx:viola', 'jxu124/OpenX-Embodiment', files, { streaming: false })
  },
  async roboset(times = 1) {
    const id = 'DAPG(expert)/door_v2d-v1'
    const file = (at: number) => [`${id}/seed${at}.h5`, writtenTrials(10, 400)] as const
    const files = Object.fromEntries(Array.from({ length: 4 * times }, (_, at) => file(at)))
    return await onHub(`roboset:${id}`, 'jdvakil/RoboSet_Sim', files)
  },
  async vd4rl(times = 1) {
    const id = 'main/walker_walk/random/84px'
    const file = (at: number) => [`vd4rl/${id}/walker_walk_random_${at}.hdf5`, writtenFrames(100)] as const
    const files = Object.fromEntries(Array.from({ length: 6 * times }, (_, at) => file(at)))
    return await onHub(`vd4rl:${id}`, 'conglu/vd4rl', files)
  },
} satisfies Readonly<Record<string, (times?: number) => Promise<LargeDataset>>>

function dataset(name: string, options: LargeDataset['options']): LargeDataset {
  return { name, options, folder: join(options.root, ...name.slice(name.indexOf(':') + 1).split('/')) }
}

async function onHub(
  name: string,
  repo: string,
  files: Readonly<Record<string, Uint8Array>>,
  more: Readonly<Record<string, boolean>> = {},
): Promise<LargeDataset> {
  const { endpoint } = await startHub({ kind: 'dataset', repo, files })
  const root = await temporaryFolder()
  return dataset(name, { endpoint, root, cache: join(root, '.cache'), retries: 0, ...more })
}

const numbers = (count: number) => Float32Array.from({ length: count }, (_, at) => at % 1009)

const matrix = (rows: number, width: number) => Tensor.from(numbers(rows * width), { shape: [rows, width] })

/** The bytes of a file of D4RL. */
function writtenColumns(numSteps: number): Uint8Array {
  const flat = Tensor.from(new Float32Array(numSteps))
  const columns = {
    ...{ observations: matrix(numSteps, 64), actions: matrix(numSteps, 3) },
    ...{ rewards: flat, terminals: flat },
  }
  return Uint8Array.from(writeHdf5(TensorDict.from(columns)))
}

/** Steps of episodes of 100, with `width` numbers an observation. */
function stepsOf(numSteps: number, width: number): TensorDict {
  const values = (later: number) =>
    Float32Array.from(
      { length: numSteps * width },
      (_, at) => Math.floor(at / width) + later + (at % width) / 64,
    )
  const shape = [numSteps, width]
  const done = Uint8Array.from({ length: numSteps }, (_, step) => Number(step % 100 === 99))
  const next = {
    observation: Tensor.from(values(1), { shape }),
    reward: Tensor.from(new Float32Array(numSteps), { shape: [numSteps, 1] }),
    done: Tensor.from(done, { shape: [numSteps, 1] }),
  }
  return TensorDict.from(
    {
      observation: Tensor.from(values(0), { shape }),
      action: Tensor.from(new Float32Array(numSteps)),
      next: TensorDict.from(next, { batchSize: [numSteps] }),
    },
    { batchSize: [numSteps] },
  )
}

/** A data set in a folder of Minari. */
export async function writtenMinari(numSteps: number, width: number) {
  const minariRoot = await temporaryFolder()
  const folder = join(await writeMinari(stepsOf(numSteps, width), MINARI_ID, { minariRoot }), 'data')
  const bytes = new Uint8Array(await readFile(join(folder, 'main_data.hdf5')))
  const metadata = await readFile(join(folder, 'metadata.json'), 'utf8')
  return { minariRoot, bytes, metadata, rows: readMinari(bytes, metadata).steps }
}

/** Files of a split of Atari DQN replay, with `numSteps` frames. */
async function writtenAtari(numSteps: number): Promise<string> {
  const logs = await temporaryFolder()
  await mkdir(logs, { recursive: true })
  const write = async (name: string, kind: string, shape: string, elements: Uint8Array) => {
    const header = `{'descr': '${kind}', 'fortran_order': False, 'shape': ${shape}, }\n`
    const start = Uint8Array.of(0x93, 78, 85, 77, 80, 89, 1, 0, header.length, 0)
    const array = Buffer.concat([start, Buffer.from(header), elements])
    await writeFile(join(logs, `${name}_ckpt.0.gz`), gzipSync(array, { level: 1 }))
  }
  const bytes = (at: number) => (at * 2654435761) >>> 24
  const frames = Uint8Array.from({ length: 84 * 84 * numSteps }, (_, at) => bytes(at))
  await write('$store$_observation', '|u1', `(${numSteps}, 84, 84)`, frames)
  await write('$store$_action', '<i4', `(${numSteps},)`, new Uint8Array(4 * numSteps))
  await write('$store$_reward', '<f4', `(${numSteps},)`, new Uint8Array(4 * numSteps))
  await write('$store$_terminal', '|u1', `(${numSteps},)`, new Uint8Array(numSteps))
  await write('add_count', '<i8', '()', new Uint8Array(8))
  await write('invalid_range', '<i8', '(1,)', new Uint8Array(8))
  return logs
}

/** A table of LeRobot: the rows of episode `episode`. */
function writtenTable(episode: number, numRows: number): Uint8Array {
  const list = (name: string): SchemaElement[] => [
    { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', type: 'FLOAT', repetition_type: 'OPTIONAL' },
  ]
  const integer = (name: string): SchemaElement => ({ name, type: 'INT64', repetition_type: 'OPTIONAL' })
  const rows = Array.from({ length: numRows }, (_, row) => row)
  const columns = {
    'observation.state': rows.map((row) => Array.from({ length: 16 }, (_, at) => (row + at) % 1009)),
    episode_index: rows.map(() => BigInt(episode)),
    index: rows.map((row) => BigInt(episode * numRows + row)),
  }
  const schema = [
    { name: 'root', num_children: 3 },
    ...list('observation.state'),
    ...[integer('episode_index'), integer('index')],
  ]
  const columnData = Object.entries(columns).map(([name, data]) => ({ name, data }))
  return new Uint8Array(parquetWriteBuffer({ columnData, schema, rowGroupSize: 1000 }))
}

/** The table of `magic` with more rows. */
function writtenArff(numRows: number): Uint8Array {
  const golden = new TextDecoder().decode(
    goldenBytes('raw/web/www.openml.org/data/v1/download/2120/MagicTelescope.arff'),
  )
  const [header = '', data = ''] = golden.split(/(?<=@data\s*\n)/i)
  const lines = data.split('\n').filter((line) => line.trim() !== '')
  const rows = Array.from({ length: numRows }, (_, row) => lines[row % lines.length])
  return new TextEncoder().encode(`${header}${rows.join('\n')}\n`)
}

/** An archive with the members of another one, `times` times. */
function repeatedTar(tar: Uint8Array, times: number): Uint8Array {
  const size = (at: number) => Number.parseInt(String.fromCharCode(...tar.subarray(at + 124, at + 135)), 8)
  let end = 0
  while (tar[end] !== 0) end += 512 + 512 * Math.ceil(size(end) / 512)
  const members = tar.subarray(0, end)
  return Uint8Array.from(
    Buffer.concat([...Array.from({ length: times }, () => members), new Uint8Array(1024)]),
  )
}

/** A file of RoboSet. */
function writtenTrials(numTrials: number, numSteps: number): Uint8Array {
  const trial = () => {
    const done = Float32Array.from({ length: numSteps }, (_, step) => Number(step === numSteps - 1))
    return TensorDict.from({
      ...{ observations: matrix(numSteps, 40), actions: matrix(numSteps, 8) },
      ...{ rewards: Tensor.from(numbers(numSteps)), done: Tensor.from(done) },
    })
  }
  const trials = Array.from({ length: numTrials }, (_, at) => [`Trial${at}`, trial()] as const)
  return Uint8Array.from(writeHdf5(TensorDict.from(Object.fromEntries(trials))))
}

/** A file of V-D4RL with images of 84 pixels. */
function writtenFrames(numSteps: number): Uint8Array {
  const shape = [numSteps, 84, 84, 3]
  const pixels = Uint8Array.from({ length: numSteps * 84 * 84 * 3 }, (_, at) => (at * 31 + (at >> 8)) & 255)
  const kinds = Int32Array.from({ length: numSteps }, (_, step) =>
    step === 0 ? 0 : step === numSteps - 1 ? 2 : 1,
  )
  return Uint8Array.from(
    writeHdf5(
      TensorDict.from({
        ...{ observation: Tensor.from(pixels, { shape }), action: matrix(numSteps, 6) },
        ...{
          reward: Tensor.from(numbers(numSteps)),
          discount: Tensor.from(new Float32Array(numSteps).fill(1)),
        },
        step_type: Tensor.from(kinds),
      }),
    ),
  )
}
