/** Weight updates of running servers: vLLM's phases as one transaction. */

import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import type { Servers } from './vllm-servers.js'

/** Options of {@link AsyncVLLM.updateWeights}. */
export interface WeightUpdate {
  /** Policy version of the new weights. */
  readonly version: number
  /**
   * Body of `/update_weights`, `update_info`: names, dtypes, shapes, packing, in the form of the servers'
   * weight backend.
   */
  readonly updateInfo: Readonly<Record<string, unknown>>
  /** Body of `/start_weight_update`. @default none */
  readonly startInfo?: Readonly<Record<string, unknown>>
  /**
   * Sends the weights, such as a broadcast; runs concurrently with the call that receives them.
   * @default nothing is sent
   */
  readonly transfer?: () => Promise<void>
  /**
   * Treatment of requests in flight: `wait` lets them finish, `keep` continues them under the new weights,
   * `abort` ends them with the tokens so far.
   * @default 'wait'
   */
  readonly mode?: 'wait' | 'keep' | 'abort'
}

/** Outcome of the update of one server. */
export type WeightUpdateResult =
  | { readonly target: number; readonly ok: true }
  | { readonly target: number; readonly ok: false; readonly phase: WeightPhase; readonly error: FulmarError }

/** Phases, in order. */
export type WeightPhase = 'pause' | 'start' | 'update' | 'finish' | 'reset' | 'resume'

/** Implements {@link AsyncVLLM.updateWeights}. */
export async function updateServers(servers: Servers, update: WeightUpdate): Promise<WeightUpdateResult[]> {
  checkKnownKeys('update', update, ['version', 'updateInfo', 'startInfo', 'transfer', 'mode'])
  const { version, updateInfo, startInfo = {}, transfer = async () => {}, mode = 'wait' } = update
  if (!Number.isSafeInteger(version) || version < 0)
    throw new FulmarError('OUT_OF_RANGE', `version must be a non-negative safe integer: got ${version}`)
  const failed = new Map<number, WeightUpdateResult>()
  const targets = servers.router.serving.flatMap((serves, target) => (serves ? [target] : []))
  const phase = async (name: WeightPhase, path: string, body: object | undefined, all: readonly number[]) => {
    const calls = all.map(async (target) => {
      try {
        // A partial transfer cannot be repeated: the sender has already sent the weights.
        await servers.control(target, 'POST', path, { body, ...(name === 'update' && { maxAttempts: 1 }) })
      } catch (error) {
        const known = error instanceof FulmarError ? error : new FulmarError('UNAVAILABLE', messageOf(error))
        if (!failed.has(target)) failed.set(target, { target, ok: false, phase: name, error: known })
      }
    })
    await Promise.all(calls)
  }
  const left = () => targets.filter((target) => !failed.has(target))
  let sent = false
  try {
    await phase('pause', `/pause?mode=${mode}`, undefined, targets)
    await phase('start', '/start_weight_update', startInfo, left())
    await Promise.all([
      phase('update', '/update_weights', { update_info: updateInfo }, left()),
      left().length > 0 && transfer(),
    ])
    sent = true
    await phase('finish', '/finish_weight_update', { weight_version: String(version) }, left())
    await phase('reset', '/reset_prefix_cache', undefined, left())
    for (const target of left()) servers.setVersion(target, version)
  } finally {
    // After an interrupted transfer the weights of all servers are unknown.
    for (const target of sent ? failed.keys() : targets) servers.quarantine(target)
    await phase('resume', '/resume', undefined, targets)
    for (const target of failed.keys()) servers.quarantine(target)
  }
  const results = targets.map((target) => failed.get(target) ?? ({ target, ok: true } as const))
  if (results.some(({ ok }) => ok)) return results
  const said = [...failed.values()]
    .map((one) => (one.ok ? '' : `${one.phase}: ${one.error.message}`))
    .join('; ')
  throw new FulmarError(
    'UNAVAILABLE',
    `a server must accept the weights: got ${said || 'no available server'}`,
  )
}
