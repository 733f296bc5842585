/** TRL in a process of its own: its virtual environment, its requests. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Decoder, LoraConfig } from 'fulmar/model'
import { ROOT } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installPython } from './python-rival.js'

/** The options of TRL; the names are those of benches/rival/trl/grpo_step.py. */
export interface TrlSetting {
  readonly vocabSize: number
  /** Prompts as ids, all of one length. */
  readonly prompts: readonly (readonly number[])[]
  /** Sequences of one length, scored on request. */
  readonly scored: readonly (readonly number[])[]
  /** The reward is the share of drawn tokens among these, where the n-th counts n times. */
  readonly rewardIds: readonly number[]
  readonly promptsPerStep: number
  readonly groupSize: number
  readonly maxTokens: number
  readonly learningRate: number
  readonly maxGradNorm: number
  readonly threads: number
  /** An adapter to train in place of the weights, in the words of PEFT. */
  readonly lora: LoraConfig | null
}

/** One step of TRL, as it timed it. */
export interface TrlStep {
  readonly ms: number
  /** Processor time of all its threads. */
  readonly cpuMs: number
  readonly numTokens: number
  readonly reward: number
  /** The most memory that it held so far. */
  readonly peakMiB: number
}

/** As a user gets it, or with all that makes it faster and changes no result. */
export type Variant = 'shipped' | 'tuned'

/** Fresh pages cost PyTorch a lot on virtual machines: let its allocator keep them. */
export const TUNED_ENVIRONMENT = { MALLOC_MMAP_MAX_: '0', MALLOC_TRIM_THRESHOLD_: '20000000000' }

const RIVAL = fileURLToPath(new URL('benches/rival/trl/', ROOT))

/** The Python of `.venv/trl`, see {@link installPython}. */
export function installTrl(): { readonly python: string } | Skipped {
  return installPython('trl', 'about 3 GB to download')
}

/** A running trainer. Dispose it to end the process. */
export class TrlProcess {
  readonly variant: Variant
  /** Of Python and of the packages that matter. */
  versions: Readonly<Record<string, string>> = {}
  /** The most memory that it held. */
  peakMiB = 0
  readonly #peer: Peer
  readonly #folder: string

  private constructor(python: string, variant: Variant, folder: string, threads: number) {
    const env = {
      OMP_NUM_THREADS: String(threads),
      ...PYTHON_ENVIRONMENT,
      ...(variant === 'tuned' && TUNED_ENVIRONMENT),
    }
    this.variant = variant
    this.#folder = folder
    this.#peer = new Peer('TRL', python, [join(RIVAL, 'grpo_step.py'), folder, variant], env)
  }

  /** Starts a trainer on the decoder's weights, without its adapter, and waits until it is ready. */
  static async start(
    python: string,
    variant: Variant,
    setting: TrlSetting,
    decoder: Decoder,
  ): Promise<TrlProcess> {
    const folder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
    writeFileSync(join(folder, 'setting.json'), JSON.stringify({ ...setting, outputFolder: folder }))
    await decoder.saveFolder(folder)
    const trl = new TrlProcess(python, variant, folder, setting.threads)
    const { versions, threads } = (await trl.#peer.answer()) as {
      versions: Record<string, string>
      threads: number
    }
    if (threads !== setting.threads)
      throw new Error(`torch must use ${setting.threads} threads: got ${threads}`)
    trl.versions = versions
    return trl
  }

  /** Log-probs of every token but the first of the setting's `scored`. Ask once, before the first step. */
  async score(): Promise<number[][]> {
    const { logProbs } = (await this.#peer.ask('score')) as { logProbs: number[][] }
    return logProbs
  }

  /** Runs one step while we wait. */
  async step(): Promise<TrlStep> {
    const step = (await this.#peer.ask('step')) as TrlStep
    this.peakMiB = step.peakMiB
    return step
  }

  [Symbol.dispose](): void {
    this.#peer[Symbol.dispose]()
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
