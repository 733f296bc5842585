/** The decoder: its shape, its weights, generation, the optimiser. */

export type { DecoderConfig, LoraConfig } from './config.js'
export { Decoder, type Scores, type TokenBatch } from './decoder.js'
export { type Generated, type GenerationOptions, generate, type Prompt } from './generation.js'
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
