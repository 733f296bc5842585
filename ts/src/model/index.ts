/** The decoder: its shape, its weights, generation, the optimiser. */

export { AdamW, type AdamWOptions, type StepOptions, type StepReport } from './adamw.js'
export type { DecoderConfig, LoraConfig } from './config.js'
export { Decoder, type Scores, type TokenBatch } from './decoder.js'
export { type Generated, type GenerationOptions, generate, type Prompt } from './generation.js'
