/** Other weights for servers that run: vLLM's phases as one transaction. */

import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import type { Servers } from './vllm-servers.js'

/** What {@link AsyncVLLM.updateWeights} is told. */
export interface WeightUpdate {
  /** What the new weights count as. */
  readonly version: number
  /** What `/update_weights` is told as `update_info`: names, dtypes, shapes, packing, as the servers' weight backend wants them. */
  readonly updateInfo: Readonly<Record<string, unknown>>
  /** What `/start_weight_update` is told. @default nothing */
  readonly startInfo?: Readonly<Record<string, unknown>>
  /** Sends the weights themselves, such as a broadcast; runs beside the servers' call that receives them. @default nothing is sent */
  readonly transfer?: () => Promise<void>
  /**
   * What becomes of requests in flight: `wait` lets them end, `keep` goes on with them under the new weights, `abort` ends them with
   * what they have.
   * @default 'wait'
   */
  readonly mode?: 'wait' | 'keep' | 'abort'
}

/** How the update of one server ended. */
export type WeightUpdateResult =
  | { readonly target: number; readonly ok: true }
  | { readonly target: number; readonly ok: false; readonly phase: WeightPhase; readonly error: FulmarError }

/** The phases, in order. */
export type WeightPhase = 'pause' | 'start' | 'update' | 'finish' | 'reset' | 'resume'

/** Does what {@link AsyncVLLM.updateWeights} says. */
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
        // Weights that were half received cannot be received again: their sender has sent them.
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
    // After a transfer that broke off, nobody knows what any server holds.
    for (const target of sent ? failed.keys() : targets) servers.quarantine(target)
    await phase('resume', '/resume', undefined, targets)
    for (const target of failed.keys()) servers.quarantine(target)
  }
  const results = targets.map((target) => failed.get(target) ?? ({ target, ok: true } as const))
  if (results.some(({ ok }) => ok)) return results
  const said = [...failed.values()]
    .map((one) => (one.ok ? '' : `${one.phase}: ${one.error.message}`))
    .join('; ')
  throw new FulmarError('UNAVAILABLE', `a server must take the weights: got ${said || 'none that serves'}`)
}
