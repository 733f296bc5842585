/**
 * The folder of an evaluation: `config.json`, `results.jsonl` with one whole rollout a line, `summary.json`.
 *
 * While an evaluation runs, lines are appended as answers end. At its end they are sorted by problem and answer, so
 * equal evaluations give equal files. Times are in `summary.json` alone.
 */

import { mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { LedgerJson } from '../chat/index.js'
import { FulmarError, readRegular } from '../core/index.js'
import { isError, ROLLOUT_STATUSES } from '../env/index.js'
import type { EvaluationSample, Rollout, RolloutTurn } from '../rollout/index.js'
import { JsonLinesFile, RUN_CONFIG_BYTES_MAX, readJsonLines, writeFileAtomic } from '../telemetry/index.js'
import { CliError } from './io.js'

/** Everything that the answers depend on; an evaluation is resumed with the same alone. */
export interface EvaluationSetup {
  /** Name of the task, or path of its module. */
  readonly task: string
  /** Path or name of the model. */
  readonly model: string
  /** False for a model that is known by its messages alone. */
  readonly isTrainable: boolean
  readonly seed: number
  readonly [key: string]: unknown
}

/** One line of `results.jsonl`. */
export interface EvaluationLine extends EvaluationSample {
  /** True if the rollout has tokens and log-probs. */
  readonly isTrainable: boolean
  /** Turns without what `messages` holds. */
  readonly turns: readonly EvaluationTurn[]
  /** Every token, for `Ledger.fromJSON`; `null` for a model that is known by its messages alone. */
  readonly ledger: LedgerJson | null
}

/** One turn of an {@link EvaluationLine}. */
export interface EvaluationTurn
  extends Pick<
    RolloutTurn,
    'finishReason' | 'envRewards' | 'bridgeRefusal' | 'minPolicyVersion' | 'maxPolicyVersion'
  > {
  /** Number of `messages` before the policy's own. */
  readonly numPromptMessages: number
}

/** An evaluation on disk. */
export class EvaluationFolder {
  /** Path of `results.jsonl`. */
  readonly results: string
  /** Answers that are there and need not be sampled again. */
  readonly known: readonly EvaluationSample[]
  readonly #folder: string
  readonly #file: JsonLinesFile

  private constructor(folder: string, known: readonly EvaluationSample[]) {
    this.#folder = folder
    this.results = join(folder, 'results.jsonl')
    this.known = known
    this.#file = new JsonLinesFile(this.results)
  }

  /**
   * Opens a new folder, or one to resume, whose failed answers are dropped.
   * @throws {CliError} `INCOMPATIBLE` for a folder that holds an evaluation and is not resumed, or one of another setup.
   * @throws {FulmarError} `IO` or `CORRUPT`.
   */
  static async open(
    folder: string,
    setup: EvaluationSetup,
    { resume }: { readonly resume: boolean },
  ): Promise<EvaluationFolder> {
    const found = await readSetup(folder)
    if (found !== undefined && !resume) {
      const detail = `${folder} holds an evaluation: resume it by --resume, or name another folder by --save`
      throw new CliError('INCOMPATIBLE', detail)
    }
    if (found !== undefined) checkSetup(folder, found, setup)
    await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
      throw new FulmarError('IO', `folder must be writable: got ${folder}`, { cause })
    })
    const lines = found === undefined ? [] : (await readLines(folder)).filter((line) => !hasFailed(line))
    await writeFileAtomic(join(folder, 'results.jsonl'), textOf(lines))
    await writeFileAtomic(join(folder, 'config.json'), `${JSON.stringify(setup, null, 2)}\n`)
    return new EvaluationFolder(folder, lines)
  }

  /** Adds an answer. @throws {FulmarError} `IO`; `LIMIT_EXCEEDED` for a rollout of more than 64 MiB. */
  append(answer: EvaluationSample, rollout: Rollout): void {
    this.#file.append(lineOf(answer, rollout))
  }

  /** Brings all answers to disk. */
  close(): void {
    this.#file.close()
  }

  /** Sorts the answers and writes the summary. Call it after `close`. */
  async finish(summary: object): Promise<void> {
    const lines = await readLines(this.#folder)
    lines.sort((a, b) => a.problemIndex - b.problemIndex || a.answerIndex - b.answerIndex)
    await writeFileAtomic(this.results, textOf(lines))
    await writeFileAtomic(join(this.#folder, 'summary.json'), `${JSON.stringify(summary, null, 2)}\n`)
  }
}

/**
 * Reads the answers of an evaluation.
 * @throws {FulmarError} `IO` if it is not there; `CORRUPT` for lines of another form.
 */
export async function readLines(folder: string): Promise<EvaluationLine[]> {
  const path = join(folder, 'results.jsonl')
  const lines = await readJsonLines(path)
  return lines.map((line, index) => {
    if (isLine(line)) return line
    throw new FulmarError(
      'CORRUPT',
      `line ${index + 1} of ${path} must be an answer of an evaluation: it is not`,
    )
  })
}

function lineOf(answer: EvaluationSample, { turns, ledger }: Rollout): EvaluationLine {
  const isTrainable = turns.every(({ usage }) => usage === undefined) && ledger.numTokens > 0
  return {
    ...answer,
    isTrainable,
    turns: turns.map(({ promptMessages, finishReason, envRewards, bridgeRefusal, ...turn }) => ({
      ...{ numPromptMessages: promptMessages.length, finishReason, envRewards, bridgeRefusal },
      ...{ minPolicyVersion: turn.minPolicyVersion, maxPolicyVersion: turn.maxPolicyVersion },
    })),
    ledger: isTrainable ? ledger.toJSON() : null,
  }
}

function textOf(lines: readonly EvaluationLine[]): string {
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('')
}

/** Returns true if a server, an environment or a reward function failed; one that declined has answered. */
function hasFailed({ status, reward, unscored }: EvaluationLine): boolean {
  return (
    isError(status) || (reward === null && Object.values(unscored).some(({ code }) => code !== 'DECLINED'))
  )
}

function isLine(line: unknown): line is EvaluationLine {
  if (typeof line !== 'object' || line === null) return false
  const { problemIndex, answerIndex, reward, isSolved, status, messages, turns, unscored } = line as Partial<
    Record<string, unknown>
  >
  const isIndex = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0
  const isRecord = typeof unscored === 'object' && unscored !== null
  const isReward = reward === null || (typeof reward === 'number' && Number.isFinite(reward))
  const hasStatus = ROLLOUT_STATUSES.some((known) => known === status)
  const hasLists = Array.isArray(messages) && Array.isArray(turns)
  return (
    isIndex(problemIndex) &&
    isIndex(answerIndex) &&
    isReward &&
    typeof isSolved === 'boolean' &&
    hasStatus &&
    hasLists &&
    isRecord
  )
}

/** Returns the setup of the evaluation in a folder; `undefined` without one. */
async function readSetup(folder: string): Promise<unknown> {
  const path = join(folder, 'config.json')
  const isThere = await stat(path).catch(() => undefined)
  if (isThere === undefined) return undefined
  const bytes = await readRegular(path, RUN_CONFIG_BYTES_MAX)
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be JSON: it is not`, { cause })
  }
}

function checkSetup(folder: string, found: unknown, setup: EvaluationSetup): void {
  const was = typeof found === 'object' && found !== null ? (found as Readonly<Record<string, unknown>>) : {}
  for (const key of new Set([...Object.keys(was), ...Object.keys(setup)])) {
    const [old, now] = [JSON.stringify(was[key]), JSON.stringify(setup[key])]
    if (old === now) continue
    const detail = `the evaluation in ${folder} must be resumed with the same ${key} (${old}): got ${now}`
    throw new CliError('INCOMPATIBLE', detail)
  }
}
