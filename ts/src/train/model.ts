/** Models: decoder, tokenizer, renderer and policy together. */

import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { aborted } from '../async/index.js'
import { assistantMessage } from '../chat/assistant-message.js'
import {
  createRenderer,
  type DisposableRenderer,
  type Message,
  type RendererConfig,
  type ToolSpec,
} from '../chat/index.js'
import { checkKnownKeys, type DeviceName, describeValue, FulmarError, unreadable } from '../core/index.js'
import type { FetchModelOptions } from '../fetch/index.js'
import {
  Decoder,
  type DecoderConfig,
  type LoraConfig,
  type MatmulPrecision,
  type WeightDtype,
} from '../model/index.js'
import type { SamplerOptions } from '../policy/decoder.js'
import { DecoderPolicy, type DecoderPolicyOptions } from '../policy/index.js'
import { nodeDisk } from '../telemetry/disk.js'
import { CharTokenizer, DecodeStream, HfTokenizer } from '../tokenizer/index.js'
import { CHECKPOINT_STATE, loadCheckpoint, saveCheckpoint } from './checkpoint.js'
import { CHECKPOINT_WEIGHTS_BYTES_MAX } from './checkpoint-folder.js'
import { batchOf, conversationTokens } from './training-rows.js'

/** Shape of a decoder that learns small tasks on two cores within minutes: 0.95 M weights. */
export const TINY_DECODER = {
  model_type: 'qwen2',
  hidden_size: 128,
  intermediate_size: 352,
  num_hidden_layers: 5,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 1024,
} as const satisfies Partial<DecoderConfig>

/** Shape of a low-rank adapter (https://arxiv.org/abs/2106.09685). */
export interface AdapterOptions {
  /**
   * Rank, from 1 to the narrower side of each projection.
   * @default 8
   */
  readonly rank?: number
  /**
   * Scaling, above 0: the adapter is multiplied by `alpha / rank`.
   * @default 8
   */
  readonly alpha?: number
  /**
   * Projections: `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`, `down_proj`; `'all-linear'` for all of them; or a pattern of PEFT.
   * @default `['q_proj', 'v_proj']`
   */
  readonly targetModules?: readonly string[] | string
}

/** Options of {@link loadModel}. */
export interface LoadModelOptions {
  /**
   * Dtype of the stored weights; optimizer state stays in f32.
   * @default that of a model that {@link Model.save} wrote; 'f32' for others
   */
  readonly dtype?: WeightDtype
  /**
   * Precision of products, as `matmulPrecision` of `Decoder`.
   * @default that of a model that {@link Model.save} wrote; 'f32' for others
   */
  readonly matmulPrecision?: MatmulPrecision
  /**
   * Device of the weights, as `device` of `Decoder`.
   * @default 'cpu'
   */
  readonly device?: DeviceName
  /**
   * The chat format.
   * @default by the model's chat template; for a model of {@link createModel} ChatML
   */
  readonly renderer?: RendererConfig
  /**
   * Fetching of a model that is given by its name on the hub.
   * @default those of `fetchModel`
   */
  readonly fetch?: FetchModelOptions
}

type ModelWeights = Pick<LoadModelOptions, 'dtype' | 'matmulPrecision' | 'device'>

/** Options of {@link createModel}. */
export interface CreateModelOptions extends Omit<LoadModelOptions, 'fetch'> {
  /** Seed of the weights. A non-negative safe integer. */
  readonly seed: number
}

/** Options of {@link Model.chat}. */
export interface ChatOptions {
  /**
   * Maximum number of tokens of the answer.
   * @default 512, or the remaining positions of the model
   */
  readonly maxTokens?: number
  /**
   * Divisor of the logits before sampling; 0 takes the most likely token.
   * @default 1
   */
  readonly temperature?: number
  /**
   * Probability mass of the most likely tokens to sample from.
   * @default 1
   */
  readonly topP?: number
  /**
   * Seed of the draws.
   * @default 0
   */
  readonly seed?: number
  /**
   * Tools that the model may call; the calls are in the message.
   * @default none
   */
  readonly tools?: readonly ToolSpec[]
  /** Stops the answer. */
  readonly signal?: AbortSignal
}

/** Options of {@link Model.save}. */
export interface SaveModelOptions {
  /**
   * Form of an adapter: `separate` writes PEFT's files next to its base weights, `merged` adds it to the
   * weights first (the model then has no adapter, and its optimizer cannot continue), `alone` writes only the
   * adapter.
   * @default 'separate'
   */
  readonly adapter?: 'separate' | 'merged' | 'alone'
}

/** Default maximum number of tokens of an answer. */
const ANSWER_TOKENS = 512

/** @internal The parts of a {@link Model}. */
export interface ModelParts {
  readonly decoder: Decoder
  readonly tokenizer: CharTokenizer | HfTokenizer
  readonly renderer: DisposableRenderer
  /** Tokenizer files that the decoder does not keep itself, by name. */
  readonly files: Readonly<Record<string, string>>
}

/**
 * A decoder with its tokenizer and chat format, made by {@link loadModel} or {@link createModel}, for all
 * recipes. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { createModel, evaluate, sft, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const task = sumDigits({ prompt: 'short' })
 * for await (const { loss } of sft({ model, task, steps: 2, batchSize: 2 })) assert.ok(loss > 0)
 * const { passRate } = await evaluate({ model, task, numProblems: 2, maxTokens: 4 })
 * assert.equal(passRate, 0)
 * ```
 */
export class Model {
  readonly decoder: Decoder
  readonly tokenizer: CharTokenizer | HfTokenizer
  readonly renderer: DisposableRenderer
  /** Policy that samples from the decoder's current weights. */
  readonly policy: DecoderPolicy
  /** @internal Tokenizer files by name, for a folder of the weights. */
  readonly files: ModelParts['files']
  readonly #owned: readonly Disposable[]

  /** @internal */
  constructor(
    { decoder, tokenizer, renderer, files }: ModelParts,
    owned: readonly Disposable[] = [decoder, renderer, tokenizer],
  ) {
    this.decoder = decoder
    this.tokenizer = tokenizer
    this.renderer = renderer
    this.files = files
    this.#owned = owned
    this.policy = this.policyWith({})
  }

  /** @internal Returns a policy with these options of sampling. */
  policyWith(
    sampler: Partial<SamplerOptions> & Pick<DecoderPolicyOptions, 'activationBytesMax'>,
  ): DecoderPolicy {
    const { decoder, tokenizer } = this
    return new DecoderPolicy(decoder, { ...sampler, decodeStream: () => new DecodeStream(tokenizer) })
  }

  /**
   * Answers a text or a conversation.
   * @throws {FulmarError} As `Renderer.render` and `Policy.generate`; `ABORTED` if the signal fires.
   *
   * @example
   * ```ts
   * import { createModel } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const model = createModel({ seed: 1 })
   * const { role, content } = await model.chat('Hello', { maxTokens: 4 })
   * assert.equal(role, 'assistant') // untrained, its answer makes no sense
   * assert.equal(typeof content, 'string')
   * ```
   */
  async chat(messages: string | readonly Message[], options: ChatOptions = {}): Promise<Message> {
    checkKnownKeys('options', options, ['maxTokens', 'temperature', 'topP', 'seed', 'tools', 'signal'])
    const { temperature = 1, topP = 1, seed = 0, tools = [], signal } = options
    const said = typeof messages === 'string' ? [{ role: 'user', content: messages }] : messages
    const { ids: promptIds } = this.renderer.render(said, { tools, addGenerationPrompt: true })
    const { max_position_embeddings: positions = ANSWER_TOKENS } = this.decoder.config
    const { maxTokens = Math.max(1, Math.min(ANSWER_TOKENS, positions - promptIds.length)) } = options
    const { ids, finishReason } = await this.policy.generate({
      ...{ requestId: 'chat', promptIds, seed, maxTokens, temperature, topP },
      stopIds: this.renderer.stopIds,
      ...(signal && { signal }),
    })
    if (finishReason === 'abort') throw aborted(signal)
    return assistantMessage(this.renderer.parse(ids, { tools }))
  }

  /**
   * Returns a model with these weights and a new head `score` instead of the language-model head, for
   * `rewardModel`. This model is unchanged; the new one shares its tokenizer and renderer, so dispose it first.
   * @throws {FulmarError} As `Decoder.withScalarHead`.
   *
   * @example
   * ```ts
   * import { createModel } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const judge = await createModel({ seed: 1 }).withScalarHead({ seed: 2 })
   * const [reward] = await judge.rewards([[{ role: 'user', content: 'Hello' }]])
   * assert.ok(Number.isFinite(reward)) // untrained, it means nothing
   * ```
   */
  async withScalarHead(options: { readonly seed: number }): Promise<Model> {
    checkKnownKeys('options', options, ['seed'], ['seed'])
    const decoder = await this.decoder.withScalarHead('score', options)
    const { tokenizer, renderer, files } = this
    return new Model({ decoder, tokenizer, renderer, files }, [decoder])
  }

  /**
   * Scores conversations by the scalar head at their last token. Shape `[conversations.length]`.
   * @throws {FulmarError} `INCOMPATIBLE` without such a head; as `Renderer.render`.
   */
  async rewards(conversations: readonly (readonly Message[])[]): Promise<Float32Array> {
    if (!Array.isArray(conversations)) {
      const detail = `conversations must be a list of lists of messages: got ${describeValue(conversations)}`
      throw new FulmarError('MALFORMED', detail)
    }
    if (conversations.length === 0) return new Float32Array()
    const batch = batchOf(conversations.map((messages) => conversationTokens(this.renderer, messages)))
    const values = await this.decoder.values(batch)
    return Float32Array.from(conversations, (_, row) => values[(batch.offsets[row + 1] ?? 0) - 1] ?? 0)
  }

  /**
   * Writes the model to `folder` in the form that transformers, PEFT and vLLM read: weights, `config.json`,
   * tokenizer, chat template, `generation_config.json`, adapter. {@link loadModel} reads it again, bit for
   * bit. The write is atomic.
   * @throws {FulmarError} `IO` if the system fails; `NON_FINITE` for weights that are not finite; `EMPTY` for
   * `alone` without an adapter.
   */
  async save(folder: string, options: SaveModelOptions = {}): Promise<void> {
    checkKnownKeys('options', options, ['adapter'])
    const { adapter = 'separate' } = options
    if (adapter === 'alone') return await this.decoder.saveAdapter(folder)
    if (adapter !== 'separate' && adapter !== 'merged') {
      const detail = `options.adapter must be 'separate', 'merged' or 'alone': got ${describeValue(adapter)}`
      throw new FulmarError('UNKNOWN_NAME', detail)
    }
    if (adapter === 'merged' && this.decoder.hasAdapter) await this.decoder.mergeLora()
    await saveCheckpoint({ folder, decoder: this.decoder, files: this.files })
  }

  /** Frees the native memory. */
  [Symbol.dispose](): void {
    for (const part of this.#owned) part[Symbol.dispose]()
  }
}

/**
 * Loads a model from a Hugging Face folder, a folder of {@link Model.save}, a GGUF file, or by its name on the Hugging Face
 * hub: `owner/name` such as `HuggingFaceTB/SmolLM2-135M-Instruct`, or `owner/name/FILE.gguf`. A model that is whole in the hub's
 * cache is used without a question to the hub; another is fetched, as by `fetchModel`.
 *
 * @throws {FulmarError} `IO` if there is no such folder, file or name; those of `fetchModel`, `Decoder.fromFolder`,
 * `Decoder.fromGguf`, `HfTokenizer.fromFolder` and `createRenderer`.
 *
 * @example
 * ```ts
 * import { createModel, loadModel } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const model = createModel({ seed: 1 })
 * const folder = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'model')
 * await model.save(folder)
 * const again = await loadModel(folder)
 * assert.deepEqual(await again.chat('Hello', { maxTokens: 4 }), await model.chat('Hello', { maxTokens: 4 }))
 * ```
 */
export async function loadModel(path: string, options: LoadModelOptions = {}): Promise<Model> {
  checkKnownKeys('options', options, ['dtype', 'matmulPrecision', 'device', 'renderer', 'fetch'])
  if (typeof path !== 'string')
    throw new FulmarError('MALFORMED', `path must be a text: got ${describeValue(path)}`)
  const { fetch = {}, ...others } = options
  return new Model(await readParts(await placeOf(path, fetch), others))
}

/**
 * Creates a model with random weights and a token for each character, for experiments: no download, no file.
 * Missing keys of `shape` come from {@link TINY_DECODER}.
 *
 * @throws {FulmarError} The errors of `Decoder.fromSeed` and `createRenderer`.
 *
 * @example
 * ```ts
 * import { createModel } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { num_hidden_layers: 2 })
 * assert.equal(model.decoder.config.num_hidden_layers, 2)
 * assert.equal(model.renderer.name, 'chatml')
 * ```
 */
export function createModel(options: CreateModelOptions, shape: Partial<DecoderConfig> = {}): Model {
  checkKnownKeys('options', options, ['seed', 'dtype', 'matmulPrecision', 'device', 'renderer'], ['seed'])
  const { renderer, ...weights } = options
  const tokenizer = new CharTokenizer()
  const decoder = Decoder.fromSeed(tinyShape(tokenizer, shape), weights)
  return new Model(charParts(decoder, tokenizer, renderer))
}

/** @internal Returns the shape of a decoder over characters. */
export function tinyShape(tokenizer: CharTokenizer, shape: Partial<DecoderConfig>): DecoderConfig {
  return { ...TINY_DECODER, ...shape, vocab_size: tokenizer.vocabSize }
}

/** @internal Returns the parts of a model over characters. */
export function charParts(
  decoder: Decoder,
  tokenizer: CharTokenizer,
  renderer: RendererConfig = { name: 'chatml' },
): ModelParts {
  const files = { [CHAR_TOKENIZER]: `${JSON.stringify(tokenizer)}\n` }
  return { decoder, tokenizer, renderer: createRenderer(tokenizer, renderer), files }
}

const CHAR_TOKENIZER = 'tokenizer.fulmar.json'

/**
 * @internal Returns the parts of a model in a folder or a GGUF file; if `held` is given, it replaces the
 * weights.
 * @throws {FulmarError} As {@link loadModel}.
 */
export async function readParts(
  path: string,
  { renderer, ...weights }: Omit<LoadModelOptions, 'fetch'>,
  held?: Decoder,
): Promise<ModelParts> {
  const about = await stat(path).catch((cause: unknown) => {
    throw new FulmarError('IO', `the model must be a folder or a file: got ${path}`, { cause })
  })
  if (!about.isDirectory()) return await readGguf(path, weights, renderer, held)
  const text = await readFile(join(path, CHAR_TOKENIZER), 'utf8').catch(() => undefined)
  if (text !== undefined) {
    const decoder = held ?? (await readDecoder(path, weights))
    return charParts(decoder, CharTokenizer.fromJSON(JSON.parse(text)), renderer)
  }
  await checkHoldsModel(path)
  const tokenizer = await HfTokenizer.fromFolder(path)
  const decoder = held ?? (await readDecoder(path, weights))
  return { decoder, tokenizer, renderer: createRenderer(tokenizer, renderer ?? { name: 'auto' }), files: {} }
}

/** Refuses the folder of an adapter, which needs its base. */
async function checkHoldsModel(folder: string): Promise<void> {
  const names = await readdir(folder)
  if (names.includes('config.json') || !names.includes('adapter_config.json')) return
  const remedy = 'load its base, and the adapter by model.decoder.loadAdapter'
  throw new FulmarError('INCOMPATIBLE', `${folder} must hold a model: got an adapter alone; ${remedy}`)
}

/**
 * Reads the weights of a folder; those saved by this package keep dtype, precision and version, and WebAssembly can
 * read them too.
 */
async function readDecoder(folder: string, weights: ModelWeights): Promise<Decoder> {
  const isOurs = (await readdir(folder)).includes(CHECKPOINT_STATE)
  if (!isOurs || weights.dtype !== undefined) return await Decoder.fromFolder(folder, weights)
  const { decoder } = await loadCheckpoint(folder)
  if (weights.matmulPrecision !== undefined) decoder.multiplyIn(weights.matmulPrecision)
  if (weights.device !== undefined) decoder.moveTo(weights.device)
  return decoder
}

async function readGguf(
  path: string,
  weights: ModelWeights,
  renderer: RendererConfig = { name: 'auto' },
  held: Decoder | undefined,
): Promise<ModelParts> {
  const bytes = await nodeDisk.read(path, CHECKPOINT_WEIGHTS_BYTES_MAX)
  if (bytes === undefined) throw unreadable(path)
  const tokenizer = HfTokenizer.fromGguf(bytes)
  const { chatTemplate } = tokenizer
  const files = {
    'tokenizer.json': `${JSON.stringify(tokenizer)}\n`,
    'tokenizer_config.json': `${JSON.stringify(tokenizer.specialTokens)}\n`,
    ...(chatTemplate !== undefined && { 'chat_template.jinja': chatTemplate }),
  }
  const decoder = held ?? (await Decoder.fromGguf(bytes, weights))
  return { decoder, tokenizer, renderer: createRenderer(tokenizer, renderer), files }
}

/** Returns the folder or file of a path, or of a name on the hub: from its cache if the model is whole there, else fetched. */
async function placeOf(path: string, options: FetchModelOptions): Promise<string> {
  const isThere = await stat(path).then(
    () => true,
    () => false,
  )
  if (isThere) return path
  const { cachedModel, fetchModel, isModelName } = await import('../fetch/index.js')
  if (!isModelName(path))
    throw new FulmarError('IO', `model must be a folder, a file, or a name on the hub: got ${path}`)
  return (await cachedModel(path, options)) ?? (await fetchModel(path, options))
}

/** @internal Converts an adapter to PEFT's keys. @throws {FulmarError} `UNKNOWN_NAME` for an unknown key. */
export function loraConfig(options: AdapterOptions): LoraConfig {
  checkKnownKeys('lora', options, ['rank', 'alpha', 'targetModules'])
  const { rank: r, alpha: lora_alpha, targetModules: target_modules } = options
  return {
    ...(r !== undefined && { r }),
    ...(lora_alpha !== undefined && { lora_alpha }),
    ...(target_modules !== undefined && { target_modules }),
  }
}
