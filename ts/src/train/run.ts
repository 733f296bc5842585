/**
 * A whole run from its configuration: warm start, GRPO, measurements, run folder.
 *
 * Every random choice depends only on the seed and the position of the run. A checkpoint keeps weights,
 * moments and the position in the data, so a run that was killed and resumed takes the same steps as an
 * uninterrupted one, bit for bit.
 */

import { join } from 'node:path'
import { type ControllerState, windowedFifo } from '../collect/index.js'
import { checkKnownKeys, describeBuild, FulmarError } from '../core/index.js'
import { listDataset } from '../data/index.js'
import type { Task } from '../env/index.js'
import { AdamW, type Decoder, type Optimizer } from '../model/index.js'
import {
  DPOLoss,
  type DPOLossOptions,
  GRPOLoss,
  type GRPOLossOptions,
  SFTLoss,
  type SFTLossOptions,
} from '../objective/index.js'
import { type Evaluation, Rollouter, type RolloutSample, RolloutSampleRecorder } from '../rollout/index.js'
import {
  type Clock,
  type Phase,
  type RunEvent,
  RunLog,
  systemClock,
  writeFileAtomic,
} from '../telemetry/index.js'
import {
  type CheckpointState,
  hasCheckpoint,
  loadCheckpoint,
  loadOptimizer,
  removeCheckpoint,
  saveCheckpoint,
} from './checkpoint.js'
import { checkTrainConfig, type ModelConfig, type TrainConfig, type TrainResult } from './config.js'
import { modelOfConfig } from './config-model.js'
import { type DpoStep, dpo, readPairs } from './dpo.js'
import { expertIteration } from './expert-iteration.js'
import { grpo } from './grpo.js'
import type { Model } from './model.js'
import type { RolloutTrainingOptions, RolloutTrainingStep } from './rollout-training.js'
import { linearSchedule, type Schedule } from './schedule.js'
import { type SftStep, sft } from './sft.js'
import { makeTask, type TaskFactory } from './task-factory.js'

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

/** Position of a run: the state in its checkpoint. */
interface Progress extends CheckpointState {
  phase: Phase
  /** Number of completed steps of the phase. */
  step: number
  /** Adapter in training, as configured at the start of the run. */
  readonly lora?: ModelConfig['lora']
  /** Position in the pairs of DPO. */
  readonly pairs?: unknown
  /** Position in the examples of the warm start. */
  readonly examples?: unknown
  /** Position of the groups of GRPO. */
  readonly controller?: ControllerState
  /** Pass rate on held-out problems before GRPO. */
  passRateBefore: number | null
  grpoSeconds: number
  grpoTokens: number
  /** True if an evaluation reached the pass rate to stop at. */
  hasReached: boolean
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
  if (found) checkAdapter(config.model, found.state as Progress)
  // A later resume must not find what an earlier run with another configuration left here.
  if (!found) await removeCheckpoint(folder)
  const run = await Run.create(config, hooks, found?.decoder, found?.state as Progress | undefined)
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

/**
 * Evaluates the policy of a run folder on held-out problems of its task.
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
export async function evaluateRun(
  given: TrainConfig,
  options: {
    readonly numProblems: number
    readonly temperature?: number
    readonly signal?: AbortSignal
    /** As {@link TrainHooks.tasks}. */
    readonly tasks?: Readonly<Record<string, TaskFactory>>
  },
): Promise<Evaluation> {
  checkKnownKeys('options', options, ['numProblems', 'temperature', 'signal', 'tasks'], ['numProblems'])
  const { tasks = {}, ...measurement } = options
  const config = checkTrainConfig(given, { tasks })
  const { decoder } = await loadCheckpoint(join(config.runDir, 'policy'))
  using run = await Run.create(config, { tasks }, decoder, undefined)
  return await run.rollouter.evaluate({ temperature: config.eval.temperature, ...measurement })
}

const PHASES: readonly Phase[] = ['sft', 'dpo', 'grpo']

const FRESH: Progress = {
  phase: 'sft',
  step: 0,
  passRateBefore: null,
  grpoSeconds: 0,
  grpoTokens: 0,
  hasReached: false,
}

/** State of one run. Owns its native objects. */
class Run {
  readonly rollouter: Rollouter<unknown>
  readonly #config: TrainConfig
  readonly #hooks: TrainHooks
  readonly #clock: Clock
  readonly #model: Model
  readonly #task: Task<unknown>
  readonly #decoder: Decoder
  #reference: Decoder | 'base' | undefined
  #log: RunLog | undefined
  #progress: Progress

  /** Loads the model, or the weights of a checkpoint instead. */
  static async create(
    config: TrainConfig,
    hooks: TrainHooks,
    held: Decoder | undefined,
    progress: Progress | undefined,
  ): Promise<Run> {
    const task = await makeTask(config.task, config.seed, hooks.tasks)
    return new Run(config, hooks, await modelOfConfig(config, held), task, progress)
  }

  private constructor(
    config: TrainConfig,
    hooks: TrainHooks,
    model: Model,
    task: Task<unknown>,
    progress: Progress | undefined,
  ) {
    this.#config = config
    this.#hooks = hooks
    this.#clock = hooks.clock ?? systemClock
    const { lora } = config.model
    this.#progress = progress ?? { ...FRESH, ...(lora && { lora }) }
    this.#model = model
    this.#task = task
    this.#decoder = model.decoder
    const {
      groupSize,
      maxTokens,
      temperature,
      topK,
      topP,
      stopStrings,
      stdNormalize,
      maxTurns,
      maxRolloutTokens,
    } = config.grpo
    const sampling = { groupSize, maxTokens, temperature, topK, topP, stopStrings, stdNormalize }
    this.rollouter = new Rollouter({
      ...{ policy: model.policy, task, renderer: model.renderer, seed: config.seed, clock: this.#clock },
      ...sampling,
      ...(maxTurns > 0 && { maxTurns }),
      ...(maxRolloutTokens > 0 && { maxRolloutTokens }),
    })
  }

  async open(): Promise<void> {
    const { phase, step } = this.#progress
    const isBefore = (event: RunEvent) =>
      event.event !== 'result' &&
      (event.phase === phase ? event.step <= step : PHASES.indexOf(event.phase) < PHASES.indexOf(phase))
    const folder = this.#config.runDir
    const { rollouter, pending = [] } = this.#progress.controller ?? {}
    const again = new Set(pending.map(({ groupId }) => groupId))
    const keepSample = (sample: unknown) => {
      const { groupId } = sample as RolloutSample
      return groupId < (rollouter?.numGroups ?? 0) && !again.has(groupId)
    }
    this.#log = await RunLog.open({ folder, config: this.#config, keepEvent: isBefore, keepSample })
  }

  async warmStart(): Promise<void> {
    if (this.#progress.phase !== 'sft') return
    const { steps, batchSize, maxGradNorm, optimizer: options } = this.#config.sft
    if (steps > 0 && this.#task.workedExample === undefined) throw withoutExamples(this.#task.name)
    using optimizer = await this.#optimizer('sft', options)
    const dataset = this.#task.makeDataset('train')
    dataset.loadStateDict(this.#progress.examples ?? { position: 0 })
    const examples = { ...dataset, next: () => this.#task.workedExample?.(dataset.next()) ?? [] }
    const parts = { decoder: this.#decoder, optimizer, renderer: this.#model.renderer, examples }
    const shared = {
      steps,
      firstStep: this.#progress.step,
      maxGradNorm,
      schedule: this.#schedule('sft'),
    }
    let startMs = this.#clock.nowMs()
    for await (const step of sft({ ...parts, ...shared, batchSize, ...this.#signal() })) {
      const seconds = (this.#clock.nowMs() - startMs) / 1000
      this.#emit(sftEvent(step, steps, seconds))
      this.#progress = { ...this.#progress, step: step.index + 1, examples: dataset.stateDict() }
      await this.#checkpointEvery(optimizer)
      startMs = this.#clock.nowMs()
    }
    await this.#keep('warm-start')
    this.#progress = { ...this.#progress, phase: 'dpo', step: 0 }
  }

  async prefer(): Promise<void> {
    if (this.#progress.phase !== 'dpo') return
    const { steps, batchSize, maxGradNorm, optimizer: options, pairs: path, loss } = this.#config.dpo
    if (steps > 0) {
      using optimizer = await this.#optimizer('dpo', options)
      const { decoder: reference } = await loadCheckpoint(join(this.#config.runDir, 'warm-start'))
      using _ = reference
      const pairs = listDataset({ items: await readPairs(path), shuffleSeed: this.#config.seed })
      pairs.loadStateDict(this.#progress.pairs ?? { position: 0 })
      const parts = { decoder: this.#decoder, optimizer, reference, renderer: this.#model.renderer, pairs }
      const shared = {
        steps,
        batchSize,
        maxGradNorm,
        firstStep: this.#progress.step,
        schedule: this.#schedule('dpo'),
      }
      let startMs = this.#clock.nowMs()
      const objective = new DPOLoss(loss as DPOLossOptions)
      for await (const step of dpo({ ...parts, ...shared, loss: objective, ...this.#signal() })) {
        const seconds = (this.#clock.nowMs() - startMs) / 1000
        this.#emit(dpoEvent(step, steps, seconds))
        this.#progress = { ...this.#progress, step: step.index + 1, pairs: pairs.stateDict() }
        await this.#checkpointEvery(optimizer)
        startMs = this.#clock.nowMs()
      }
      await this.#keep('preferred')
    }
    this.#progress = { ...this.#progress, phase: 'grpo', step: 0 }
  }

  async reinforce(): Promise<void> {
    const { steps, optimizer: options, reference } = this.#config.grpo
    using optimizer = await this.#optimizer('grpo', options)
    if (reference) this.#reference = await this.#beforeReinforcement()
    if (this.#progress.passRateBefore === null) {
      this.#progress.passRateBefore = (await this.#measure()).passRate
      await this.#checkpoint(optimizer)
    }
    if (this.#progress.hasReached) return
    for await (const step of this.#learn(optimizer)) {
      const seconds = step.seconds.total
      this.#emit(grpoEvent(step, steps))
      this.#progress = { ...this.#progress, step: step.index + 1, controller: step.state }
      this.#progress.grpoSeconds += seconds
      this.#progress.grpoTokens += step.numTokens
      const { everySteps } = this.#config.eval
      if (everySteps > 0 && this.#progress.step % everySteps === 0 && this.#progress.step < steps)
        await this.#measure()
      await this.#checkpointEvery(optimizer)
      if (this.#progress.hasReached) return
    }
  }

  /**
   * Returns the policy at the start of GRPO. An untrained adapter does not change its base, which then needs
   * no second copy.
   */
  async #beforeReinforcement(): Promise<Decoder | 'base'> {
    const { model, sft, dpo: preferred, runDir } = this.#config
    if (model.lora && sft.steps === 0 && preferred.steps === 0) return 'base'
    const name = preferred.steps > 0 ? 'preferred' : 'warm-start'
    return (await loadCheckpoint(join(runDir, name))).decoder
  }

  #learn(optimizer: Optimizer): AsyncGenerator<RolloutTrainingStep, void, undefined> {
    const { recipe, numExperts, loss } = this.#config.grpo
    const options = this.#rolloutOptions(optimizer)
    if (recipe === 'grpo') return grpo({ ...options, loss: new GRPOLoss(loss as GRPOLossOptions) })
    return expertIteration({ ...options, numExperts, loss: new SFTLoss(loss as SFTLossOptions) })
  }

  #rolloutOptions(optimizer: Optimizer): RolloutTrainingOptions<unknown> {
    const { steps, promptsPerStep, maxGradNorm, dynamicSampling } = this.#config.grpo
    const { offPolicySteps, windowFraction, tokensPerPass } = this.#config.grpo
    const recorder = this.#log && new RolloutSampleRecorder({ file: this.#log.samples })
    const window = { windowFraction: windowFraction === 0 ? null : windowFraction }
    const { controller: state, step: firstStep } = this.#progress
    return {
      ...{
        policy: this.#model.policy,
        rollouter: this.rollouter,
        optimizer,
        promptsPerStep,
        steps,
        firstStep,
      },
      ...{ maxGradNorm, dynamicSampling, schedule: this.#schedule('grpo'), clock: this.#clock },
      onGroup: (group) => group.groupId % promptsPerStep === 0 && recorder?.record(group),
      ...(this.#reference && { reference: this.#reference }),
      ...(state && { state }),
      ...(offPolicySteps > 0 && {
        staleness: windowedFifo({ groupsPerStep: promptsPerStep, offPolicySteps, ...window }),
      }),
      ...(tokensPerPass > 0 && { batching: { seqLen: tokensPerPass, rowsPerMicrobatch: 1 } }),
      ...this.#signal(),
    }
  }

  async finish(): Promise<TrainResult> {
    const { runDir } = this.#config
    const { passRateBefore, grpoSeconds, grpoTokens, step } = this.#progress
    const { passRate: passRateAfter, numProblems } = await this.#measure()
    await this.#keep('policy')
    const metrics = {
      passRateBefore: passRateBefore ?? passRateAfter,
      passRateAfter,
      numProblems,
      secondsPerStep: step > 0 ? grpoSeconds / step : 0,
      tokensPerSecond: grpoSeconds > 0 ? grpoTokens / grpoSeconds : 0,
    }
    this.#emit({ event: 'result', metrics })
    this.#log?.flush()
    const result = { ...metrics, runDir }
    await writeFileAtomic(join(runDir, 'result.json'), `${JSON.stringify(result, null, 2)}\n`)
    return result
  }

  close(): void {
    this.#log?.close()
    if (this.#reference !== 'base') this.#reference?.[Symbol.dispose]()
    this.#model[Symbol.dispose]()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  /** Returns the optimizer of a phase: from the checkpoint within it, or a new one at its beginning. */
  async #optimizer(phase: Progress['phase'], options: object): Promise<Optimizer> {
    const isInside = this.#progress.phase === phase && this.#progress.step > 0
    if (!isInside) return new AdamW(this.#decoder, options)
    const folder = join(this.#config.runDir, 'checkpoint')
    return await loadOptimizer(folder, (state) => new AdamW(this.#decoder, options, state))
  }

  #schedule(phase: Progress['phase']): Schedule {
    const { learningRate, warmupSteps, finalFraction } = this.#config[phase]
    return linearSchedule({ learningRate, warmupSteps, finalFraction })
  }

  /** Saves the current weights by name in the run folder. */
  async #keep(name: string): Promise<void> {
    const folder = join(this.#config.runDir, name)
    await saveCheckpoint({ folder, decoder: this.#decoder, files: this.#model.files })
  }

  async #measure(): Promise<Evaluation> {
    const { numProblems, temperature } = this.#config.eval
    const measured = await this.rollouter.evaluate({ numProblems, temperature, ...this.#signal() })
    const { phase, step } = this.#progress
    this.#emit({ event: 'eval', phase, step, passRate: measured.passRate, numProblems })
    const { stopAtPassRate } = this.#config.eval
    if (stopAtPassRate > 0 && measured.passRate >= stopAtPassRate) this.#progress.hasReached = true
    return measured
  }

  async #checkpointEvery(optimizer: Optimizer): Promise<void> {
    const every = this.#config.checkpointEverySteps
    if (every > 0 && this.#progress.step % every === 0) await this.#checkpoint(optimizer)
  }

  /** Writes a checkpoint after the log up to it was synced. */
  async #checkpoint(optimizer: Optimizer): Promise<void> {
    this.#log?.flush()
    const folder = join(this.#config.runDir, 'checkpoint')
    await saveCheckpoint({
      folder,
      decoder: this.#decoder,
      optimizer,
      state: this.#progress,
      files: this.#model.files,
    })
  }

  #signal(): { signal?: AbortSignal } {
    return this.#hooks.signal ? { signal: this.#hooks.signal } : {}
  }

  #emit(event: RunEvent): void {
    this.#log?.append(event)
    this.#hooks.onEvent?.(event)
  }
}

function sftEvent(
  { index, loss, gradientNorm, numTokens }: SftStep,
  numSteps: number,
  seconds: number,
): RunEvent {
  const metrics = { loss, gradientNorm, seconds, tokensPerSecond: numTokens / seconds }
  return { event: 'step', phase: 'sft', step: index + 1, numSteps, metrics }
}

function dpoEvent(
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

function grpoEvent(
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

function withoutExamples(name: string): FulmarError {
  const detail = `config.sft.steps must be 0 for a task without worked examples: got ${name}`
  return new FulmarError('INCOMPATIBLE', detail)
}

/** Rejects another adapter than the run began with. */
function checkAdapter({ lora }: ModelConfig, begun: Progress): void {
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
