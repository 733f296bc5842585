/** The sides of benches/ts/replay.ts: ours on Node, ours in Rust, TorchRL and cpprb, all of which do the same on request. */

import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { Tensor, TensorDict } from 'fulmar'
import { BatchMemory, LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
import { rustProgram } from './cargo-peer.js'
import { ROOT, type Sample } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installTrl, TUNED_ENVIRONMENT } from './trl.js'

/** Whose buffer it is. TorchRL comes with the defaults on two threads and, tuned, with an allocator that keeps its pages. */
export type SideName = 'node' | 'rust' | 'torchrl' | 'tuned' | 'cpprb'

/** The content of a buffer; benches/rust/src/bin/bench_replay.rs describes it in full. */
export type CaseName = 'pixels' | 'prioritized' | 'ragged' | 'slices'

/** One side's report of a drawn batch: the number of rows that differ from those written, and figures of priorities. */
export interface Checked {
  readonly wrong?: number
  readonly of?: number
  /** The largest relative distance of a weight from its formula. */
  readonly apart?: number
  /** The mean relative distance of a leaf from the power of the priority that was set. */
  readonly leafApart?: number
  /** The mean of the priorities drawn. */
  readonly priority?: number
  /** The mean of the rows drawn, as a share of all. */
  readonly row?: number
  /** Rows with a priority that no draw can reach. */
  readonly unreachable?: number
}

/** A program that fills buffers and times operations on them. */
export interface Side {
  readonly versions: Readonly<Record<string, string>>
  has(name: CaseName): boolean
  /** Fills a buffer; the memory that this took, in bytes a row, if known. */
  open(name: CaseName, rows: number): Promise<{ readonly bytesPerRow: number | null }>
  check(): Promise<Checked>
  /** A digest of all rows. */
  state(): Promise<string>
  /** The mean time of a call in microseconds. */
  run(operation: string, count: number, repeats: number): Promise<Sample>
  close(): Promise<void>
  [Symbol.dispose](): void
}

const THREADS = 2

/** Each side, started; of a rival also why it is not there. Ours must be. */
export async function startSides(rival: boolean): Promise<Record<SideName, Side | Skipped>> {
  const installed = rival ? installTrl() : { skipped: '--no-rival' }
  const python = async (kind: string, threads: number, environment: Record<string, string> = {}) => {
    if ('skipped' in installed) return installed
    const program = fileURLToPath(new URL('benches/rival/torchrl/replay.py', ROOT))
    const limits = { OMP_NUM_THREADS: String(threads), ...PYTHON_ENVIRONMENT, ...environment }
    return await PeerSide.start(new Peer(kind, installed.python, [program, kind, String(threads)], limits))
  }
  const rust = rustProgram('bench_replay', [])
  if ('skipped' in rust) throw new Error(`the bench needs its program: ${rust.skipped}`)
  return {
    node: new NodeSide(),
    rust: await PeerSide.start(rust),
    torchrl: await python('torchrl', THREADS),
    tuned: await python('torchrl', 1, TUNED_ENVIRONMENT),
    cpprb: await python('cpprb', 1, TUNED_ENVIRONMENT),
  }
}

/** A side in a process of its own. */
class PeerSide implements Side {
  readonly versions: Readonly<Record<string, string>>
  readonly #peer: Peer
  readonly #cases: readonly string[]

  private constructor(peer: Peer, versions: Record<string, string>, cases: readonly string[]) {
    this.#peer = peer
    this.versions = versions
    this.#cases = cases
  }

  static async start(peer: Peer): Promise<PeerSide> {
    const { versions = {}, cases } = (await peer.answer()) as {
      versions?: Record<string, string>
      cases: string[]
    }
    return new PeerSide(peer, versions, cases)
  }

  has(name: CaseName): boolean {
    return this.#cases.includes(name)
  }

  async open(name: CaseName, rows: number): Promise<{ readonly bytesPerRow: number | null }> {
    return (await this.#peer.ask(`open ${name} ${rows}`)) as { bytesPerRow: number | null }
  }

  async check(): Promise<Checked> {
    return (await this.#peer.ask('check')) as Checked
  }

  async state(): Promise<string> {
    return ((await this.#peer.ask('state')) as { digest: string }).digest
  }

  async run(operation: string, count: number, repeats: number): Promise<Sample> {
    const start = performance.now()
    const { us } = (await this.#peer.ask(`${operation} ${count} ${repeats}`)) as { us: number }
    return { value: us, rivalCpuMs: performance.now() - start }
  }

  async close(): Promise<void> {
    await this.#peer.ask('close')
  }

  [Symbol.dispose](): void {
    this.#peer[Symbol.dispose]()
  }
}

const MORE = 400
const BATCH = 256
const PIXELS = 3 * 32 * 32

/** Ours in this process: buffers of pixels. All other figures are measured without the addon. */
class NodeSide implements Side {
  readonly versions = {}
  readonly #memory = new BatchMemory()
  #buffer: ReplayBuffer | undefined
  #more: TensorDict | undefined
  #one: TensorDict | undefined

  has(name: CaseName): boolean {
    return name === 'pixels'
  }

  async open(_: CaseName, rows: number): Promise<{ readonly bytesPerRow: number | null }> {
    const items = pixels(0, rows)
    this.#more = pixels(20_000, MORE)
    this.#one = pixels(30_000, 1).index(0)
    const before = process.memoryUsage().rss
    this.#buffer = new ReplayBuffer({ storage: new LazyTensorStorage(rows), seed: 1 })
    this.#buffer.extend(items)
    return { bytesPerRow: (process.memoryUsage().rss - before) / rows }
  }

  async check(): Promise<Checked> {
    const batch = this.#open().sampleInto(this.#memory, BATCH)
    const first = batch.tensor('a').as('f32').data
    const wrong = Array.from({ length: BATCH }, (_, row) => {
      using expected = pixels((first[5 * row] ?? 0) / 5, 1)
      using got = batch.slice(row, row + 1)
      return Number(!got.equals(expected))
    })
    return { wrong: wrong.reduce((sum, one) => sum + one, 0), of: BATCH }
  }

  async state(): Promise<string> {
    const rows = this.#open().readAllInOrder()
    const hash = createHash('sha256')
    for (const key of ['a', ['b', 'c']]) hash.update(bytesOf(rows.tensor(key)))
    return hash.digest('hex')
  }

  async run(operation: string, count: number, repeats: number): Promise<Sample> {
    const [buffer, more, one] = [this.#open(), this.#more, this.#one]
    if (operation === 'commit') return this.#commit(repeats)
    const operations: Record<string, () => unknown> = {
      extend: () => more && buffer.extend(more),
      add: () => one && buffer.add(one),
      sample: () => buffer.sample(count)[Symbol.dispose](),
      sampleInto: () => buffer.sampleInto(this.#memory, count)[Symbol.dispose](),
      sampleArrays: () => {
        using batch = buffer.sampleInto(this.#memory, count)
        using a = batch.tensor('a')
        using c = batch.tensor(['b', 'c'])
        return a.data.length + c.data.length
      },
    }
    const call = operations[operation]
    if (!call) throw new Error(`operation must be known: got ${operation}`)
    const start = performance.now()
    for (let repeat = 0; repeat < repeats; repeat++) call()
    return { value: (1000 * (performance.now() - start)) / repeats }
  }

  /** Writes rows into columns, and waits until the last one is in the buffer. */
  #commit(repeats: number): Sample {
    const buffer = this.#open()
    const columns = buffer.columns()
    const [a, c] = [columns.array('a', 'f32'), columns.array(['b', 'c'], 'u8')]
    const row = new Uint8Array(PIXELS).map((_, at) => 7 * at)
    const start = performance.now()
    for (let repeat = 0; repeat < repeats; repeat++) {
      for (let at = 0; at < 5; at++) a[5 * columns.row + at] = repeat + at
      c.set(row, PIXELS * columns.row)
      columns.commit()
    }
    if (buffer.length === 0) throw new Error('the rows must be in the buffer')
    return { value: (1000 * (performance.now() - start)) / repeats }
  }

  async close(): Promise<void> {
    this.#buffer?.[Symbol.dispose]()
    this.#buffer = undefined
  }

  [Symbol.dispose](): void {
    this.#buffer?.[Symbol.dispose]()
    this.#memory[Symbol.dispose]()
  }

  #open(): ReplayBuffer {
    if (!this.#buffer) throw new Error('a buffer must be open')
    return this.#buffer
  }
}

function pixels(start: number, count: number): TensorDict {
  const a = Float32Array.from({ length: 5 * count }, (_, at) => 5 * start + at)
  const c = new Uint8Array(PIXELS * count)
  for (let at = 0; at < c.length; at++) {
    c[at] = 31 * (start + Math.floor(at / PIXELS)) + 7 * (at % PIXELS)
  }
  const [f32, u8] = [Tensor.from(a, { shape: [count, 5] }), Tensor.from(c, { shape: [count, 3, 32, 32] })]
  return TensorDict.from({ a: f32 }, { batchSize: [count] }).set(['b', 'c'], u8)
}

function bytesOf({ data }: Tensor): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
}
