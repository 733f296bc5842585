/** Lines of the run log: one for each step of a phase. */

import type { RunEvent } from '../telemetry/index.js'
import type { DpoStep } from './dpo.js'
import type { RolloutTrainingStep } from './rollout-training.js'
import type { SftStep } from './sft.js'

/** Returns the line of the run log for a step of the warm start. */
export function sftEvent(
  { index, loss, gradientNorm, numTokens }: SftStep,
  numSteps: number,
  seconds: number,
): RunEvent {
  const metrics = { loss, gradientNorm, seconds, tokensPerSecond: numTokens / seconds }
  return { event: 'step', phase: 'sft', step: index + 1, numSteps, metrics }
}

/** Returns the line of the run log for a step of DPO. */
export function dpoEvent(
  { index, loss, gradientNorm, numTokens, metrics }: DpoStep,
  numSteps: number,
  seconds: number,
): RunEvent {
  const speed = { seconds, tokensPerSecond: numTokens / seconds }
  return {
    event: 'step',
    phase: 'dpo',
    step: index + 1,
    numSteps,
    metrics: { ...metrics, loss, gradientNorm, ...speed },
  }
}

/** Returns the line of the run log for a step of reinforcement. */
export function grpoEvent(
  { index, reward, kl, numTokens, metrics, update, seconds }: RolloutTrainingStep,
  numSteps: number,
): RunEvent {
  const learnt = update ? { loss: update.loss, gradientNorm: update.gradientNorm } : {}
  const speed = {
    seconds: seconds.total,
    secondsWaiting: seconds.waiting,
    tokensPerSecond: numTokens / seconds.total,
  }
  const all = { ...metrics, reward: reward.mean, rewardStd: reward.std, kl, ...learnt, ...speed }
  return { event: 'step', phase: 'grpo', step: index + 1, numSteps, metrics: all }
}
