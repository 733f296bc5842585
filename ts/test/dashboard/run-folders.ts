/** Run folders for tests: each in a folder of its own under the system's. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import { type Rollout, RolloutGroup, RolloutSampleRecorder } from '../../src/rollout/index.js'
import { RunLog } from '../../src/telemetry/index.js'

const made: string[] = []
afterAll(() => Promise.all(made.splice(0).map((folder) => rm(folder, { recursive: true, force: true }))))

/** An empty folder that is removed after the tests. */
export async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-dashboard-'))
  made.push(folder)
  return folder
}

/** A rollout of one turn; `text` is the answer. */
export function madeRollout(fields: Partial<Rollout> & { readonly text?: string }): Rollout {
  const { groupId = 3, rolloutId = 0, text = 'Oslo', ...rest } = fields
  const ledger = new Ledger()
  ledger.recordTurn({
    promptIds: Uint32Array.of(1, 2),
    completionIds: Uint32Array.of(4, 5),
    logProbs: Float32Array.of(-0.5, -2),
    sampledLogProbs: Float32Array.of(-0.5, -2),
    policyVersion: 7,
  })
  return {
    ...{ groupId, rolloutId, attempt: 0, status: 'completed', cause: null },
    turns: [
      {
        id: { groupId, rolloutId, turnId: 0 },
        ...{ promptIds: Uint32Array.of(1, 2), completionIds: Uint32Array.of(4, 5) },
        completionLogProbs: Float32Array.of(-0.5, -2),
        ...{ finishReason: 'stop', minPolicyVersion: 7, maxPolicyVersion: 7 },
        promptMessages: [{ role: 'user', content: 'Capital of Norway?' }],
        completionMessage: { role: 'assistant', content: text },
        ...{ envMessages: [], envRewards: {}, bridgeRefusal: null },
      },
    ],
    ...{ reward: 1, rewardBreakdown: { exact: 1 }, unscored: {}, advantage: 0.5, ledger },
    ...rest,
  }
}

/** A run of two steps of GRPO with one group of two rollouts each. */
export async function madeRun(options: { readonly isFinished?: boolean } = {}): Promise<string> {
  const { isFinished = false } = options
  const folder = await newFolder()
  using log = await RunLog.open({ folder, config: { seed: 7, task: { name: 'capitals' } } })
  const recorder = new RolloutSampleRecorder({ file: log.samples })
  log.append({ event: 'eval', phase: 'grpo', step: 0, passRate: 0.25, numProblems: 4 })
  for (const step of [1, 2]) {
    const metrics = { reward: step / 4, kl: 0.01 * step, 'rollout/output_tokens/mean': 2, entropy: 1.5 }
    log.append({ event: 'step', phase: 'grpo', step, numSteps: 4, metrics })
    const rollouts = [0, 1].map((rolloutId) => madeRollout({ groupId: step, rolloutId, reward: rolloutId }))
    using group = new RolloutGroup({ groupId: step, sample: null, rollouts, metrics: [] })
    recorder.record(group)
  }
  if (isFinished) log.append({ event: 'result', metrics: { passRateAfter: 0.75 } })
  return folder
}

/** A run whose only step recorded `rollouts` with their tokens. */
export async function recordedRun(rollouts: readonly Rollout[]): Promise<string> {
  const folder = await newFolder()
  using log = await RunLog.open({ folder, config: { seed: 7 } })
  const tokenizer = { decode: (ids: Uint32Array) => `<${[...ids].join()}>` }
  const recorder = new RolloutSampleRecorder({ file: log.samples, keep: 'all', logLedger: true, tokenizer })
  using group = new RolloutGroup({ groupId: 0, sample: null, rollouts, metrics: [] })
  recorder.record(group, { step: 9 })
  return folder
}
