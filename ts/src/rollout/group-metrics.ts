/** Metrics of a group of rollouts; their names are stable. */

import { isError, isTruncated } from '../env/index.js'
import { type Metric, metric } from '../telemetry/index.js'
import type { Rollout } from './rollout.js'

/** Stream of the rollouts, which is the prefix of metric names. */
export type MetricPrefix = 'rollout' | 'validation'

/**
 * Computes the metrics of some rollouts: `<prefix>/output_tokens`, `prompt_length`, `response_length`,
 * `total_length`,
 * `num_turns`, `truncation_rate`, `error_rate`, `unscored_rate`, `bridge_decline_rate`, and `<prefix>_reward` with
 * one `component/<name>` per reward function.
 */
export function groupMetrics(prefix: MetricPrefix, rollouts: readonly Rollout[]): Metric[] {
  const lengths = rollouts.map(rolloutLengths)
  const pick = (name: keyof RolloutLengths) => lengths.map((length) => length[name])
  const rate = (holds: (rollout: Rollout) => boolean) => rollouts.map((rollout) => Number(holds(rollout)))
  const outputTokens = pick('outputTokens')
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const bridges = rollouts.flatMap(({ turns }) =>
    turns.slice(0, -1).map((turn) => Number(turn.bridgeRefusal !== null)),
  )
  return [
    metric(`${prefix}/output_tokens`, 'mean', outputTokens),
    metric(`${prefix}/output_tokens`, 'std', outputTokens),
    metric(`${prefix}/output_tokens`, 'max', outputTokens),
    metric(`${prefix}/prompt_length`, 'mean', pick('promptLength')),
    metric(`${prefix}/response_length`, 'mean', pick('responseLength')),
    metric(`${prefix}/total_length`, 'mean', pick('totalLength')),
    metric(`${prefix}/num_turns`, 'mean', pick('numTurns')),
    metric(`${prefix}/num_turns`, 'max', pick('numTurns')),
    metric(
      `${prefix}/truncation_rate`,
      'mean',
      rate(({ status }) => isTruncated(status)),
    ),
    metric(
      `${prefix}/error_rate`,
      'mean',
      rate(({ status }) => isError(status)),
    ),
    metric(
      `${prefix}/unscored_rate`,
      'mean',
      rate(({ reward }) => reward === null),
    ),
    metric(`${prefix}/bridge_decline_rate`, 'mean', bridges),
    metric(`${prefix}_reward`, 'summary', rewards),
    ...rollouts.flatMap(({ rewardBreakdown }) =>
      Object.entries(rewardBreakdown).map(([name, score]) =>
        metric(`${prefix}_reward/component/${name}`, 'mean', score),
      ),
    ),
  ]
}

interface RolloutLengths {
  /** Number of sampled tokens of all turns. */
  readonly outputTokens: number
  /** Length of the first prompt. */
  readonly promptLength: number
  /** Length of everything after the first prompt. */
  readonly responseLength: number
  /** Length of the last prompt and its completion. */
  readonly totalLength: number
  readonly numTurns: number
}

function rolloutLengths({ turns }: Rollout): RolloutLengths {
  const [first, last] = [turns[0], turns.at(-1)]
  const promptLength = first?.promptIds.length ?? 0
  const totalLength = (last?.promptIds.length ?? 0) + (last?.completionIds.length ?? 0)
  return {
    outputTokens: turns.reduce((sum, { completionIds }) => sum + completionIds.length, 0),
    promptLength,
    responseLength: totalLength - promptLength,
    totalLength,
    numTurns: turns.length,
  }
}
