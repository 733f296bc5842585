import type { DecoderConfig } from '../../src/model/index.js'

/** A decoder that steps in well under a millisecond. */
export const TINY: DecoderConfig = {
  model_type: 'qwen2',
  vocab_size: 23,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  initializer_range: 0.2,
}
