/** Facts about a path: a ledger, a buffer, a checkpoint, a run or an evaluation. */

import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Ledger, type LedgerJson } from '../chat/index.js'
import { checkGiven, FulmarError, messageOf, readRegular } from '../core/index.js'
import { nodeDisk } from '../telemetry/disk.js'
import type { StepEvent } from '../telemetry/index.js'
import { CheckedFolder } from '../train/checkpoint-folder.js'
import { fieldsOf } from './rollout-line.js'
import { RunTail } from './run-tail.js'

/** Largest file that is read as a ledger, and largest JSON file of a buffer, in bytes. */
const INSPECTED_BYTES_MAX = 2 ** 28

/** Kinds of paths. */
export type InspectedKind = 'ledger' | 'buffer' | 'checkpoint' | 'run' | 'evaluation'

/** Facts about a path: plain JSON. */
export type InspectedFacts = { readonly [name: string]: InspectedValue }

/** A fact, or facts about a part. */
export type InspectedValue = string | number | boolean | null | readonly string[] | InspectedFacts

/** Result of {@link inspect}. */
export interface Inspection {
  readonly kind: InspectedKind
  /** The path that was given. */
  readonly path: string
  readonly facts: InspectedFacts
}

/**
 * Looks at a ledger (`Ledger.toBytes` or its JSON), the folder of a buffer, of a checkpoint, of a run or of an evaluation. Reads
 * names, sizes and counts, and no weights; sums of files are not checked.
 *
 * @throws {FulmarError} `IO` if `path` is not there or cannot be read; `MALFORMED` if it is something else; `CORRUPT` and
 * `LIMIT_EXCEEDED` for a damaged or too large file.
 *
 * @example
 * ```ts
 * import { inspect } from 'fulmar/dashboard'
 * import { RunLog } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder, config: { seed: 7 } })
 * log.append({ event: 'step', phase: 'grpo', step: 1, numSteps: 4, metrics: { reward: 0.5 } })
 * log.close()
 * const { kind, facts } = await inspect(folder)
 * assert.equal(kind, 'run')
 * assert.equal(facts.state, 'grpo step 1 of 4')
 * ```
 */
export async function inspect(path: string): Promise<Inspection> {
  checkGiven('path', path)
  if (typeof path !== 'string' || path === '')
    throw new FulmarError('MALFORMED', `path must be a text: got ${JSON.stringify(path)}`)
  const about = await stat(path).catch((cause: unknown) => {
    throw new FulmarError('IO', `path must be there: got ${path} (${messageOf(cause)})`, { cause })
  })
  if (!about.isDirectory()) return { kind: 'ledger', path, facts: ledgerFacts(await readLedger(path)) }
  for (const [name, look] of FOLDERS) {
    if (await isThere(join(path, name))) return { path, ...(await look(path)) }
  }
  const detail = `path must be a ledger or the folder of a buffer, a checkpoint, a run or an evaluation: got ${path}`
  throw new FulmarError('MALFORMED', detail)
}

type Found = Omit<Inspection, 'path'>

/** The file that shows what a folder is, the most special first. */
const FOLDERS: readonly (readonly [name: string, look: (path: string) => Promise<Found>])[] = [
  ['manifest.json', async (path) => ({ kind: 'checkpoint', facts: await checkpointFacts(path) })],
  ['buffer_metadata.json', async (path) => ({ kind: 'buffer', facts: await bufferFacts(path) })],
  ['results.jsonl', async (path) => ({ kind: 'evaluation', facts: await evaluationFacts(path) })],
  ['log.jsonl', async (path) => ({ kind: 'run', facts: await runFacts(path) })],
]

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined
}

async function readLedger(path: string): Promise<LedgerJson> {
  const bytes = await readRegular(path, INSPECTED_BYTES_MAX)
  if (bytes === undefined) throw new FulmarError('IO', `path must be there: got ${path}`)
  try {
    using ledger =
      bytes[0] === JSON_BEGINNING ? Ledger.fromJSON(new TextDecoder().decode(bytes)) : Ledger.fromBytes(bytes)
    return ledger.toJSON()
  } catch (cause) {
    const code = cause instanceof FulmarError ? cause.code : 'MALFORMED'
    throw new FulmarError(code, `path must be a ledger or a folder: got ${path} (${messageOf(cause)})`, {
      cause,
    })
  }
}

/** `{` */
const JSON_BEGINNING = 123

function ledgerFacts({ ids, numTurns, branches, segments }: LedgerJson): InspectedFacts {
  const origins: Record<string, number> = {}
  for (const { origin, length } of segments) origins[origin] = (origins[origin] ?? 0) + length
  const forks: Record<string, number> = {}
  for (const { fork } of branches) if (fork) forks[fork.reason] = (forks[fork.reason] ?? 0) + 1
  const versions = segments.flatMap(({ policyVersion }) => policyVersion ?? [])
  return {
    tokens: ids.length,
    turns: numTurns,
    branches: branches.length,
    origins,
    forks,
    oldestVersion: versions.length === 0 ? null : least(versions.map(({ min }) => min)),
    newestVersion: versions.length === 0 ? null : -least(versions.map(({ max }) => -max)),
  }
}

const least = (values: readonly number[]) => values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY)

async function checkpointFacts(path: string): Promise<InspectedFacts> {
  const folder = await CheckedFolder.open(nodeDisk, path)
  const files: Record<string, number> = {}
  for (const name of [...folder.names].sort()) files[name] = (await stat(join(path, name))).size
  const state = folder.names.has('state.json') ? await folder.readJson('state.json') : {}
  const config = folder.names.has('config.json') ? await folder.readJson('config.json') : {}
  return {
    ...pick(state, ['phase', 'step', 'policyVersion', 'dtype', 'passRateBefore']),
    model: pick(config, [
      'model_type',
      'hidden_size',
      'num_hidden_layers',
      'num_attention_heads',
      'vocab_size',
    ]),
    hasOptimizer: folder.names.has('optimizer.safetensors'),
    hasAdapter: folder.names.has('adapter_model.safetensors'),
    bytes: files,
  }
}

async function bufferFacts(path: string): Promise<InspectedFacts> {
  const state = fieldsOf(fieldsOf(await readJson(path, 'fulmar_state.json')).parts)
  const writer = { ...fieldsOf(await readJson(path, 'writer/metadata.json')), ...fieldsOf(state.writer) }
  const leaves = fieldsOf(await readJson(path, 'storage/meta.json'))
  const storage = fieldsOf(await readJson(path, 'storage/storage_metadata.json'))
  const named = Object.entries(leaves).flatMap(([name, leaf]) => {
    const { shape, dtype } = fieldsOf(leaf)
    return typeof dtype === 'string'
      ? [`${name}: ${dtype.replace('torch.', '')} ${JSON.stringify(shape)}`]
      : []
  })
  return {
    ...pick({ rows: writer.len ?? storage.len, ...writer, writes: writer.writeCount ?? writer.write_count }, [
      'rows',
      'capacity',
      'cursor',
      'writes',
    ]),
    form: Object.keys(fieldsOf(await readJson(path, 'fulmar_state.json'))).length > 0 ? 'fulmar' : 'torchrl',
    leaves: named,
  }
}

/** The JSON of a file in a folder; `undefined` if it is not there. */
async function readJson(folder: string, name: string): Promise<unknown> {
  const path = join(folder, name)
  const bytes = await readRegular(path, INSPECTED_BYTES_MAX)
  if (bytes === undefined) return undefined
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be JSON: it is not`, { cause })
  }
}

async function runFacts(path: string): Promise<InspectedFacts> {
  const run = await RunTail.open(path)
  const { seed, task, model } = fieldsOf(run.config)
  const steps = run.events.filter((event): event is StepEvent => event.event === 'step')
  const [last, result] = [steps.at(-1), run.events.find(({ event }) => event === 'result')]
  return {
    state: run.state,
    ...pick({ task: fieldsOf(task).name, model: fieldsOf(model).path, seed }, ['task', 'model', 'seed']),
    events: run.events.length,
    ...rolloutFacts(run),
    ...(last && { lastStep: { ...last.metrics } }),
    ...(result?.event === 'result' && { result: { ...result.metrics } }),
    notes: run.notes,
  }
}

async function evaluationFacts(path: string): Promise<InspectedFacts> {
  const run = await RunTail.open(path)
  const { seed, task, model } = fieldsOf(run.config)
  return { ...pick({ task, model, seed }, ['task', 'model', 'seed']), ...rolloutFacts(run), notes: run.notes }
}

function rolloutFacts({ rollouts }: RunTail): InspectedFacts {
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const statuses: Record<string, number> = {}
  for (const { status } of rollouts) statuses[status] = (statuses[status] ?? 0) + 1
  return {
    rollouts: rollouts.length,
    statuses,
    unscored: rollouts.length - rewards.length,
    meanReward: rewards.length === 0 ? null : rewards.reduce((a, b) => a + b, 0) / rewards.length,
    withLedger: rollouts.filter(({ hasLedger }) => hasLedger).length,
  }
}

/** The named fields that are plain values. */
function pick(fields: Readonly<Record<string, unknown>>, names: readonly string[]): InspectedFacts {
  const found: Record<string, InspectedValue> = {}
  for (const name of names) {
    const value = fields[name]
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
      found[name] = value
  }
  return found
}
