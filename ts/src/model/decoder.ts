/** A decoder language model: weights, log-probs, gradients. */

import {
  callAsync,
  checkKnownKeys,
  checkTypedArray,
  type DeviceName,
  FulmarError,
  Handle,
  type PlacedDevice,
  placeDevice,
} from '../core/index.js'
import { type RawDecoder, raw } from '../native/index.js'
import type { DecoderConfig, LoraConfig } from './config.js'
import {
  checkScoreOptions,
  type ForwardPassOptions,
  type ScoreOptions,
  type Scores,
  type TopScores,
} from './scores.js'
import { checkTokenBatch, configJson, type TokenBatch } from './token-batch.js'
import {
  checkLoadOptions,
  type LoadOptions,
  type MatmulPrecision,
  type PlacedWeights,
  type WeightDtype,
  type WeightOptions,
} from './weight-options.js'

/** A head that reads one number: `score` as in transformers, `v_head` as in TRL. */
export type ScalarHead = 'score' | 'v_head'

/**
 * A decoder of the Llama, Qwen2 or Qwen3 shape (RMSNorm, rotary embedding, grouped-query attention, SwiGLU).
 *
 * Results are the same bits whatever the batch and the number of threads; the log-probs of sampled tokens are those
 * of {@link Decoder.forward}. Sums run on worker threads (in WebAssembly: on the calling thread). Sequences with
 * equal beginnings share their computation. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using decoder = Decoder.fromSeed(
 *   { model_type: 'qwen2', vocab_size: 7, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 },
 *   { seed: 42 },
 * )
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) }
 * const before = await decoder.forward(batch)
 * await decoder.backward(Float32Array.of(0, -0.5, -0.5)) // of the mean negative log-prob
 * await optimizer.step()
 * const after = await decoder.score(batch)
 * assert.ok(after.logProb[2] > before.logProb[2])
 * ```
 */
export class Decoder {
  /** Dtype of the stored weights. */
  readonly dtype: WeightDtype
  readonly #native: Handle<RawDecoder>
  #device: PlacedDevice
  #matmulPrecision: MatmulPrecision
  #firstVersion: number
  #version: number
  #numTrainable: number
  #hasAdapter: boolean

  private constructor(make: () => RawDecoder, { device, version, matmulPrecision }: PlacedWeights) {
    this.#device = device
    this.#native = new Handle('Decoder', make)
    this.#native.call((decoder) => decoder.moveTo(device))
    this.dtype = this.#native.call((decoder) => decoder.dtype()) as WeightDtype
    if (matmulPrecision !== undefined) this.#native.call((decoder) => decoder.multiplyIn(matmulPrecision))
    this.#matmulPrecision = this.#native.call((decoder) => decoder.matmulPrecision()) as MatmulPrecision
    this.#firstVersion = version
    this.#version = version
    const numLoraParameters = this.#native.call((decoder) => decoder.numLoraParameters())
    this.#hasAdapter = typeof numLoraParameters === 'number'
    this.#numTrainable = numLoraParameters ?? this.numParameters
  }

  /**
   * Fresh weights from a seed.
   *
   * @example
   * ```ts
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1, dtype: 'bf16' })
   * using same = Decoder.fromSafetensors(shape, await decoder.toSafetensors()) // a file of BF16, widened
   * const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
   * assert.deepEqual(await decoder.score(batch), await same.score(batch))
   * ```
   * @throws {FulmarError} `OUT_OF_RANGE` or `LIMIT_EXCEEDED` for an impossible shape, naming the field; `MALFORMED` for
   * a field that is missing or of another type.
   */
  static fromSeed(config: DecoderConfig, options: WeightOptions & { readonly seed: number }): Decoder {
    checkKnownKeys('options', options, ['dtype', 'device', 'matmulPrecision', 'seed'], ['seed'])
    const { seed, ...others } = options
    const { dtype, placed } = checkLoadOptions(others)
    return new Decoder(() => new raw.Decoder(configJson(config), seed, dtype), placed)
  }

  /**
   * Loads the weights of a safetensors file in memory, under Hugging Face's names. `bytes` are copied.
   * @throws {FulmarError} `CORRUPT` for a damaged file; `INCOMPATIBLE` for tensors of another architecture;
   * `NON_FINITE` for a NaN or an infinity; and those of {@link Decoder.fromSeed}.
   */
  static fromSafetensors(config: DecoderConfig, bytes: Uint8Array, options: LoadOptions = {}): Decoder {
    const { dtype, placed } = checkLoadOptions(options)
    const json = configJson(config)
    checkTypedArray('bytes', bytes, Uint8Array)
    return new Decoder(() => raw.Decoder.fromSafetensors(json, bytes, dtype), placed)
  }

  /**
   * The model of a folder as Hugging Face lays it out: `config.json`, and `model.safetensors` or the files that
   * `model.safetensors.index.json` lists. Families Llama, Qwen2 and Qwen3; weights are stored as `dtype` whatever the files hold. An adapter
   * of PEFT in the folder is added to the weights as an adapter; its tokenizer, chat template and `generation_config.json` are kept for
   * {@link Decoder.saveFolder}. Where there is a `manifest.json` of {@link Decoder.saveFolder}, every file is checked. Native only.
   * @throws {FulmarError} `IO` if a file cannot be read; `CORRUPT` or `MALFORMED` if one is damaged, missing, or a pipe or a device; `INCOMPATIBLE` for another
   * architecture or a part that is not built; `UNAVAILABLE` in WebAssembly. The sentence names the file.
   *
   * @example
   * ```ts no-run
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * using decoder = await Decoder.fromFolder('./SmolLM2-135M-Instruct')
   * assert.equal(decoder.config.hidden_size, 576)
   * ```
   */
  static async fromFolder(folder: string, options: LoadOptions = {}): Promise<Decoder> {
    const { dtype, placed } = checkLoadOptions(options)
    const { fromFolder } = raw.Decoder
    if (!fromFolder) throw noFiles()
    const decoder = await callAsync(() => fromFolder(folder, dtype))
    return new Decoder(() => decoder, placed)
  }

  /**
   * The model of a GGUF file in memory, of family llama, qwen2 or qwen3: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and Q6_K,
   * widened to `dtype`.
   * @throws {FulmarError} `CORRUPT` for a damaged file; `UNKNOWN_NAME` for another kind of block; `INCOMPATIBLE` for another family.
   *
   * @example
   * ```ts no-run
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   * import { readFile } from 'node:fs/promises'
   *
   * using decoder = await Decoder.fromGguf(await readFile('SmolLM2-135M-Instruct.Q4_1.gguf'))
   * assert.equal(decoder.config.num_hidden_layers, 30)
   * ```
   */
  static async fromGguf(bytes: Uint8Array, options: LoadOptions = {}): Promise<Decoder> {
    const { dtype, placed } = checkLoadOptions(options)
    checkTypedArray('bytes', bytes, Uint8Array)
    const decoder = await callAsync(() => raw.Decoder.fromGguf(bytes, dtype))
    return new Decoder(() => decoder, placed)
  }

  /** The shape, with every default filled in. */
  get config(): DecoderConfig {
    return JSON.parse(this.#native.call((decoder) => decoder.configJson())) as DecoderConfig
  }

  /** Device of the weights and of the computation. */
  get device(): PlacedDevice {
    return this.#device
  }

  /**
   * @internal Moves the weights, and drops gradients. Optimizers and engines of the decoder must be made afterwards.
   * @throws {FulmarError} `UNAVAILABLE`; `OUT_OF_MEMORY` if the weights do not fit.
   */
  moveTo(device: DeviceName): void {
    const placed = placeDevice(device)
    this.#native.call((decoder) => decoder.moveTo(placed))
    this.#device = placed
  }

  /** Precision of the operands of products. */
  get matmulPrecision(): MatmulPrecision {
    return this.#matmulPrecision
  }

  /** @internal Computes products in another precision from now on. @throws {FulmarError} `UNKNOWN_NAME`. */
  multiplyIn(precision: MatmulPrecision): void {
    this.#native.call((decoder) => decoder.multiplyIn(precision))
    this.#matmulPrecision = precision
  }

  /** Number of weights. */
  get numParameters(): number {
    return this.#native.call((decoder) => decoder.numParameters())
  }

  /** Number of weights that are trained: all, or those of the adapter. */
  get numTrainable(): number {
    return this.#numTrainable
  }

  /** True if there is an adapter. */
  get hasAdapter(): boolean {
    return this.#hasAdapter
  }

  /**
   * Number of changes of the weights by an optimizer, or by an adapter loaded or merged: 0 at first, or the
   * version of a resumed run.
   */
  get version(): number {
    return this.#version
  }

  /** @internal Version of these weights at which the core counted 0 changes of them. */
  get firstVersion(): number {
    return this.#firstVersion
  }

  /**
   * Returns a copy of the weights and the adapter with this {@link Decoder.version}, without gradients: the weights that a
   * sampler serves while this decoder is trained. Wait for it before the next step of the optimizer.
   * @throws {FulmarError} `OUT_OF_MEMORY` if the copy does not fit.
   *
   * @example
   * ```ts
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1 })
   * await decoder.addLora({ r: 2 }, { seed: 0 })
   * using snapshot = await decoder.snapshot()
   * assert.deepEqual(await snapshot.loraToSafetensors(), await decoder.loraToSafetensors())
   * assert.equal(snapshot.version, decoder.version)
   * ```
   */
  async snapshot(): Promise<Decoder> {
    const version = this.#version
    const copy = await this.#native.callAsync((decoder) => decoder.snapshot())
    return new Decoder(() => copy, { device: this.device, version })
  }

  /** The weights as a safetensors file of their dtype; the same weights give the same bytes. */
  toSafetensors(): Promise<Uint8Array> {
    return this.#native.callAsync((decoder) => decoder.toSafetensors())
  }

  /**
   * Writes the model into `folder` as transformers, PEFT and vLLM read it: `config.json` with all keys that it was loaded with,
   * `model.safetensors` in the weights' dtype, `generation_config.json`, the tokenizer and chat template that {@link Decoder.fromFolder} found,
   * an adapter as PEFT's files, and a `manifest.json` with a checksum of each. A failure leaves the older files. To serve an adapter as one
   * model with its base, call {@link Decoder.mergeLora} first. Native only.
   * @throws {FulmarError} `IO` if the system refuses; `NON_FINITE` for weights that are not finite; `UNAVAILABLE` in WebAssembly.
   */
  saveFolder(folder: string): Promise<void> {
    return this.#native.callAsync((decoder) => {
      if (!decoder.saveFolder) throw noFiles()
      return decoder.saveFolder(folder)
    })
  }

  /**
   * Writes the adapter alone into `folder`, as PEFT's `adapter_config.json` and `adapter_model.safetensors` with a `manifest.json`.
   * Native only.
   * @throws {FulmarError} `EMPTY` without an adapter; `IO` if the system refuses; `UNAVAILABLE` in WebAssembly.
   *
   * @example
   * ```ts no-run
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * using decoder = await Decoder.fromFolder('./SmolLM2-135M-Instruct')
   * await decoder.addLora({ r: 8 }, { seed: 0 })
   * await decoder.saveAdapter('./adapter')
   * using again = await Decoder.fromFolder('./SmolLM2-135M-Instruct')
   * await again.loadAdapter('./adapter')
   * assert.deepEqual(await again.loraToSafetensors(), await decoder.loraToSafetensors())
   * ```
   */
  saveAdapter(folder: string): Promise<void> {
    return this.#native.callAsync((decoder) => {
      if (!decoder.saveAdapter) throw noFiles()
      return decoder.saveAdapter(folder)
    })
  }

  /**
   * As {@link Decoder.loadLora}, with the two files of PEFT in `folder`. Native only.
   * @throws {FulmarError} As {@link Decoder.loadLora}; `IO` or `CORRUPT` naming the file; `UNAVAILABLE` in WebAssembly.
   */
  async loadAdapter(folder: string): Promise<void> {
    const numTrainable = await this.#native.callAsync((decoder) => {
      if (!decoder.loadAdapter) throw noFiles()
      return decoder.loadAdapter(folder)
    })
    this.#adapt(numTrainable)
    this.#version += 1
  }

  /**
   * Freezes all weights and adds an adapter to train, which changes no result before its first step. Create the optimizer afterwards.
   * @throws {FulmarError} `INCOMPATIBLE` if there is one already; `OUT_OF_RANGE`, `UNKNOWN_NAME` or `EMPTY` naming the key.
   *
   * @example
   * ```ts
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1 })
   * await decoder.addLora({ r: 2, target_modules: ['q_proj', 'v_proj'] }, { seed: 0 })
   * assert.equal(decoder.numTrainable, 2 * 2 * (8 + 8))
   * const bytes = await decoder.loraToSafetensors() // PEFT's adapter_model.safetensors
   * const config = await decoder.loraConfig() // and its adapter_config.json
   * await decoder.mergeLora()
   * await decoder.loadLora(config, bytes)
   * ```
   */
  async addLora(config: LoraConfig, options: { readonly seed: number }): Promise<void> {
    checkKnownKeys('options', options, ['seed'], ['seed'])
    const { seed } = options
    const json = configJson(config)
    this.#adapt(await this.#native.callAsync((decoder) => decoder.addLora(json, seed)))
  }

  /**
   * As {@link Decoder.addLora}, with the weights of PEFT's `adapter_model.safetensors`.
   * @throws {FulmarError} As {@link Decoder.addLora}; `CORRUPT` for a damaged file; `INCOMPATIBLE` for other tensors.
   */
  async loadLora(config: LoraConfig, bytes: Uint8Array): Promise<void> {
    await this.restoreLora(config, bytes)
    this.#firstVersion += 1
    this.#version += 1
  }

  /** @internal As {@link Decoder.loadLora}, of an adapter that belongs to this version of the weights. */
  async restoreLora(config: LoraConfig, bytes: Uint8Array): Promise<void> {
    const json = configJson(config)
    checkTypedArray('bytes', bytes, Uint8Array)
    this.#adapt(await this.#native.callAsync((decoder) => decoder.loadLora(json, bytes)))
    // The core counted the load as a change of the weights.
    this.#firstVersion -= 1
  }

  #adapt(numTrainable: number): void {
    this.#numTrainable = numTrainable
    this.#hasAdapter = true
  }

  /**
   * Adds the adapter to the weights, which are trained again, and drops it.
   * @throws {FulmarError} `EMPTY` without an adapter.
   */
  async mergeLora(): Promise<void> {
    await this.#native.callAsync((decoder) => decoder.mergeLora())
    this.#version += 1
    this.#numTrainable = this.numParameters
    this.#hasAdapter = false
  }

  /**
   * The adapter as PEFT's `adapter_model.safetensors`.
   * @throws {FulmarError} `EMPTY` without an adapter.
   */
  loraToSafetensors(): Promise<Uint8Array> {
    return this.#native.callAsync((decoder) => decoder.loraToSafetensors())
  }

  /**
   * The adapter's shape, in the form of PEFT's `adapter_config.json`.
   * @throws {FulmarError} `EMPTY` without an adapter.
   */
  async loraConfig(): Promise<LoraConfig> {
    return JSON.parse(await this.#native.callAsync((decoder) => decoder.loraConfigJson())) as LoraConfig
  }

  /**
   * Log-probs and entropies of the masked tokens, and the likeliest ids in their places if asked for; remembers nothing.
   * @throws {FulmarError} `SHAPE_MISMATCH`, `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for a bad batch; `OUT_OF_RANGE` if `topK` is
   * above the vocabulary, `LIMIT_EXCEEDED` for too many ids in all; `NON_FINITE` if weights or activations are too large or not finite;
   * `EMPTY` for `adapter: false` without an adapter.
   *
   * @example
   * ```ts
   * import { Decoder } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1 })
   * const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
   * const { logProb, topIds, topLogProb } = await decoder.score(batch, { topK: 5 })
   * assert.equal(topLogProb[5 + topIds.subarray(5).indexOf(2)], logProb[1])
   * ```
   */
  async score(batch: TokenBatch, options: ScoreOptions = {}): Promise<TopScores> {
    const { topK, adapter } = checkScoreOptions(options)
    const { ids, offsets, mask, positions } = checkTokenBatch(batch)
    const scores = await this.#native.callAsync((decoder) =>
      adapter
        ? decoder.score(ids, offsets, mask, positions, topK)
        : decoder.scoreBase(ids, offsets, mask, positions),
    )
    const { logProb, entropy, topIds, topLogProb } = scores
    return { logProb, entropy, topIds, topLogProb }
  }

  /**
   * As {@link Decoder.score}, and keeps what {@link Decoder.backward} needs.
   * @throws {FulmarError} As {@link Decoder.score}; `UNKNOWN_NAME` for an unknown option.
   */
  async forward(batch: TokenBatch, options: ForwardPassOptions = {}): Promise<Scores> {
    checkKnownKeys('options', options, ['logSumSqProb'])
    const { ids, offsets, mask, positions } = checkTokenBatch(batch)
    if (!options.logSumSqProb)
      return await this.#native.callAsync((decoder) => decoder.forward(ids, offsets, mask, positions))
    const all = await this.#native.callAsync((decoder) =>
      decoder.forwardWithSquares(ids, offsets, mask, positions),
    )
    const part = (index: number) => all.slice(index * ids.length, (index + 1) * ids.length)
    return { logProb: part(0), entropy: part(1), logSumSqProb: part(2) }
  }

  /**
   * Adds to the gradients those of a loss with these derivatives with respect to the log-probs (and entropies) of the
   * last {@link Decoder.forward}. Shape `[T]`; ignored where the mask was 0.
   * @throws {FulmarError} `CLOSED` without a forward pass before; `SHAPE_MISMATCH` for another length; `NON_FINITE`.
   */
  async backward(gradLogProb: Float32Array, gradEntropy?: Float32Array): Promise<void> {
    checkTypedArray('gradLogProb', gradLogProb, Float32Array)
    if (gradEntropy !== undefined) checkTypedArray('gradEntropy', gradEntropy, Float32Array)
    await this.#native.callAsync((decoder) => decoder.backward(gradLogProb, gradEntropy))
  }

  /**
   * Returns a decoder with these weights and a new head of one output; this decoder is unchanged. `score` replaces the head over the
   * vocabulary, as in transformers' models for sequence classification with one label: a reward model. `v_head` is an additional head, as in
   * TRL's models with a value head. Both are saved and loaded with the weights.
   * @throws {FulmarError} `INCOMPATIBLE` if there is such a head or an adapter already.
   *
   * @example
   * ```ts
   * import { AdamW, Decoder } from 'fulmar'
   * import { BradleyTerryLoss } from 'fulmar/objective'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 9, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using policy = Decoder.fromSeed(shape, { seed: 1 })
   * using model = await policy.withScalarHead('score', { seed: 2 })
   * using optimizer = new AdamW(model, { learningRate: 0.01 })
   * const offsets = Uint32Array.of(0, 3, 6)
   * const batch = { ids: Uint32Array.of(1, 2, 3, 1, 2, 4), offsets, mask: Uint8Array.of(0, 0, 1, 0, 0, 1) } // last tokens
   * const reward = (values: Float32Array) => [values.subarray(2, 3), values.subarray(5, 6)] as const
   * const losses: number[] = []
   * for (let step = 0; step < 5; step++) {
   *   const [chosen, rejected] = reward(await model.forwardValues(batch))
   *   const { loss, gradChosen, gradRejected } = new BradleyTerryLoss().forward({ chosen, rejected })
   *   await model.backwardValues(Float32Array.of(0, 0, gradChosen[0], 0, 0, gradRejected[0]))
   *   await optimizer.step()
   *   losses.push(loss)
   * }
   * assert.ok(losses[4] < losses[0])
   * ```
   */
  async withScalarHead(head: ScalarHead, options: { readonly seed: number }): Promise<Decoder> {
    checkKnownKeys('options', options, ['seed'], ['seed'])
    const { seed } = options
    const json = JSON.stringify(head)
    const decoder = await this.#native.callAsync((native) => native.withScalarHead(json, seed))
    return new Decoder(() => decoder, { device: this.device, version: this.#version })
  }

  /**
   * Numbers that the scalar head reads: at each masked token that of all tokens up to it, 0 elsewhere. A sequence's first token may be masked
   * too; for the reward of a sequence mask its last token. Shape `[T]`. Remembers nothing.
   * @throws {FulmarError} As {@link Decoder.score}; `INCOMPATIBLE` without such a head.
   */
  async values(batch: TokenBatch): Promise<Float32Array> {
    const { ids, offsets, mask, positions } = checkTokenBatch(batch)
    return await this.#native.callAsync((decoder) => decoder.values(ids, offsets, mask, positions))
  }

  /**
   * As {@link Decoder.values}, and keeps what {@link Decoder.backwardValues} needs.
   * @throws {FulmarError} As {@link Decoder.values}.
   */
  async forwardValues(batch: TokenBatch): Promise<Float32Array> {
    const { ids, offsets, mask, positions } = checkTokenBatch(batch)
    return await this.#native.callAsync((decoder) => decoder.forwardValues(ids, offsets, mask, positions))
  }

  /**
   * Adds to the gradients those of a loss with these derivatives with respect to the values of the last {@link Decoder.forwardValues}.
   * Shape `[T]`; ignored where the mask was 0.
   * @throws {FulmarError} As {@link Decoder.backward}.
   */
  async backwardValues(gradValue: Float32Array): Promise<void> {
    checkTypedArray('gradValue', gradValue, Float32Array)
    await this.#native.callAsync((decoder) => decoder.backwardValues(gradValue))
  }

  /**
   * If true, later forward passes keep only the inputs of each layer, and backward passes recompute the rest:
   * the same bits for about a third more time, with the activations of one layer in memory instead of all.
   * Frees the activations of the last forward pass.
   */
  recomputeActivations(recomputes: boolean): Promise<void> {
    return this.#native.callAsync((decoder) => decoder.recomputeActivations(recomputes))
  }

  /** Bytes that the activations of the last forward pass and the scratch of its backward pass hold. Waits for a pass that runs. */
  get traceBytes(): number {
    return this.#native.call((decoder) => decoder.traceBytes())
  }

  /** Rows of the last {@link Decoder.forward} that an engine with `activationBytesMax` had kept: all of the pass, or 0. */
  get numKeptRows(): number {
    return this.#native.call((decoder) => decoder.numKeptRows())
  }

  /**
   * Floating-point operations of a forward pass over one sequence of `length` tokens; a training step takes three times as many.
   * @throws {FulmarError} `OUT_OF_RANGE` if `length` is not an integer >= 0.
   */
  flops(length: number): number {
    return this.#native.call((decoder) => decoder.flops(length))
  }

  /** @internal The names of the files of its folder, but for those of weights. */
  folderFileNames(): Promise<readonly string[]> {
    return this.#native.callAsync((decoder) => decoder.folderFileNames())
  }

  /** @internal One of these files. */
  folderFile(name: string): Promise<Uint8Array> {
    return this.#native.callAsync((decoder) => decoder.folderFile(name))
  }

  /** @internal Keeps a file of a folder for the next one, if it is of a kind that belongs to a model. */
  keepFile(name: string, bytes: Uint8Array): void {
    try {
      this.#native.call((decoder) => decoder.setExtraFile(name, bytes))
    } catch (error) {
      // Other files, such as a README, are not kept.
      if (!(error instanceof FulmarError) || error.code !== 'UNKNOWN_NAME') throw error
    }
  }

  /** @internal Lets an optimiser or a generation reach the native object. */
  withNative<R>(body: (decoder: RawDecoder) => R): R {
    return this.#native.call(body)
  }

  /** @internal Called by an optimiser after it changed the weights. */
  countUpdate(): void {
    this.#version += 1
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

function noFiles(): FulmarError {
  return new FulmarError('UNAVAILABLE', 'folders of models must be used natively: got WebAssembly')
}
