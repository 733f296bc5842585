/** A decoder language model: weights, log-probs, gradients. */

import { Handle } from '../core/index.js'
import { type RawDecoder, raw } from '../native/index.js'
import type { DecoderConfig } from './config.js'

/** Sequences in flat arrays: sequence `s` is `ids[offsets[s]..offsets[s + 1]]`. */
export interface TokenBatch {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Bounds of the sequences, from 0 to T. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where the log-prob of that token is wanted, else 0; 0 at each sequence's first token. Shape `[T]`. */
  readonly mask: Uint8Array
}

/** What a decoder says about a {@link TokenBatch}; 0 where its mask is 0. */
export interface Scores {
  /** Natural log-prob of each token after those before it. Shape `[T]`. */
  readonly logProb: Float32Array
  /** Entropy in nats of the distribution of each token. Shape `[T]`. */
  readonly entropy: Float32Array
}

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
  readonly #native: Handle<RawDecoder>
  #version = 0

  private constructor(make: () => RawDecoder) {
    this.#native = new Handle('Decoder', make)
  }

  /**
   * Fresh weights from a seed.
   * @throws {FulmarError} `OUT_OF_RANGE` or `LIMIT_EXCEEDED` for an impossible shape, naming the field; `MALFORMED` for
   * a field that is missing or of another type.
   */
  static fromSeed(config: DecoderConfig, { seed }: { readonly seed: number }): Decoder {
    return new Decoder(() => new raw.Decoder(JSON.stringify(config), seed))
  }

  /**
   * The weights of a safetensors file in memory, under Hugging Face's names. `bytes` are copied.
   * `version` is what these weights count as, for a run that is resumed.
   * @throws {FulmarError} `CORRUPT` for a damaged file; `INCOMPATIBLE` for tensors of another architecture;
   * `NON_FINITE` for a weight that is no number; and those of {@link Decoder.fromSeed}.
   */
  static fromSafetensors(
    config: DecoderConfig,
    bytes: Uint8Array,
    { version = 0 }: { readonly version?: number } = {},
  ): Decoder {
    const decoder = new Decoder(() => raw.Decoder.fromSafetensors(JSON.stringify(config), bytes))
    decoder.#version = version
    return decoder
  }

  /** The shape, with every default filled in. */
  get config(): DecoderConfig {
    return JSON.parse(this.#native.call((decoder) => decoder.configJson())) as DecoderConfig
  }

  /** Number of weights. */
  get numParameters(): number {
    return this.#native.call((decoder) => decoder.numParameters())
  }

  /** Counts the updates of the weights: 0 as made, or where a resumed run goes on. */
  get version(): number {
    return this.#version
  }

  /** The weights as a safetensors file; the same weights give the same bytes. */
  toSafetensors(): Promise<Uint8Array> {
    return this.#native.callAsync((decoder) => decoder.toSafetensors())
  }

  /**
   * Log-probs and entropies of the masked tokens; remembers nothing.
   * @throws {FulmarError} `SHAPE_MISMATCH`, `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for a bad batch.
   */
  score({ ids, offsets, mask }: TokenBatch): Promise<Scores> {
    return this.#native.callAsync((decoder) => decoder.score(ids, offsets, mask))
  }

  /**
   * As {@link Decoder.score}, and keeps what {@link Decoder.backward} needs.
   * @throws {FulmarError} As {@link Decoder.score}.
   */
  forward({ ids, offsets, mask }: TokenBatch): Promise<Scores> {
    return this.#native.callAsync((decoder) => decoder.forward(ids, offsets, mask))
  }

  /**
   * Adds to the gradients those of a loss with these derivatives with respect to the log-probs (and entropies) of the
   * last {@link Decoder.forward}. Shape `[T]`; ignored where the mask was 0.
   * @throws {FulmarError} `CLOSED` without a forward pass before; `SHAPE_MISMATCH` for another length; `NON_FINITE`.
   */
  backward(gradLogProb: Float32Array, gradEntropy?: Float32Array): Promise<void> {
    return this.#native.callAsync((decoder) => decoder.backward(gradLogProb, gradEntropy))
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
