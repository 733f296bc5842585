/** The shape of a decoder, in the words of Hugging Face's `config.json`. */

/**
 * The shape of a decoder. The names are those of `config.json`, so a file of that name can be passed as it is; keys
 * that do not concern the shape are ignored.
 */
export interface DecoderConfig {
  /** The family: Qwen2 has biases on its query, key and value projections, Qwen3 normalises its query and key heads, Llama neither. */
  readonly model_type: 'llama' | 'qwen2' | 'qwen3'
  /** Ids in the vocabulary. */
  readonly vocab_size: number
  /** Width of the residual stream. */
  readonly hidden_size: number
  /** Width of the feed-forward layer. */
  readonly intermediate_size: number
  /** Layers. */
  readonly num_hidden_layers: number
  /** Query heads. */
  readonly num_attention_heads: number
  /**
   * Key/value heads; divides the query heads.
   * @default num_attention_heads
   */
  readonly num_key_value_heads?: number
  /**
   * Width of a head, even.
   * @default hidden_size / num_attention_heads
   */
  readonly head_dim?: number
  /**
   * Longest sequence, in tokens.
   * @default 2048
   */
  readonly max_position_embeddings?: number
  /**
   * Added to the mean square of a normalisation.
   * @default 1e-6
   */
  readonly rms_norm_eps?: number
  /**
   * Base of the rotary angles.
   * @default 10000
   */
  readonly rope_theta?: number
  /**
   * If true, the output head is the embedding table.
   * @default false
   */
  readonly tie_word_embeddings?: boolean
  /**
   * Standard deviation of fresh weights.
   * @default 0.02
   */
  readonly initializer_range?: number
  /** Everything else that a `config.json` may hold. */
  readonly [key: string]: unknown
}

/**
 * Shape of a low-rank adapter (https://arxiv.org/abs/2106.09685), with the keys of PEFT's `adapter_config.json`: each
 * projection is `x W^T + lora_alpha / r (x A^T) B^T`, of which `A` and `B` are trained. Keys that concern neither shape nor strength are ignored, variants
 * that are not built are refused.
 */
export interface LoraConfig {
  /**
   * Rank, from 1 to the narrower side of each projection.
   * @default 8
   */
  readonly r?: number
  /**
   * Strength, > 0.
   * @default 8
   */
  readonly lora_alpha?: number
  /**
   * If true, divides the strength by the root of the rank, not by the rank
   * (https://arxiv.org/abs/2312.03732).
   * @default false
   */
  readonly use_rslora?: boolean
  /**
   * A list of the projections `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`, `down_proj`; a regular
   * expression of whole names; or `'all-linear'`.
   * @default `['q_proj', 'v_proj']`
   */
  readonly target_modules?: readonly string[] | string
  /** Everything else that an `adapter_config.json` may hold. */
  readonly [key: string]: unknown
}
