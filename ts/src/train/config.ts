/**
 * The configuration of a training run: what `fulmar train CONFIG` reads and what `config.json` in a run folder holds.
 *
 * `checkTrainConfig` turns unknown JSON into a {@link TrainConfig} with every default filled in. Options of the Rust
 * core (`model`, `loss`, `optimizer`) pass through untouched: their defaults and their checks live there.
 */

import { ConfigReader } from '../core/index.js'
import { StopStrings, type WeightDtype } from '../model/index.js'

/** Options that the Rust core checks: a plain JSON object, empty for its defaults. */
export type CoreOptions = Readonly<Record<string, unknown>>

/**
 * Which task is trained, and its options. Those of `sumDigits` are checked here: `numbers` (fewest and most in a problem),
 * `min` and `max` (of a number), `prompt` (`short`: one line that a tiny policy can learn; `contract`: with a worked
 * example). Those of other tasks are checked by the task.
 */
export type TaskConfig = CoreOptions & {
  /** A name that `taskFactories` or the caller of `runTraining` knows. */
  readonly name: string
}

/**
 * What is trained: a decoder from nothing, by the options of `Decoder` (`hidden_size` ...); or one that is there, by
 * `path`: a folder as Hugging Face lays it out, or a GGUF file, with its tokenizer in it.
 */
export type ModelConfig = CoreOptions & {
  /** What its weights are stored as; optimisers keep single precision. */
  readonly dtype: WeightDtype
  /** The folder or file to begin with. */
  readonly path?: string
}

/** The supervised warm start. */
export interface SftConfig {
  /** Optimiser steps; 0 skips the phase. */
  readonly steps: number
  /** Worked examples per step. */
  readonly batchSize: number
  /** The largest learning rate. */
  readonly learningRate: number
  /** Steps in which the rate rises to it. */
  readonly warmupSteps: number
  /** Share of the rate that is left at the end; it falls linearly. */
  readonly finalFraction: number
  /** Gradients are scaled down to this L2 norm. */
  readonly maxGradNorm: number
  /** Other options of `AdamW`, such as `{ "weightDecay": 0.1 }`. */
  readonly optimizer: CoreOptions
}

/** The phase that learns from pairs of answers. */
export interface DpoConfig extends SftConfig {
  /** A file of JSON lines, each with the messages `prompt`, `chosen` and `rejected`. */
  readonly pairs: string
  /** Options of `DPOLoss`, such as `{ "beta": 0.1 }`. */
  readonly loss: CoreOptions
}

/** The phase that learns from rollouts. */
export interface GrpoConfig {
  /** What is learnt from a group: `grpo` compares its members, `expertIteration` imitates the best of them. */
  readonly recipe: 'grpo' | 'expertIteration'
  /** Members of a group that `expertIteration` imitates. */
  readonly numExperts: number
  /** Optimiser steps; 0 skips the phase. */
  readonly steps: number
  /** Problems per step. */
  readonly promptsPerStep: number
  /** Rollouts per problem. */
  readonly groupSize: number
  /** Most tokens of one answer, the stop token included. */
  readonly maxTokens: number
  /** Most turns of a rollout; 0 for as many as the task takes. */
  readonly maxTurns: number
  /** Most tokens of a rollout, prompts included; 0 for no limit. */
  readonly maxRolloutTokens: number
  /** Steps that rollouts run ahead of training; 0 is synchronous, and the only mode that a resume repeats bit for bit. */
  readonly offPolicySteps: number
  /** Share of the groups under way within which finished ones overtake slower ones; 0 for strict order. */
  readonly windowFraction: number
  /** Draws further problems until `promptsPerStep` of them have answers of different worth. */
  readonly dynamicSampling: boolean
  /** Most tokens of one pass through the decoder; 0 for all of a step at once. Longer samples are dropped. */
  readonly tokensPerPass: number
  /** Whether the policy before GRPO is kept to measure the distance to it, and for a `klToRef` of the loss. */
  readonly reference: boolean
  /** Sampling temperature of the rollouts. */
  readonly temperature: number
  /** Sampling among the `topK` likeliest tokens; 0 means all. */
  readonly topK: number
  /** Sampling among the likeliest tokens that reach this probability together. */
  readonly topP: number
  /** Texts that end an answer, beside the renderer's stop tokens. */
  readonly stopStrings: readonly string[]
  /** The largest learning rate. */
  readonly learningRate: number
  /** Steps in which the rate rises to it. */
  readonly warmupSteps: number
  /** Share of the rate that is left at the end; it falls linearly. */
  readonly finalFraction: number
  /** Divides each group's advantages by its standard deviation. */
  readonly stdNormalize: boolean
  /** Gradients are scaled down to this L2 norm. */
  readonly maxGradNorm: number
  /** Options of `GRPOLoss`, such as `{ "clipEpsilon": 0.2 }`; of `SFTLoss` for `expertIteration`. */
  readonly loss: CoreOptions
  /** Other options of `AdamW`. */
  readonly optimizer: CoreOptions
}

/** How the policy is measured on held-out problems. */
export interface EvalConfig {
  /** Held-out problems per measurement. */
  readonly numProblems: number
  /** Measures every so many GRPO steps besides before and after; 0 for never. */
  readonly everySteps: number
  /** Sampling temperature of the measurement. */
  readonly temperature: number
  /** Ends the run early once a measurement reaches this pass rate; 0 for never. */
  readonly stopAtPassRate: number
}

/** A whole run. Every field is set; see {@link checkTrainConfig} for the defaults. */
export interface TrainConfig {
  /** Fixes weights, data, draws. A non-negative safe integer. */
  readonly seed: number
  /** Where the sums are done. */
  readonly backend: 'native' | 'wasm'
  /** The run folder. */
  readonly runDir: string
  /** What is learnt. */
  readonly task: TaskConfig
  /** What is trained. */
  readonly model: ModelConfig
  /** Options of `createRenderer`; by default plain ChatML, or with a model's `path` the template that came with it. */
  readonly renderer: CoreOptions
  /** The warm start. */
  readonly sft: SftConfig
  /** What learns from preferences, between the two others; `batchSize` counts pairs. */
  readonly dpo: DpoConfig
  /** The reinforcement phase. */
  readonly grpo: GrpoConfig
  /** The measurements. */
  readonly eval: EvalConfig
  /** Writes a checkpoint every so many steps of a phase besides the end of it; 0 for never. */
  readonly checkpointEverySteps: number
}

/** What a finished run reports; `fulmar train --json` prints it. */
export interface TrainResult {
  /** Share of held-out problems solved after the warm start, in [0, 1]. */
  readonly passRateBefore: number
  /** The same after GRPO. */
  readonly passRateAfter: number
  /** Held-out problems behind both rates. */
  readonly numProblems: number
  /** Mean wall time of a GRPO step. */
  readonly secondsPerStep: number
  /** Sampled tokens per second of GRPO. */
  readonly tokensPerSecond: number
  /** The run folder. */
  readonly runDir: string
}

/**
 * Checks unknown JSON and fills in the defaults.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key (it names the nearest known one) or a value outside a closed
 * set; `MALFORMED` for a value of the wrong type; `OUT_OF_RANGE` for a number outside its range.
 *
 * @example
 * ```ts
 * import { checkTrainConfig } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const config = checkTrainConfig({ seed: 7, grpo: { steps: 10 } })
 * assert.equal(config.grpo.groupSize, 8)
 * assert.equal(config.runDir, 'runs/sumDigits-seed7')
 * assert.throws(() => checkTrainConfig({ grpo: { groupsize: 8 } }), /did you mean 'groupSize'/)
 * ```
 */
export function checkTrainConfig(json: unknown): TrainConfig {
  const reader = new ConfigReader('config', json)
  const seed = reader.integer('seed', { min: 0, fallback: 0 })
  const task = readTask(reader)
  const config: TrainConfig = {
    seed,
    backend: reader.oneOf('backend', ['native', 'wasm'], 'native'),
    runDir: reader.text('runDir', `runs/${task.name}-seed${seed}`),
    task,
    model: readModel(reader),
    renderer: reader.object('renderer'),
    sft: readSft(reader.section('sft')),
    dpo: readDpo(reader.section('dpo')),
    grpo: readGrpo(reader.section('grpo')),
    eval: readEval(reader.section('eval')),
    checkpointEverySteps: reader.integer('checkpointEverySteps', { min: 0, fallback: 50 }),
  }
  reader.end()
  return config
}

function readModel(config: ConfigReader): ModelConfig {
  const { path: given, ...shape } = config.object('model')
  const reader = config.section('model')
  const dtype = reader.oneOf('dtype', ['f32', 'bf16'], 'f32')
  if (given === undefined) return { ...shape, dtype }
  const path = reader.text('path', '')
  reader.end()
  return { path, dtype }
}

function readTask(config: ConfigReader): TaskConfig {
  const options = config.object('task')
  const reader = config.section('task')
  const name = reader.text('name', 'sumDigits')
  return name === 'sumDigits' ? readSumDigits(reader) : { ...options, name }
}

function readSumDigits(reader: ConfigReader): TaskConfig {
  const min = reader.integer('min', { min: 0, max: NUMBER_MAX, fallback: 10 })
  const task: TaskConfig = {
    name: 'sumDigits',
    numbers: reader.range('numbers', { min: 1, max: 16, fallback: [2, 2] }),
    min,
    max: reader.integer('max', { min, max: NUMBER_MAX, fallback: Math.max(99, min) }),
    prompt: reader.oneOf('prompt', ['contract', 'short'], 'short'),
  }
  reader.end()
  return task
}

function readSft(reader: ConfigReader): SftConfig {
  const sft: SftConfig = {
    steps: reader.integer('steps', { min: 0, fallback: 300 }),
    batchSize: reader.integer('batchSize', { min: 1, fallback: 64 }),
    learningRate: reader.number('learningRate', { above: 0, fallback: 1e-3 }),
    warmupSteps: reader.integer('warmupSteps', { min: 0, fallback: 20 }),
    finalFraction: reader.number('finalFraction', { min: 0, max: 1, fallback: 1 }),
    maxGradNorm: reader.number('maxGradNorm', { above: 0, fallback: 1 }),
    optimizer: reader.object('optimizer'),
  }
  reader.end()
  return sft
}

function readDpo(reader: ConfigReader): DpoConfig {
  const dpo: DpoConfig = {
    steps: reader.integer('steps', { min: 0, fallback: 0 }),
    batchSize: reader.integer('batchSize', { min: 1, fallback: 8 }),
    learningRate: reader.number('learningRate', { above: 0, fallback: 1e-5 }),
    warmupSteps: reader.integer('warmupSteps', { min: 0, fallback: 0 }),
    finalFraction: reader.number('finalFraction', { min: 0, max: 1, fallback: 0.1 }),
    maxGradNorm: reader.number('maxGradNorm', { above: 0, fallback: 1 }),
    pairs: reader.text('pairs', 'pairs.jsonl'),
    loss: reader.object('loss'),
    optimizer: reader.object('optimizer'),
  }
  reader.end()
  return dpo
}

function readGrpo(reader: ConfigReader): GrpoConfig {
  const grpo: GrpoConfig = {
    recipe: reader.oneOf('recipe', ['grpo', 'expertIteration'], 'grpo'),
    numExperts: reader.integer('numExperts', { min: 1, fallback: 1 }),
    steps: reader.integer('steps', { min: 0, fallback: 400 }),
    promptsPerStep: reader.integer('promptsPerStep', { min: 1, fallback: 32 }),
    groupSize: reader.integer('groupSize', { min: 1, fallback: 8 }),
    maxTokens: reader.integer('maxTokens', { min: 1, fallback: 24 }),
    maxTurns: reader.integer('maxTurns', { min: 0, fallback: 0 }),
    maxRolloutTokens: reader.integer('maxRolloutTokens', { min: 0, fallback: 0 }),
    offPolicySteps: reader.integer('offPolicySteps', { min: 0, fallback: 0 }),
    windowFraction: reader.number('windowFraction', { min: 0, max: 1, fallback: 0.3 }),
    dynamicSampling: reader.boolean('dynamicSampling', false),
    tokensPerPass: reader.integer('tokensPerPass', { min: 0, fallback: 0 }),
    reference: reader.boolean('reference', true),
    temperature: reader.number('temperature', { min: 0, fallback: 1 }),
    topK: reader.integer('topK', { min: 0, fallback: 0 }),
    topP: reader.number('topP', { above: 0, max: 1, fallback: 1 }),
    stopStrings: readStopStrings(reader),
    learningRate: reader.number('learningRate', { above: 0, fallback: 3e-4 }),
    warmupSteps: reader.integer('warmupSteps', { min: 0, fallback: 20 }),
    finalFraction: reader.number('finalFraction', { min: 0, max: 1, fallback: 0.1 }),
    stdNormalize: reader.boolean('stdNormalize', false),
    maxGradNorm: reader.number('maxGradNorm', { above: 0, fallback: 1 }),
    loss: reader.object('loss'),
    optimizer: reader.object('optimizer'),
  }
  reader.end()
  return grpo
}

function readStopStrings(reader: ConfigReader): readonly string[] {
  const strings = reader.list('stopStrings') as readonly string[]
  new StopStrings(strings)
  return strings
}

function readEval(reader: ConfigReader): EvalConfig {
  const evaluation: EvalConfig = {
    numProblems: reader.integer('numProblems', { min: 1, fallback: 200 }),
    everySteps: reader.integer('everySteps', { min: 0, fallback: 50 }),
    temperature: reader.number('temperature', { min: 0, fallback: 1 }),
    stopAtPassRate: reader.number('stopAtPassRate', { min: 0, max: 1, fallback: 0 }),
  }
  reader.end()
  return evaluation
}

const NUMBER_MAX = 999_999
