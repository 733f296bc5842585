/** The decoder: its shape, its weights, generation, the optimiser. */

export type { DecoderConfig, LoraConfig } from './config.js'
export {
  Decoder,
  type ForwardPassOptions,
  type LoadOptions,
  type ScalarHead,
  type ScoreOptions,
  type Scores,
  type TokenBatch,
  type TopScores,
  type WeightDtype,
  type WeightOptions,
} from './decoder.js'
export {
  Engine,
  type EngineOptions,
  type Generated,
  type GenerationOptions,
  type Prompt,
  type SampledToken,
  type TopLogProb,
} from './engine.js'
export { generate } from './generation.js'
export {
  AdamW,
  type AdamWOptions,
  type Decay,
  Muon,
  type MuonOptions,
  Optimizer,
  SGD,
  type SGDOptions,
  type StepOptions,
  type StepReport,
} from './optimizer.js'
export {
  balance,
  cuSeqlens,
  type Groups,
  type PackOptions,
  pack,
  StreamPacker,
  type StreamPackerOptions,
} from './packing.js'
export { type PaddedTokenBatch, UnpaddedTokenBatch } from './padding.js'
export { type PieceStream, StopStrings } from './stop-strings.js'
