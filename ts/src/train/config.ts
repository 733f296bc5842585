/**
 * The configuration of a training run: what `fulmar train CONFIG` reads and what `config.json` in a run folder holds.
 *
 * `checkTrainConfig` turns unknown JSON into a {@link TrainConfig} with every default filled in. Options of the Rust
 * core (`model`, `loss`, `optimizer`) pass through unchanged: it has their defaults.
 */

import {
  checkKnownKeys,
  type DeviceName,
  describeValue,
  type Field,
  FulmarError,
  field,
  type JsonSchema,
  namesDevice,
  nearestName,
} from '../core/index.js'
import { type LoraConfig, type MatmulPrecision, StopStrings, type WeightDtype } from '../model/index.js'
import { ADAMW_KEYS } from '../model/optimizer.js'
import {
  DPOLoss,
  type DPOLossOptions,
  type DrawMethod,
  GRPOLoss,
  type GRPOLossOptions,
  SFTLoss,
  type SFTLossOptions,
} from '../objective/index.js'
import { ACTIVATION_BYTES_MAX, checkSpeculation, SAMPLER } from '../policy/decoder.js'
import { ML_GYM } from './ml-gym-config.js'
import { withPretrainedDefaults } from './pretrained-defaults.js'
import { TASK_KINDS, TASK_NAMES, type TaskFactory, taskFactory } from './task-factory.js'

/** Options that the Rust core checks: a plain JSON object, empty for its defaults. */
export type CoreOptions = Readonly<Record<string, unknown>>

/**
 * Name of the task and its options. Those of `sumDigits` are checked here: `numbers` (fewest and most in a
 * problem), `min` and `max` (of a number), `prompt` (`short`: one line that a tiny policy can learn;
 * `contract`: with a worked example). Other tasks check theirs.
 */
export type TaskConfig = CoreOptions & {
  /** Name in `taskFactories` or in the `tasks` of the call; with a `kind` the name in metrics and of the run folder. */
  readonly name: string
  /**
   * `agent`: the task is an `agentTask` of `fulmar/agent`, by the options of that function that JSON can hold. `samples` and
   * `validationSamples` may be paths of files of JSON lines. The agent posts its reward.
   *
   * `mlgym`: the task is an `mlGym` of `fulmar/torchrl`, likewise. `tasks` and `validationTasks` hold names of tasks that ship
   * (`"fitTable"`, or `{ "name": "fitTable", "seed": 3 }`) and folders of others (`{ "folder": "tasks/mine" }`).
   * @default the task is one of a name
   */
  readonly kind?: 'agent' | 'mlgym'
}

/**
 * Model to train: a new decoder, by the options of `Decoder` (`hidden_size` ...); or an existing one, by its
 * `path`: a Hugging Face folder or a GGUF file, which includes the tokenizer.
 */
export type ModelConfig = CoreOptions & {
  /** Dtype of the stored weights; optimizer state stays in f32. */
  readonly dtype: WeightDtype
  /**
   * Precision of products, for rollouts and training alike: `bf16` takes down to half the time on AMD's processors with
   * AVX512-BF16, and more time on others. A resumed run must have that of its checkpoint.
   */
  readonly matmulPrecision: MatmulPrecision
  /** Device of the weights: `cpu`, or `cuda:0` for weights in `f32`. A run may resume on another one. */
  readonly device: DeviceName
  /** Folder or file of the initial model. */
  readonly path?: string
  /**
   * Trains a low-rank adapter and freezes the weights: PEFT's `r`, `lora_alpha`, `use_rslora`,
   * `target_modules`, `exclude_modules` and `layers_to_transform`, with the defaults of `addLora`.
   * Initialized from the seed of the run.
   * @default all weights are trained
   */
  readonly lora?: LoraConfig
}

/** The supervised warm start. */
export interface SftConfig {
  /** Number of optimizer steps; 0 skips the phase. */
  readonly steps: number
  /** Worked examples per step. */
  readonly batchSize: number
  /** Peak learning rate. */
  readonly learningRate: number
  /** Number of warmup steps to the peak rate. */
  readonly warmupSteps: number
  /** Share of the peak rate at the end of a linear decay. */
  readonly finalFraction: number
  /** Maximum L2 norm of the gradient; larger ones are scaled down. */
  readonly maxGradNorm: number
  /** Other options of `AdamW`, such as `{ "weightDecay": 0.1 }`. */
  readonly optimizer: CoreOptions
}

/** Training on pairs of answers. */
export interface DpoConfig extends SftConfig {
  /** A file of JSON lines, each with the messages `prompt`, `chosen` and `rejected`. */
  readonly pairs: string
  /** Options of `DPOLoss`, such as `{ "beta": 0.1 }`. */
  readonly loss: CoreOptions
}

/** Training on rollouts. */
export interface GrpoConfig {
  /** Learning from a group: `grpo` compares its members, `expertIteration` imitates the best of them. */
  readonly recipe: 'grpo' | 'expertIteration'
  /** Number of group members that `expertIteration` imitates. */
  readonly numExperts: number
  /** Number of optimizer steps; 0 skips the phase. */
  readonly steps: number
  /** Problems per step. */
  readonly promptsPerStep: number
  /** Rollouts per problem. */
  readonly groupSize: number
  /** Maximum number of tokens of an answer, including the stop token. */
  readonly maxTokens: number
  /** Maximum number of turns of a rollout; 0 for the task's own limit. */
  readonly maxTurns: number
  /** Maximum number of tokens of a rollout, including prompts; 0 for no limit. */
  readonly maxRolloutTokens: number
  /**
   * Number of steps that rollouts run ahead of training; 0 is synchronous, and the only mode that a resume
   * repeats bit for bit.
   */
  readonly offPolicySteps: number
  /** Share of the groups under way within which finished ones overtake slower ones; 0 for strict order. */
  readonly windowFraction: number
  /** If true, draws more problems until `promptsPerStep` groups have answers with different rewards. */
  readonly dynamicSampling: boolean
  /**
   * Maximum number of tokens of one pass through the decoder; 0 for the whole step at once. Longer samples
   * are dropped.
   */
  readonly tokensPerPass: number
  /**
   * If true, keeps the policy before GRPO as reference, to measure the divergence and for a `klToRef` of the
   * loss.
   */
  readonly reference: boolean
  /**
   * Weights that rollouts are sampled with: `same`, the policy's own, or `q8`, those rounded to 8 bits, which is faster; the loss
   * of `grpo` then corrects for the difference.
   */
  readonly rolloutWeights: 'same' | 'q8'
  /**
   * Dtype of the keys and values that sampling caches: `same`, or `bf16`, half the memory; the loss of `grpo` then corrects for the
   * difference.
   */
  readonly rolloutKvCacheDtype: 'same' | 'bf16'
  /**
   * Most speculative tokens of a rollout in a step of its engine, up to 8; 0 for none. Rollouts are the same. Only with
   * `rolloutWeights: "same"`.
   */
  readonly speculativeTokens: number
  /** Way from a distribution to a token in rollouts: with `gumbelMax` most speculative tokens are accepted. */
  readonly drawMethod: DrawMethod
  /** Most bytes of activations that sampling keeps, so that the forward pass of the update computes the head alone; 0 for none. */
  readonly activationBytesMax: number
  /** Sampling temperature of the rollouts. */
  readonly temperature: number
  /** Number of most likely tokens to sample from; 0 means all. */
  readonly topK: number
  /** Probability mass of the most likely tokens to sample from. */
  readonly topP: number
  /** Texts that end an answer, in addition to the renderer's stop tokens. */
  readonly stopStrings: readonly string[]
  /** Peak learning rate. */
  readonly learningRate: number
  /** Number of warmup steps to the peak rate. */
  readonly warmupSteps: number
  /** Share of the peak rate at the end of a linear decay. */
  readonly finalFraction: number
  /** If true, divides each group's advantages by their standard deviation. */
  readonly stdNormalize: boolean
  /** Maximum L2 norm of the gradient; larger ones are scaled down. */
  readonly maxGradNorm: number
  /** Options of `GRPOLoss`, such as `{ "clipEpsilon": 0.2 }`; of `SFTLoss` for `expertIteration`. */
  readonly loss: CoreOptions
  /** Other options of `AdamW`. */
  readonly optimizer: CoreOptions
}

/** Evaluation of the policy on held-out problems. */
export interface EvalConfig {
  /** Number of held-out problems per evaluation. */
  readonly numProblems: number
  /** Number of GRPO steps between evaluations, besides those before and after; 0 for none. */
  readonly everySteps: number
  /** Sampling temperature of the evaluation. */
  readonly temperature: number
  /** Pass rate at which the run ends early; 0 for never. */
  readonly stopAtPassRate: number
}

/** Rollouts in `samples.jsonl`, for `fulmar dashboard`. */
export interface RecordConfig {
  /** The lowest and the highest reward of one group a step, or every rollout. */
  readonly rollouts: 'extremes' | 'all'
  /** If true, with every token: its text, origin, log-prob and weight version. About 20 bytes a token. */
  readonly tokens: boolean
}

/** Configuration of a whole run. Every field is set; see {@link checkTrainConfig} for the defaults. */
export interface TrainConfig {
  /** Seed of weights, data and draws. A non-negative safe integer. */
  readonly seed: number
  /** Build of the core that computes. */
  readonly backend: 'native' | 'wasm'
  /** The run folder. */
  readonly runDir: string
  /** Task to learn. */
  readonly task: TaskConfig
  /** Model to train. */
  readonly model: ModelConfig
  /** Options of `createRenderer`; by default plain ChatML, or with a model's `path` the template that came with it. */
  readonly renderer: CoreOptions
  /** The warm start. */
  readonly sft: SftConfig
  /** Training on preferences, between the two other phases; `batchSize` counts pairs. */
  readonly dpo: DpoConfig
  /** The reinforcement phase. */
  readonly grpo: GrpoConfig
  /** The measurements. */
  readonly eval: EvalConfig
  /** The rollouts that the run folder keeps. */
  readonly record: RecordConfig
  /** Number of steps of a phase between checkpoints, besides the one at its end; 0 for none. */
  readonly checkpointEverySteps: number
}

/** Options of {@link checkTrainConfig}. */
export interface TrainConfigOptions {
  /**
   * Tasks that the configuration may name besides those of `taskFactories`; if given, other names throw.
   * @default unknown: a name near one of `taskFactories` throws as a spelling mistake, others are left to
   * `runTraining`
   */
  readonly tasks?: Readonly<Record<string, TaskFactory>>
}

/** Result of a finished run; `fulmar train --json` prints it. */
export interface TrainResult {
  /** Share of held-out problems solved after the warm start, in [0, 1]. */
  readonly passRateBefore: number
  /** Share of held-out problems solved after GRPO. */
  readonly passRateAfter: number
  /** Number of held-out problems of both rates. */
  readonly numProblems: number
  /** Mean wall time of a GRPO step. */
  readonly secondsPerStep: number
  /** Sampled tokens per second of GRPO. */
  readonly tokensPerSecond: number
  /** The run folder. */
  readonly runDir: string
}

/**
 * Checks unknown JSON and fills in the defaults. Options of losses are checked by the core before anything is trained.
 * With `model.path`, a pretrained model, the defaults are those of the recipes: no warm start, smaller rates, longer answers.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key (it names the nearest known one), a value outside a closed set, or a
 * task that is neither one of `taskFactories` nor one of `tasks`, see there; `MALFORMED` for a value of the wrong type; `OUT_OF_RANGE` for a
 * number outside its range.
 *
 * @example
 * ```ts
 * import { checkTrainConfig } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const config = checkTrainConfig({ seed: 7, grpo: { steps: 10 } })
 * assert.equal(config.grpo.groupSize, 8)
 * assert.equal(config.runDir, 'runs/sumDigits-seed7')
 * assert.equal(checkTrainConfig({ model: { path: './SmolLM2-135M-Instruct' } }).grpo.learningRate, 1e-6)
 * assert.throws(() => checkTrainConfig({ grpo: { groupsize: 8 } }), /did you mean 'groupSize'/)
 * assert.throws(() => checkTrainConfig({ sft: { lr: 1e-3 } }), /did you mean 'learningRate'/)
 * ```
 */
export function checkTrainConfig(json: unknown, options: TrainConfigOptions = {}): TrainConfig {
  checkKnownKeys('options', options, ['tasks'])
  const { task: given, model, runDir, ...config } = CONFIG.read('config', withPretrainedDefaults(json))
  const task = readTask(given, options.tasks)
  new StopStrings(config.grpo.stopStrings)
  checkLosses(config)
  checkSpeculation('config.grpo.speculativeTokens', config.grpo.rolloutWeights, config.grpo.speculativeTokens)
  for (const phase of ['sft', 'dpo', 'grpo'] as const)
    checkKnownKeys(`config.${phase}.optimizer`, config[phase].optimizer, ADAMW_KEYS)
  return {
    ...config,
    task,
    model: readModel(model),
    runDir: runDir ?? `runs/${task.name}-seed${config.seed}`,
  }
}

/**
 * Returns the JSON Schema of a configuration, for editors and other programs; `fulmar train --schema` prints
 * it. It comes from the description that {@link checkTrainConfig} uses.
 *
 * @example
 * ```ts
 * import { trainConfigSchema } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const { properties } = JSON.parse(JSON.stringify(trainConfigSchema()))
 * assert.deepEqual(properties.grpo.properties.groupSize, { type: 'integer', minimum: 1, default: 8 })
 * ```
 */
export function trainConfigSchema(): JsonSchema {
  const { properties, ...rest } = CONFIG.schema
  const others = TASK_NAMES.filter((name) => name !== 'sumDigits')
  const task = {
    anyOf: [
      SUM_DIGITS.schema,
      { type: 'object', properties: { name: { enum: others } }, required: ['name'] },
      { ...AGENT.schema, required: ['kind', 'command', 'samples'] },
      { ...ML_GYM.schema, required: ['kind', 'tasks'] },
    ],
    default: {},
  }
  const model = { type: 'object', properties: MODEL, default: {} }
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Fulmar training configuration',
    ...rest,
    properties: { ...(properties as object), task, model },
  }
}

const NUMBER_MAX = 999_999

const SUM_DIGITS = field.section({
  name: field.oneOf(['sumDigits'], 'sumDigits'),
  numbers: field.range({ min: 1, max: 16, fallback: [2, 2] }),
  min: field.integer({ min: 0, max: NUMBER_MAX, fallback: 10 }),
  max: field.optional(field.integer({ min: 0, max: NUMBER_MAX })),
  prompt: field.oneOf(['contract', 'short'], 'short'),
})

/** Samples, or a file of JSON lines with one each. */
const SAMPLES: Field<string | readonly unknown[]> = {
  read: (place, value) =>
    Array.isArray(value) ? field.list(field.json()).read(place, value) : field.text().read(place, value),
  schema: { anyOf: [field.text().schema, { type: 'array' }] },
}

const AGENT = field.section({
  kind: field.oneOf(['agent'], 'agent'),
  name: field.text('agent'),
  command: field.list(field.text()),
  samples: SAMPLES,
  validationSamples: field.optional(SAMPLES),
  env: field.optional(field.record()),
  processes: field.optional(field.oneOf(['group', 'namespace'])),
  timeoutMs: field.optional(field.integer({ min: 1 })),
  concurrency: field.optional(field.integer({ min: 1 })),
  keepIn: field.optional(field.text()),
})

const KIND = field.oneOf(TASK_KINDS)

const DTYPE = field.oneOf(['f32', 'bf16'], 'f32')

/** Names of modules, or a regular expression that whole names match. */
const MODULES: Field<string | readonly string[]> = {
  read: (place, value) => (typeof value === 'string' ? value : field.list(field.text()).read(place, value)),
  schema: { anyOf: [field.text().schema, { type: 'array', items: field.text().schema }] },
}

const LORA = field.section({
  r: field.optional(field.integer({ min: 1 })),
  lora_alpha: field.optional(field.number({ above: 0 })),
  use_rslora: field.optional(field.boolean(false)),
  target_modules: field.optional(MODULES),
  exclude_modules: field.optional(MODULES),
  layers_to_transform: field.optional(field.list(field.integer({ min: 0 }))),
})

const DEVICE = field.text('cpu')

const MODEL = {
  dtype: DTYPE.schema,
  matmulPrecision: DTYPE.schema,
  device: DEVICE.schema,
  path: field.text().schema,
  lora: LORA.schema,
}

/** Shared fields of the supervised phases, which differ in their defaults. */
const phase = (defaults: {
  readonly steps: number
  readonly learningRate: number
  readonly warmupSteps: number
  readonly finalFraction: number
}) => ({
  steps: field.integer({ min: 0, fallback: defaults.steps }),
  learningRate: field.number({ above: 0, fallback: defaults.learningRate }),
  warmupSteps: field.integer({ min: 0, fallback: defaults.warmupSteps }),
  finalFraction: field.number({ min: 0, max: 1, fallback: defaults.finalFraction }),
  maxGradNorm: field.number({ above: 0, fallback: 1 }),
  optimizer: field.record(),
})

const CONFIG = field.section({
  seed: field.integer({ min: 0, fallback: 0 }),
  backend: field.oneOf(['native', 'wasm'], 'native'),
  runDir: field.optional(field.text()),
  task: field.record(),
  model: field.record(),
  renderer: field.record(),
  sft: field.section({
    ...phase({ steps: 300, learningRate: 1e-3, warmupSteps: 20, finalFraction: 1 }),
    batchSize: field.integer({ min: 1, fallback: 64 }),
  }),
  dpo: field.section({
    ...phase({ steps: 0, learningRate: 1e-5, warmupSteps: 0, finalFraction: 0.1 }),
    batchSize: field.integer({ min: 1, fallback: 8 }),
    pairs: field.text('pairs.jsonl'),
    loss: field.record(),
  }),
  grpo: field.section({
    ...phase({ steps: 400, learningRate: 3e-4, warmupSteps: 20, finalFraction: 0.1 }),
    recipe: field.oneOf(['grpo', 'expertIteration'], 'grpo'),
    numExperts: field.integer({ min: 1, fallback: 1 }),
    promptsPerStep: field.integer({ min: 1, fallback: 32 }),
    groupSize: field.integer({ min: 1, fallback: 8 }),
    maxTokens: field.integer({ min: 1, fallback: 24 }),
    maxTurns: field.integer({ min: 0, fallback: 0 }),
    maxRolloutTokens: field.integer({ min: 0, fallback: 0 }),
    offPolicySteps: field.integer({ min: 0, fallback: 0 }),
    windowFraction: field.number({ min: 0, max: 1, fallback: 0.3 }),
    dynamicSampling: field.boolean(false),
    tokensPerPass: field.integer({ min: 0, fallback: 0 }),
    reference: field.boolean(true),
    rolloutWeights: SAMPLER.weights,
    rolloutKvCacheDtype: SAMPLER.kvCacheDtype,
    speculativeTokens: SAMPLER.speculativeTokens,
    drawMethod: SAMPLER.drawMethod,
    activationBytesMax: ACTIVATION_BYTES_MAX,
    temperature: field.number({ min: 0, fallback: 1 }),
    topK: field.integer({ min: 0, fallback: 0 }),
    topP: field.number({ above: 0, max: 1, fallback: 1 }),
    stopStrings: field.list(field.text()),
    stdNormalize: field.boolean(false),
    loss: field.record(),
  }),
  eval: field.section({
    numProblems: field.integer({ min: 1, fallback: 200 }),
    everySteps: field.integer({ min: 0, fallback: 50 }),
    temperature: field.number({ min: 0, fallback: 1 }),
    stopAtPassRate: field.number({ min: 0, max: 1, fallback: 0 }),
  }),
  record: field.section({
    rollouts: field.oneOf(['extremes', 'all'], 'extremes'),
    tokens: field.boolean(false),
  }),
  checkpointEverySteps: field.integer({ min: 0, fallback: 50 }),
})

/** A new model has a shape, which the core checks; one with a path has only these options. */
function readModel({ lora: given, ...options }: CoreOptions): ModelConfig {
  const weights = {
    dtype: DTYPE.read('config.model.dtype', options.dtype),
    matmulPrecision: DTYPE.read('config.model.matmulPrecision', options.matmulPrecision),
    device: readDevice(options.device),
  }
  const lora = given === undefined ? {} : { lora: withoutAbsent(LORA.read('config.model.lora', given)) }
  if (options.path === undefined) return { ...options, ...weights, ...lora }
  checkKnownKeys('config.model', options, Object.keys(MODEL))
  return { path: field.text().read('config.model.path', options.path), ...weights, ...lora }
}

function readDevice(given: unknown): DeviceName {
  const name = DEVICE.read('config.model.device', given)
  if (name === 'auto' || namesDevice(name)) return name
  throw new FulmarError(
    'UNKNOWN_NAME',
    `config.model.device must be auto, cpu, cuda or cuda:N: got ${describeValue(name)}`,
  )
}

/** Removes the keys whose defaults are in the core. */
function withoutAbsent(options: CoreOptions): CoreOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
}

function readTask(options: CoreOptions, own: TrainConfigOptions['tasks']): TaskConfig {
  if (options.kind !== undefined) {
    const kind = KIND.read('config.task.kind', options.kind)
    return (kind === 'agent' ? AGENT : ML_GYM).read('config.task', options)
  }
  const name = field.text('sumDigits').read('config.task.name', options.name)
  if (own !== undefined || nearestName(name, TASK_NAMES) !== undefined) taskFactory(name, own)
  if (name !== 'sumDigits' || Object.hasOwn(own ?? {}, name)) return { ...options, name }
  const { min, max, ...task } = SUM_DIGITS.read('config.task', options)
  const upTo = field.integer({ min, max: NUMBER_MAX, fallback: Math.max(99, min) })
  return { ...task, min, max: upTo.read('config.task.max', max) }
}

/** Constructs the losses to check their options now, before the warm start. */
function checkLosses({ dpo, grpo }: { readonly dpo: DpoConfig; readonly grpo: GrpoConfig }): void {
  const check = (place: string, make: () => unknown) => {
    try {
      make()
    } catch (error) {
      if (!(error instanceof FulmarError)) throw error
      throw new FulmarError(error.code, `${place}: ${error.message}`, { cause: error })
    }
  }
  check('config.dpo.loss', () => new DPOLoss(dpo.loss as DPOLossOptions))
  check('config.grpo.loss', () =>
    grpo.recipe === 'grpo'
      ? new GRPOLoss(grpo.loss as GRPOLossOptions)
      : new SFTLoss(grpo.loss as SFTLossOptions),
  )
}
