/**
 * One rollout that an agent runs.
 *
 * ```text
 * a place -> folder, key -> the agent, up to its deadline -> end of the key: turns and ledger -> score -> folder removed
 * ```
 */

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type BoundedResult, bounded, type Slots } from '../async/index.js'
import type { ProgramEnd, Programs } from '../async/programs.js'
import { FulmarError } from '../core/index.js'
import type { ProgramResult, RolloutStatus } from '../env/index.js'
import type { OwnRollout, OwnRolloutEnv } from '../rollout/own-rollout.js'
import { causeOf, formatTurnId, type RolloutCause } from '../rollout/rollout.js'
import type { UnscoredRollout } from '../rollout/rollout-loop.js'
import type { AgentRollout } from './agent-rollout.js'
import type { AgentTaskOptions } from './agent-task.js'
import type { AgentRecord } from './agent-turns.js'
import type { InterceptionServer } from './interception-server.js'
import type { SharedServer } from './shared-server.js'

/** Maximum number of bytes of a sample as JSON: systems bound the size of an environment variable. */
const SAMPLE_BYTES_MAX = 100_000

/** Options of the task, and what its rollouts share. */
export interface AgentSettings<Sample> extends Omit<AgentTaskOptions<Sample>, 'server'> {
  readonly timeoutMs: number
  readonly server: SharedServer
  readonly slots: Slots
  readonly programs: Programs
}

/** End of an agent. */
type Ended = Pick<ProgramEnd, 'exitCode' | 'log'> & { readonly cause: RolloutCause | null }

/**
 * Runs a program in a process namespace of its own. The first process of the namespace is bubblewrap's, and is of the program's
 * process group: when the group is killed, the system kills all that is in the namespace.
 */
const IN_NAMESPACE = 'bwrap --unshare-pid --die-with-parent --dev-bind / / --proc /proc --'.split(' ')

const NO_PROGRAM = { exitCode: null, log: '' }

/** Runs one agent. */
export class AgentEnv<Sample> implements OwnRolloutEnv {
  readonly #settings: AgentSettings<Sample>
  readonly #sample: Sample
  #folder: string | undefined

  constructor(settings: AgentSettings<Sample>, sample: Sample) {
    this.#settings = settings
    this.#sample = sample
  }

  /** @throws {FulmarError} `INCOMPATIBLE`, always. */
  init(): never {
    const rule = 'an agent must be run by a Rollouter, as it holds its conversation itself'
    throw new FulmarError(
      'INCOMPATIBLE',
      `${rule}: got a model that is known by its messages, or an environment`,
    )
  }

  /** @throws {FulmarError} `INCOMPATIBLE`, always. */
  step(): never {
    return this.init()
  }

  /** Removes the folder, unless the task keeps it. */
  async close(): Promise<void> {
    if (this.#folder !== undefined && this.#settings.keepIn === undefined)
      await rm(this.#folder, { recursive: true, force: true })
  }

  async playRollout(rollout: OwnRollout): Promise<UnscoredRollout | undefined> {
    const { server, slots } = this.#settings
    return await slots.run(() => server.use((open) => this.#play(rollout, open)))
  }

  async #play(rollout: OwnRollout, server: InterceptionServer): Promise<UnscoredRollout | undefined> {
    const { groupId, rolloutId, attempt, signal, hasExpired } = rollout
    const folder = await this.#makeFolder(nameOf(rollout))
    const open = server.open(openOptions(rollout))
    const ended = await this.#run(rollout, open, folder)
    const record = await open.end()
    if (signal?.aborted && !hasExpired()) {
      record.ledger[Symbol.dispose]()
      return undefined
    }
    if (this.#settings.keepIn !== undefined) await writeFile(join(folder, 'agent.log'), ended.log)
    const { exitCode, log } = ended
    const program: ProgramResult = { exitCode, log, folder, posted: open.reward }
    const turns = record.turns.map((turn) => ({ ...turn, id: { ...turn.id, groupId, rolloutId } }))
    return { groupId, rolloutId, attempt, ...endOf(record, ended), turns, ledger: record.ledger, program }
  }

  async #makeFolder(name: string): Promise<string> {
    const { keepIn } = this.#settings
    const folder =
      keepIn === undefined ? await mkdtemp(join(tmpdir(), 'fulmar-agent-')) : resolve(keepIn, name)
    // A run that is resumed plays its last groups again.
    if (keepIn !== undefined) await rm(folder, { recursive: true, force: true })
    await mkdir(folder, { recursive: true })
    this.#folder = folder
    return folder
  }

  async #run({ clock, signal, hasExpired }: OwnRollout, open: AgentRollout, folder: string): Promise<Ended> {
    const { timeoutMs, programs, command, run, env, processes } = this.#settings
    let program: Promise<ProgramEnd> | undefined
    const start = (stop: AbortSignal): Promise<ProgramEnd> => {
      const call = { baseURL: open.baseURL, apiKey: open.apiKey, sample: this.#sample, folder, signal: stop }
      if (command === undefined) return Promise.resolve(run?.(call)).then(() => NO_PROGRAM)
      program = programs.run({
        command: processes === 'namespace' ? [...IN_NAMESPACE, ...command] : command,
        env: { ...process.env, ...env, ...variablesOf(call) },
        clock,
        signal: stop,
      })
      return program
    }
    const result = await bounded({ clock, timeoutMs, signal, run: (context) => start(context.signal) })
    // A program that is killed at its deadline still has a log.
    const { exitCode, log } = (await program?.catch(() => undefined)) ?? NO_PROGRAM
    return { exitCode, log, cause: causeOfEnd(result, timeoutMs, hasExpired()) }
  }
}

function nameOf({ groupId, rolloutId, attempt }: OwnRollout): string {
  const name = formatTurnId({ groupId, rolloutId, turnId: 0 }, { includeTurn: false })
  return attempt === 0 ? name : `${name}/attempt=${attempt}`
}

function openOptions(rollout: OwnRollout) {
  const { policy, renderer, maxTokens, temperature, topP, topK, stopStrings, seedOf } = rollout
  const { maxTurns, maxRolloutTokens, maxTotalTokens, generateTimeoutMs, clock } = rollout
  return {
    ...{ policy, renderer, maxTokens, temperature, topP, topK, stopStrings, seedOf, name: nameOf(rollout) },
    ...{ maxTurns, maxRolloutTokens, maxTotalTokens, generateTimeoutMs, clock },
  }
}

function variablesOf(call: {
  readonly baseURL: string
  readonly apiKey: string
  sample: unknown
  folder: string
}) {
  const sample = JSON.stringify(call.sample) ?? 'null'
  const numBytes = Buffer.byteLength(sample)
  if (numBytes > SAMPLE_BYTES_MAX) {
    const rule = `sample must have at most ${SAMPLE_BYTES_MAX} bytes as JSON, to be an environment variable`
    throw new FulmarError('LIMIT_EXCEEDED', `${rule}: got ${numBytes}`)
  }
  return {
    ...{ OPENAI_BASE_URL: call.baseURL, OPENAI_API_KEY: call.apiKey },
    ...{ FULMAR_SAMPLE: sample, FULMAR_FOLDER: call.folder },
  }
}

function causeOfEnd(
  result: BoundedResult<ProgramEnd>,
  timeoutMs: number,
  hasExpired: boolean,
): RolloutCause | null {
  if (hasExpired) return late('rollout must end in time: it did not')
  if (result.kind === 'timeout') return late(`agent must end within ${timeoutMs} ms: it did not`)
  if (result.kind === 'aborted')
    return { stage: 'rollout', kind: 'abort', message: 'rollout must not be stopped: it was' }
  if (result.kind === 'thrown') return causeOf('step', result.error)
  const { exitCode, log } = result.value
  if (exitCode === 0 || result.value === NO_PROGRAM) return null
  const last = log.trimEnd().split('\n').at(-1) ?? ''
  const got = exitCode === null ? 'a signal' : String(exitCode)
  const message = `agent must exit with code 0: got ${got}${last === '' ? '' : ` (${last.slice(0, 256)})`}`
  return { stage: 'step', kind: 'user_code', message }
}

function late(message: string): RolloutCause {
  return { stage: 'rollout', kind: 'deadline', message }
}

/** A limit of the rollout comes first: an agent that met one usually fails. */
function endOf(
  { status, cause, turns }: AgentRecord,
  ended: Ended,
): { readonly status: RolloutStatus; readonly cause: RolloutCause | null } {
  if (ended.cause?.kind === 'deadline') return { status: 'error_timeout', cause: ended.cause }
  if (status.startsWith('truncated')) return { status, cause: null }
  if (ended.cause) return { status: 'error', cause: cause ?? ended.cause }
  if (turns.length > 0 || status !== 'completed') return { status, cause }
  const message = 'agent must ask for an answer: it asked for none'
  return { status: 'error', cause: { stage: 'generate', kind: 'no_completion', message } }
}
