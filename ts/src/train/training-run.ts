/** The phases of a run: warm start, preferences, reinforcement, and what they leave in the run folder. */

import { join } from 'node:path'
import { type ControllerState, windowedFifo } from '../collect/index.js'
import { deviceMemory, FulmarError } from '../core/index.js'
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
import { isExact } from '../policy/decoder.js'
import type { DecoderPolicy } from '../policy/index.js'
import { type Evaluation, Rollouter, type RolloutSample, RolloutSampleRecorder } from '../rollout/index.js'
import {
  type Clock,
  type Phase,
  type RunEvent,
  RunLog,
  systemClock,
  writeFileAtomic,
} from '../telemetry/index.js'
import { type CheckpointState, loadCheckpoint, loadOptimizer, saveCheckpoint } from './checkpoint.js'
import type { ModelConfig, TrainConfig, TrainResult } from './config.js'
import { modelOfConfig } from './config-model.js'
import { dpo, readPairs } from './dpo.js'
import { expertIteration } from './expert-iteration.js'
import { grpo, SAMPLER_CORRECTION } from './grpo.js'
import type { Model } from './model.js'
import type { RolloutTrainingOptions, RolloutTrainingStep } from './rollout-training.js'
import type { TrainHooks } from './run.js'
import { dpoEvent, grpoEvent, sftEvent } from './run-events.js'
import { linearSchedule, type Schedule } from './schedule.js'
import { sft } from './sft.js'
import { makeTask } from './task-factory.js'

/** Position of a run: the state in its checkpoint. */
export interface RunProgress extends CheckpointState {
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

const PHASES: readonly Phase[] = ['sft', 'dpo', 'grpo']

const FRESH: RunProgress = {
  phase: 'sft',
  step: 0,
  passRateBefore: null,
  grpoSeconds: 0,
  grpoTokens: 0,
  hasReached: false,
}

/** State of one run. Owns its native objects. */
export class TrainingRun {
  readonly rollouter: Rollouter<unknown>
  /** Policy and rollouter of the steps: those of evaluations sample with the policy's own weights. */
  readonly #policy: DecoderPolicy
  readonly #sampling: Rollouter<unknown>
  readonly #config: TrainConfig
  readonly #hooks: TrainHooks
  readonly #clock: Clock
  readonly #model: Model
  readonly #task: Task<unknown>
  readonly #decoder: Decoder
  #reference: Decoder | 'base' | undefined
  #log: RunLog | undefined
  #progress: RunProgress

  /** Loads the model, or the weights of a checkpoint instead. */
  static async create(
    config: TrainConfig,
    hooks: TrainHooks,
    held: Decoder | undefined,
    progress: RunProgress | undefined,
  ): Promise<TrainingRun> {
    const task = await makeTask(config.task, config.seed, hooks.tasks)
    return new TrainingRun(config, hooks, await modelOfConfig(config, held), task, progress)
  }

  private constructor(
    config: TrainConfig,
    hooks: TrainHooks,
    model: Model,
    task: Task<unknown>,
    progress: RunProgress | undefined,
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
    const rollouterOf = (policy: DecoderPolicy) =>
      new Rollouter({
        ...{ policy, task, renderer: model.renderer, seed: config.seed, clock: this.#clock },
        ...sampling,
        ...(maxTurns > 0 && { maxTurns }),
        ...(maxRolloutTokens > 0 && { maxRolloutTokens }),
      })
    this.rollouter = rollouterOf(model.policy)
    const { rolloutWeights: weights, rolloutKvCacheDtype: kvCacheDtype } = config.grpo
    const { speculativeTokens, drawMethod, activationBytesMax } = config.grpo
    const sampler = { weights, kvCacheDtype, speculativeTokens, drawMethod, activationBytesMax }
    const isPlain =
      isExact(sampler) && drawMethod === 'inverse' && speculativeTokens === 0 && activationBytesMax === 0
    this.#policy = isPlain ? model.policy : model.policyWith(sampler)
    this.#sampling = isPlain ? this.rollouter : rollouterOf(this.#policy)
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
    const { recipe, numExperts, loss, rolloutWeights } = this.#config.grpo
    const options = this.#rolloutOptions(optimizer)
    if (recipe === 'grpo') {
      const correction = rolloutWeights === 'same' ? {} : { corrections: [SAMPLER_CORRECTION] }
      return grpo({ ...options, loss: new GRPOLoss({ ...correction, ...(loss as GRPOLossOptions) }) })
    }
    return expertIteration({ ...options, numExperts, loss: new SFTLoss(loss as SFTLossOptions) })
  }

  #rolloutOptions(optimizer: Optimizer): RolloutTrainingOptions<unknown> {
    const { steps, promptsPerStep, maxGradNorm, dynamicSampling } = this.#config.grpo
    const { offPolicySteps, windowFraction, tokensPerPass } = this.#config.grpo
    const { rollouts: keep, tokens: logLedger } = this.#config.record
    const { tokenizer } = this.#model
    const recorder =
      this.#log && new RolloutSampleRecorder({ file: this.#log.samples, keep, logLedger, tokenizer })
    const window = { windowFraction: windowFraction === 0 ? null : windowFraction }
    const { controller: state, step: firstStep } = this.#progress
    return {
      ...{
        policy: this.#policy,
        rollouter: this.#sampling,
        optimizer,
        promptsPerStep,
        steps,
        firstStep,
      },
      ...{ maxGradNorm, dynamicSampling, schedule: this.#schedule('grpo'), clock: this.#clock },
      onGroup: (group, context) => {
        if (keep === 'all' || group.groupId % promptsPerStep === 0) recorder?.record(group, context)
      },
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
  async #optimizer(phase: RunProgress['phase'], options: object): Promise<Optimizer> {
    const isInside = this.#progress.phase === phase && this.#progress.step > 0
    if (!isInside) return new AdamW(this.#decoder, options)
    const folder = join(this.#config.runDir, 'checkpoint')
    return await loadOptimizer(folder, (state) => new AdamW(this.#decoder, options, state))
  }

  #schedule(phase: RunProgress['phase']): Schedule {
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
    const { passRate, meanReward } = measured
    const rewards = meanReward === null ? {} : { meanReward }
    this.#emit({ event: 'eval', phase, step, passRate, numProblems, ...rewards })
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

  /** Writes a line of the log, for a step with the memory of the decoder's GPU. */
  #emit(event: RunEvent): void {
    const memory = event.event === 'step' ? deviceMemory(this.#decoder.device) : {}
    const line = event.event === 'step' ? { ...event, metrics: { ...event.metrics, ...memory } } : event
    this.#log?.append(line)
    this.#hooks.onEvent?.(line)
  }
}

function withoutExamples(name: string): FulmarError {
  const detail = `config.sft.steps must be 0 for a task without worked examples: got ${name}`
  return new FulmarError('INCOMPATIBLE', detail)
}
