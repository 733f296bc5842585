/** Adapter, optimizer and other parts that recipes make for a model. */

import { checkKnownKeys, describeValue, FulmarError, field } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import { AdamW, type AdamWOptions, Decoder, type Optimizer } from '../model/index.js'
import { ADAMW_KEYS } from '../model/optimizer.js'
import type { DrawMethod } from '../objective/index.js'
import { Rollouter, type RollouterOptions } from '../rollout/index.js'
import { ROLLOUTER_KEYS } from '../rollout/rollouter-options.js'
import type { DefaultRates } from './default-rates.js'
import { type AdapterOptions, loraConfig, Model } from './model.js'
import type { Reference } from './reference.js'
import { ROLLOUT_TRAINING_KEYS, type RolloutTrainingOptions } from './rollout-training.js'

/** Options of recipes that take a model. */
export interface ModelTrainingOptions {
  /** Model to train: see `loadModel` and `createModel`. The caller disposes it. */
  readonly model: Model
  /**
   * Adds an adapter of this shape and trains only that; not for a model that has one.
   * @default all weights are trained, or the adapter that the model has
   */
  readonly lora?: AdapterOptions
  /**
   * Learning rate, unless `schedule` is given.
   * @default that of the recipe: larger for an adapter
   */
  readonly learningRate?: number
  /**
   * Other options of `AdamW`.
   * @default those of `AdamW`
   */
  readonly optimizer?: Omit<AdamWOptions, 'learningRate'>
  /**
   * Seed of the adapter's initial weights, the order of samples and every draw.
   * @default 0
   */
  readonly seed?: number
}

/** Options of recipes over rollouts that take a model, with those of {@link Rollouter}. */
export interface ModelRolloutOptions<Sample>
  extends ModelTrainingOptions,
    Omit<RollouterOptions<Sample>, 'policy' | 'renderer' | 'maxTokens' | 'seed' | 'clock'>,
    Omit<
      RolloutTrainingOptions<Sample>,
      'policy' | 'decoder' | 'rollouter' | 'optimizer' | 'promptsPerStep' | 'steps'
    > {
  /**
   * Maximum number of tokens of a completion, including the stop token.
   * @default 256
   */
  readonly maxTokens?: number
  /**
   * Weights that rollouts are sampled with, as `weights` of `EngineOptions`: `q8` samples faster, and `grpo` corrects for the
   * difference.
   * @default 'same'
   */
  readonly rolloutWeights?: 'same' | 'q8'
  /**
   * Dtype of the keys and values that sampling caches, as `kvCacheDtype` of `EngineOptions`: `bf16` takes half the memory, and
   * `grpo` corrects for the difference.
   * @default 'same'
   */
  readonly rolloutKvCacheDtype?: 'same' | 'bf16'
  /** Speculative tokens of rollouts, as `speculativeTokens` of `EngineOptions`. @default 0 */
  readonly speculativeTokens?: number
  /** Way from a distribution to a token in rollouts. @default 'inverse' */
  readonly drawMethod?: DrawMethod
  /**
   * Most bytes of activations that sampling keeps for the forward pass of the update, as `activationBytesMax` of `EngineOptions`.
   * @default 0
   */
  readonly activationBytesMax?: number
  /**
   * Groups per step.
   * @default 8
   */
  readonly promptsPerStep?: number
  /**
   * Index of the first step after the run.
   * @default 100
   */
  readonly steps?: number
}

/** Options of recipes over rows that take a model and a reference. */
export interface ModelReferenceOptions extends ModelTrainingOptions {
  /**
   * Frozen reference policy.
   * @default the weights without the adapter if `lora` adds one; else a copy of the model, which doubles the
   * memory
   */
  readonly reference?: Reference
  /**
   * Rows per step.
   * @default 8
   */
  readonly batchSize?: number
  /**
   * Passes over the rows.
   * @default 1
   */
  readonly epochs?: number
  /**
   * Index of the first step after the run, instead of `epochs`; must be given with a data set.
   * @default as many as `epochs` takes
   */
  readonly steps?: number
}

/** @internal The keys of {@link ModelTrainingOptions}. */
export const MODEL_TRAINING_KEYS = ['model', 'lora', 'learningRate', 'optimizer', 'seed'] as const

/** @internal Returns true if a recipe was given a model instead of the parts. */
export function isOfModel(options: unknown): options is ModelTrainingOptions {
  return typeof options === 'object' && options !== null && 'model' in options
}

/**
 * @internal Checks at once what would otherwise fail later in the recipe.
 * @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME`; `INCOMPATIBLE` for `lora` if the model has an adapter.
 */
export function checkModelTraining({ model, lora, optimizer = {} }: ModelTrainingOptions): void {
  if (!(model instanceof Model)) {
    const detail = `options.model must be a Model, as loadModel gives it: got ${describeValue(model)}`
    throw new FulmarError('MALFORMED', detail)
  }
  if (lora !== undefined) checkAdapter(model, lora)
  const known = ADAMW_KEYS.filter((key) => key !== 'learningRate')
  checkKnownKeys('options.optimizer', optimizer, known)
}

function checkAdapter({ decoder }: Model, lora: AdapterOptions): void {
  loraConfig(lora)
  if (!decoder.hasAdapter) return
  const rule = 'options.lora must be left out for a model with an adapter, which is trained further'
  const remedy = "for a new one, first save the model with { adapter: 'merged' } and load it again"
  throw new FulmarError('INCOMPATIBLE', `${rule}: got a rank of ${lora.rank ?? 8}; ${remedy}`)
}

/** @internal Runs a recipe with an optimizer of the model's weights, or of the adapter that it adds. */
export async function* trainModel<Step>(
  { model, lora, learningRate, optimizer: others, seed = 0 }: ModelTrainingOptions,
  rates: DefaultRates,
  run: (optimizer: Optimizer) => AsyncGenerator<Step, void, undefined>,
): AsyncGenerator<Step, void, undefined> {
  const { decoder } = model
  if (lora) await decoder.addLora(loraConfig(lora), { seed })
  const rate = learningRate ?? (decoder.hasAdapter ? rates.adapter : rates.all)
  const optimizer = new AdamW(decoder, { ...others, learningRate: rate })
  try {
    yield* run(optimizer)
  } finally {
    optimizer[Symbol.dispose]()
  }
}

/** @internal Runs a recipe over rollouts of a model. `ownKeys` are the options of the recipe itself. */
export function trainModelOnRollouts<Sample, Step>(
  options: ModelRolloutOptions<Sample>,
  { ownKeys, rates }: { readonly ownKeys: readonly string[]; readonly rates: DefaultRates },
  recipe: (parts: RolloutTrainingOptions<Sample>) => AsyncGenerator<Step, void, undefined>,
): AsyncGenerator<Step, void, undefined> {
  const forRollouter = ROLLOUTER_KEYS.filter((key) => key !== 'policy' && key !== 'renderer')
  const forTraining = ROLLOUT_TRAINING_KEYS.known.filter((key) => !PARTS.includes(key))
  const known = [...MODEL_TRAINING_KEYS, ...forRollouter, ...forTraining, ...SAMPLER_KEYS, ...ownKeys]
  checkKnownKeys('options', options, known, ['model', 'task'])
  checkModelTraining(options)
  const { model, task, maxTokens = 256, promptsPerStep = 8, steps = 100 } = options
  const { renderer } = model
  const { rolloutWeights: weights = 'same', speculativeTokens = 0, drawMethod = 'inverse' } = options
  const { rolloutKvCacheDtype: kvCacheDtype = 'same', activationBytesMax = 0 } = options
  const sampler = { weights, kvCacheDtype, speculativeTokens, drawMethod, activationBytesMax }
  const policy = model.policyWith(sampler)
  const rollouter = new Rollouter({ ...only(options, forRollouter), policy, renderer, task, maxTokens })
  const own = only(options, [...forTraining, ...ownKeys])
  const parts = { ...own, policy, rollouter, promptsPerStep, steps }
  return trainModel(options, rates, (optimizer) => recipe({ ...parts, optimizer }))
}

/** Options of a recipe for the policy that it samples with. */
const SAMPLER_KEYS = [
  'rolloutWeights',
  'rolloutKvCacheDtype',
  'speculativeTokens',
  'drawMethod',
  'activationBytesMax',
]

/** Parts of a recipe that a model replaces. */
const PARTS: readonly string[] = ['policy', 'decoder', 'rollouter', 'optimizer']

/** @internal Returns the options with these keys. */
export function only<Options extends object>(options: Options, keys: readonly string[]): Partial<Options> {
  return Object.fromEntries(Object.entries(options).filter(([key]) => keys.includes(key))) as Partial<Options>
}

/**
 * @internal Returns the number of steps of `epochs` passes over rows.
 * @throws {FulmarError} `MALFORMED` for a data set, which has no end; `OUT_OF_RANGE`.
 */
export function stepsOf(
  rows: readonly unknown[] | Dataset<unknown>,
  {
    steps,
    epochs = 1,
    batchSize,
  }: {
    readonly steps?: number | undefined
    readonly epochs?: number | undefined
    readonly batchSize: number
  },
): number {
  if (steps !== undefined) return steps
  field.integer({ min: 1 }).read('options.epochs', epochs)
  if (Array.isArray(rows)) return Math.ceil((epochs * rows.length) / batchSize)
  throw new FulmarError(
    'MALFORMED',
    'options.steps must be given with a data set, which has no end: it is undefined',
  )
}

/**
 * @internal Runs a recipe over rows, or a file of them, with a reference: the weights without the new
 * adapter, or a copy.
 */
export function trainNearReference<Row, Step>(
  options: ModelReferenceOptions,
  { rows, read, rates }: ReferencedRows<Row>,
  recipe: (parts: ReferenceParts<Row>) => AsyncGenerator<Step, void, undefined>,
): AsyncGenerator<Step, void, undefined> {
  checkModelTraining(options)
  const { model, lora, batchSize = 8, epochs, steps } = options
  return (async function* () {
    const taken = typeof rows === 'string' ? await read(rows) : rows
    const counts = { batchSize, steps: stepsOf(taken, { steps, epochs, batchSize }) }
    const copy =
      options.reference === undefined && lora === undefined ? await copyOf(model.decoder) : undefined
    const reference = options.reference ?? copy ?? 'base'
    try {
      yield* trainModel(options, rates, (optimizer) =>
        recipe({ rows: taken, reference, optimizer, ...counts }),
      )
    } finally {
      copy?.[Symbol.dispose]()
    }
  })()
}

interface ReferencedRows<Row> {
  readonly rows: Dataset<Row> | readonly Row[] | string
  readonly read: (path: string) => Promise<readonly Row[]>
  readonly rates: DefaultRates
}

interface ReferenceParts<Row> {
  readonly rows: Dataset<Row> | readonly Row[]
  readonly reference: Reference
  readonly optimizer: Optimizer
  readonly batchSize: number
  readonly steps: number
}

/** Copies the weights and the adapter as a frozen decoder. */
async function copyOf(decoder: Decoder): Promise<Decoder> {
  const copy = Decoder.fromSafetensors(decoder.config, await decoder.toSafetensors(), {
    dtype: decoder.dtype,
    matmulPrecision: decoder.matmulPrecision,
    device: decoder.device,
  })
  if (decoder.hasAdapter) await copy.loadLora(await decoder.loraConfig(), await decoder.loraToSafetensors())
  return copy
}
