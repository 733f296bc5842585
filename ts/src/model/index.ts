/** The decoder: its shape, its weights, generation, the optimiser. */

export type { DecoderConfig, LoraConfig } from './config.js'
export { Decoder, type ScalarHead } from './decoder.js'
export { Engine, type EngineOptions, type SpeculationStats } from './engine.js'
export type { Generated, SampledToken, TopLogProb } from './generated.js'
export { generate } from './generation.js'
export type { GenerationOptions, Prompt } from './generation-options.js'
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
export type { ForwardPassOptions, ScoreOptions, Scores, TopScores } from './scores.js'
export { type PieceStream, StopStrings } from './stop-strings.js'
export type { TokenBatch } from './token-batch.js'
export type { LoadOptions, MatmulPrecision, WeightDtype, WeightOptions } from './weight-options.js'
