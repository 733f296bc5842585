/**
 * A whole run from its configuration: warm start, GRPO, measurements, run folder.
 *
 * Every random choice depends only on the seed and the position of the run. A checkpoint keeps weights,
 * moments and the position in the data, so a run that was killed and resumed takes the same steps as an
 * uninterrupted one, bit for bit.
 */

import { join } from 'node:path'
import { checkKnownKeys, describeBuild, FulmarError } from '../core/index.js'
import type { Evaluation, MeasureOptions } from '../rollout/index.js'
import { MEASURE_KEYS } from '../rollout/rollouter-options.js'
import type { Clock, RunEvent } from '../telemetry/index.js'
import { hasCheckpoint, loadCheckpoint, removeCheckpoint } from './checkpoint.js'
import { checkTrainConfig, type ModelConfig, type TrainConfig, type TrainResult } from './config.js'
import { modelOfConfig } from './config-model.js'
import { evaluate } from './evaluate.js'
import { makeTask, type TaskFactory } from './task-factory.js'
import { type RunProgress, TrainingRun } from './training-run.js'

/** Callbacks and options of {@link runTraining}. */
export interface TrainHooks {
  /** Called with each line of the run log. */
  readonly onEvent?: (event: RunEvent) => void
  /**
   * If true, continues from the checkpoint in the run folder; without one, starts anew.
   * @default false
   */
  readonly resume?: boolean
  /**
   * Tasks that the configuration may name besides those of `taskFactories`.
   * @default none
   */
  readonly tasks?: Readonly<Record<string, TaskFactory>>
  /** Stops between steps; the last checkpoint stays. */
  readonly signal?: AbortSignal
  /** Clock of waits and timings. @default systemClock */
  readonly clock?: Clock
}

/**
 * Trains according to `config` (see `checkTrainConfig`) and fills its run folder: `config.json`, `log.jsonl`,
 * `samples.jsonl`, `checkpoint/`, `warm-start/`, `preferred/` after DPO, and `policy/` (all in the Hugging
 * Face layout, with `tokenizer.fulmar.json`).
 *
 * @throws {FulmarError} `INCOMPATIBLE` if the configuration asks for another backend than the loaded one, for
 * another model or adapter than that of the checkpoint, or for a warm start of a task without worked
 * examples; `UNKNOWN_NAME` for an unknown task; `ABORTED` if the signal fires; `IO` if the run folder cannot
 * be written; errors of the parts for their options.
 *
 * @example
 * ```ts
 * import { checkTrainConfig, describeBuild, runTraining } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const config = checkTrainConfig({
 *   backend: describeBuild().backend,
 *   runDir: await mkdtemp(join(tmpdir(), 'fulmar-')),
 *   model: { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1 },
 *   sft: { steps: 2, batchSize: 2 },
 *   grpo: { steps: 1, promptsPerStep: 1, groupSize: 2, maxTokens: 4 },
 *   eval: { numProblems: 3 },
 * })
 * const result = await runTraining(config)
 * assert.equal(result.numProblems, 3)
 * ```
 */
export async function runTraining(given: TrainConfig, hooks: TrainHooks = {}): Promise<TrainResult> {
  checkKnownKeys('hooks', hooks, ['onEvent', 'resume', 'tasks', 'signal', 'clock'])
  const { resume = false, tasks = {} } = hooks
  // Before a checkpoint of an earlier run is touched.
  const config = checkTrainConfig(given, { tasks })
  checkBackend(config)
  const folder = join(config.runDir, 'checkpoint')
  const found = resume && (await hasCheckpoint(folder)) ? await loadCheckpoint(folder) : undefined
  if (found) checkAdapter(config.model, found.state as RunProgress)
  // A later resume must not find what an earlier run with another configuration left here.
  if (!found) await removeCheckpoint(folder)
  const run = await TrainingRun.create(config, hooks, found?.decoder, found?.state as RunProgress | undefined)
  try {
    await run.open()
    await run.warmStart()
    await run.prefer()
    await run.reinforce()
    return await run.finish()
  } finally {
    run.close()
  }
}

/** Options of {@link evaluateRun}. */
export interface EvaluateRunOptions extends MeasureOptions {
  /** As {@link TrainHooks.tasks}. */
  readonly tasks?: Readonly<Record<string, TaskFactory>>
}

/**
 * Evaluates the policy of a run folder on held-out problems of its task. A rollout that ends with an error is not scored.
 * @throws {FulmarError} `IO`, `CORRUPT` or `MALFORMED` if the folder holds no finished run; `OUT_OF_RANGE` for a bad number.
 *
 * @example
 * ```ts
 * import { checkTrainConfig, evaluateRun } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const config = checkTrainConfig({ runDir: '/nowhere' })
 * await assert.rejects(evaluateRun(config, { numProblems: 10 }), { code: 'IO' })
 * ```
 */
export async function evaluateRun(given: TrainConfig, options: EvaluateRunOptions): Promise<Evaluation> {
  checkKnownKeys('options', options, [...MEASURE_KEYS, 'tasks'], ['numProblems'])
  const { tasks = {}, ...measurement } = options
  const config = checkTrainConfig(given, { tasks })
  const { maxTokens, topK, topP, stopStrings, maxTurns, maxRolloutTokens } = config.grpo
  const { decoder } = await loadCheckpoint(join(config.runDir, 'policy'))
  using model = await modelOfConfig(config, decoder)
  return await evaluate({
    ...{ model, task: await makeTask(config.task, config.seed, tasks), seed: config.seed, onError: 'drop' },
    ...{ maxTokens, topK, topP, stopStrings, temperature: config.eval.temperature },
    ...(maxTurns > 0 && { maxTurns }),
    ...(maxRolloutTokens > 0 && { maxRolloutTokens }),
    ...measurement,
  })
}

/** Rejects another adapter than the run began with. */
function checkAdapter({ lora }: ModelConfig, begun: RunProgress): void {
  const sorted = (config: ModelConfig['lora']) => JSON.stringify(Object.entries(config ?? {}).sort())
  if ((lora === undefined) === (begun.lora === undefined) && sorted(lora) === sorted(begun.lora)) return
  const [was, is] = [begun.lora, lora].map((config) => (config ? JSON.stringify(config) : 'no adapter'))
  const detail = `config.model.lora must be that of the checkpoint (${was}): got ${is}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** Rejects a configuration for another backend than the loaded one. */
function checkBackend(config: TrainConfig): void {
  const { backend } = describeBuild()
  if (config.backend === backend) return
  const detail = `config.backend must be the one that is loaded (${backend}): got ${config.backend}`
  throw new FulmarError('INCOMPATIBLE', detail)
}
