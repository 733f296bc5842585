/** Rollouts as rows of a replay buffer: ragged columns of tokens, and columns of one number a row. */

import { checkGiven, FulmarError } from '../core/index.js'
import type { Rollout, RolloutGroup, RolloutTurn } from '../rollout/index.js'
import { Ragged, Tensor, TensorDict } from '../tensor/index.js'

/** Unit of a row: each branch of a rollout with its advantages, each turn, or only the last turn. */
export type RolloutRowKind = 'branches' | 'turns' | 'lastTurns'

/**
 * Returns the rows of some groups, before their ledgers are freed; `null` without rows. Ragged columns of
 * `branches`: `ids`,
 * `mask`, `log_probs`, `sampled_log_probs`, `versions`, `advantages`; of turns: `prompt_ids`, `completion_ids`,
 * `log_probs`. One number a row: `reward` (unscored rollouts have no row), `group_id`, `rollout_id`, `turn_id`,
 * `policy_version` (the oldest), and for turns `done`. All are new arrays.
 *
 * @example
 * ```ts
 * import { rolloutRows } from 'fulmar/collect'
 * import { RolloutGroup } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const group = new RolloutGroup({ groupId: 0, sample: 'Norway', rollouts: [], metrics: [] })
 * assert.equal(rolloutRows([group], 'turns'), null)
 * ```
 */
export function rolloutRows(groups: readonly RolloutGroup[], kind: RolloutRowKind): TensorDict | null {
  checkGiven('groups', groups)
  const scored = groups
    .flatMap(({ rollouts }) => rollouts)
    .flatMap((rollout) => (rollout.reward === null ? [] : [{ rollout, reward: rollout.reward }]))
  const rows = scored.flatMap(({ rollout, reward }) => {
    const own = kind === 'branches' ? branchRows(rollout) : turnRows(rollout, kind === 'lastTurns')
    return own.map((row) => withNumbers(row, rollout, reward))
  })
  const [first] = rows
  if (first === undefined) return null
  const column = (name: string) => {
    const values = rows.map((row) => row[name])
    return values.every((value) => typeof value === 'number')
      ? Tensor.from(name === 'reward' ? Float32Array.from(values) : Uint32Array.from(values))
      : ragged(name, values)
  }
  return TensorDict.from(Object.fromEntries(Object.keys(first).map((name) => [name, column(name)])), {
    batchSize: [rows.length],
  })
}

type Column = Uint32Array | Float32Array | Uint8Array
type Row = Readonly<Record<string, Column | number>>

function branchRows(rollout: Rollout): Row[] {
  return rollout.ledger.trainingSamples(rollout.advantage ?? 0).map((sample) => ({
    ids: sample.ids,
    mask: sample.mask,
    log_probs: sample.logProbs,
    sampled_log_probs: sample.sampledLogProbs,
    versions: sample.versions,
    advantages: sample.advantages,
    turn_id: sample.turnId,
    policy_version: sample.minPolicyVersion,
  }))
}

function turnRows({ turns }: Rollout, lastOnly: boolean): Row[] {
  const last = turns.length - 1
  const toRow = (turn: RolloutTurn, index: number): Row => ({
    prompt_ids: turn.promptIds,
    completion_ids: turn.completionIds,
    log_probs: turn.completionLogProbs,
    turn_id: turn.id.turnId,
    policy_version: turn.minPolicyVersion,
    done: Number(index === last),
  })
  const rows = turns.map(toRow)
  return lastOnly ? rows.slice(-1) : rows
}

function withNumbers(row: Row, { groupId, rolloutId }: Rollout, reward: number): Row {
  return { ...row, reward, group_id: groupId, rollout_id: rolloutId }
}

function ragged(name: string, values: readonly (Column | number | undefined)[]): Ragged {
  const rows = values.map((value) => {
    if (typeof value === 'number' || value === undefined)
      throw new FulmarError('MALFORMED', `column ${name} must have tokens in every row: got ${value}`)
    // A view of a longer array would be kept whole.
    return value.slice()
  })
  return Ragged.fromRows(rows.map((row) => Tensor.from(row)))
}
