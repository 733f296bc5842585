/** Other engines with SmolLM2-135M-Instruct, each a process that answers requests. */

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cargoPeer } from './cargo-peer.js'
import { ROOT } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installTrl, TUNED_ENVIRONMENT } from './trl.js'

/** The folder of the model. */
export interface Places {
  /** In f32, as Hugging Face lays it out. */
  readonly folder: string
  readonly gguf: string
}

/** The command of each engine in Python; the programs are in benches/rival/smollm2. */
const PYTHON_ENGINES = {
  transformers: ({ folder }: Places) => ['in_torch.py', folder, 'float32'],
  'transformers bf16': ({ folder }: Places) => ['in_torch.py', folder, 'bfloat16'],
  onnxruntime: ({ folder }: Places) => ['in_onnxruntime.py', folder],
  'llama.cpp Q4_1': ({ gguf }: Places) => ['in_llama_cpp.py', gguf],
} as const

/** The name of an engine. */
export type EngineName = PythonEngine | 'candle'

type PythonEngine = keyof typeof PYTHON_ENGINES

/** A request to an engine: rows of ids, and a number of tokens. */
export interface Request {
  readonly kind: 'score' | 'prefill' | 'generate' | 'train' | 'peak'
  readonly ids?: readonly (readonly number[])[]
  readonly tokens?: number
}

/** An engine's answer. */
export interface Answer {
  readonly ms: number
  readonly cpuMs: number
  readonly peakMiB: number
  /** Operations a second. */
  readonly flops?: number
  readonly logProbs?: readonly (readonly number[])[]
  readonly ids?: readonly (readonly number[])[]
  /** Time of all tokens but the first. */
  readonly drawMs?: number
}

/** PyPI has no wheel: it is used if it was compiled on this machine. */
const LLAMA_CPP = 'llama-cpp-python==0.3.36'

/** The flags of candle's repository: most of its loops use only the instructions of the processor that the compiler gets. */
const NATIVE = { RUSTFLAGS: '-C target-cpu=native' }

/** The engines that can be had, by name, and why the others cannot. Dispose it to end their processes. */
export class Rivals {
  readonly versions: Record<string, string> = {}
  readonly #peers = new Map<EngineName, Peer>()
  readonly #skipped = new Map<EngineName, string>()

  /** Starts engines one after another, with `threads` threads each; starts no engine if `isAsked` is false. */
  static async start(
    names: readonly EngineName[],
    places: Places,
    { threads, isAsked }: { readonly threads: number; readonly isAsked: boolean },
  ): Promise<Rivals> {
    const rivals = new Rivals()
    const installed = isAsked ? installTrl() : undefined
    for (const name of names) {
      const engine = installed ? startEngine(name, installed, places, threads) : { skipped: '--no-rival' }
      if ('skipped' in engine) rivals.#skipped.set(name, `${name}: ${engine.skipped}`)
      else await rivals.#greet(name, engine, threads)
    }
    return rivals
  }

  /** Returns the reason that the engine is missing; `undefined` if it is installed. */
  skipped(name: EngineName): string | undefined {
    return this.#skipped.get(name)
  }

  /** The answer of an installed engine. */
  async ask(name: EngineName, request: Request): Promise<Answer> {
    const peer = this.#peers.get(name)
    if (!peer) throw new Error(`${name} must be there: ${this.skipped(name)}`)
    return (await peer.ask(JSON.stringify(request))) as Answer
  }

  async #greet(name: EngineName, peer: Peer, threads: number): Promise<void> {
    const started = (await peer.answer()) as { versions: Record<string, string>; threads: number }
    if (started.threads !== threads)
      throw new Error(`${name} must use ${threads} threads: got ${started.threads}`)
    if (!(await isUsable(peer))) {
      this.#skipped.set(
        name,
        `${name}: its process ended at the first request; its compiler may have used instructions that this machine lists and forbids`,
      )
      return
    }
    this.#peers.set(name, peer)
    Object.assign(this.versions, started.versions)
  }

  [Symbol.dispose](): void {
    for (const peer of this.#peers.values()) peer[Symbol.dispose]()
  }
}

async function isUsable(peer: Peer): Promise<boolean> {
  const first: Request = { kind: 'generate', ids: [[1, 2, 3, 4]], tokens: 2 }
  try {
    await peer.ask(JSON.stringify(first))
    return true
  } catch {
    peer[Symbol.dispose]()
    return false
  }
}

function startEngine(
  name: EngineName,
  installed: ReturnType<typeof installTrl>,
  places: Places,
  threads: number,
): Peer | Skipped {
  if (name === 'candle') return startCandle(places, threads)
  if ('skipped' in installed) return installed
  const { python } = installed
  if (name === 'llama.cpp Q4_1' && spawnSync(python, ['-c', 'import llama_cpp']).status !== 0)
    return {
      skipped: `PyPI has no wheel; .venv/trl/bin/pip install ${LLAMA_CPP} compiles it, 10 minutes on two cores`,
    }
  const [script = '', model = '', ...rest] = PYTHON_ENGINES[name](places)
  const program = fileURLToPath(new URL(join('benches/rival/smollm2', script), ROOT))
  const environment = { OMP_NUM_THREADS: String(threads), ...PYTHON_ENVIRONMENT, ...TUNED_ENVIRONMENT }
  return new Peer(name, python, [program, model, String(threads), ...rest], environment)
}

function startCandle({ folder }: Places, threads: number): Peer | Skipped {
  const where = { manifest: 'benches/rival/candle/Cargo.toml', target: 'target/candle' }
  const environment = { RAYON_NUM_THREADS: String(threads), ...NATIVE, ...TUNED_ENVIRONMENT }
  return cargoPeer({ what: 'candle', ...where, program: 'candle-llama', environment }, [folder])
}
