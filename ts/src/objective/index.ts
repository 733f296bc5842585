/** Losses with their gradients, group advantages, KL estimates, token drawing. */

export { type GroupAdvantageOptions, type GroupAdvantageResult, groupAdvantage } from './advantage.js'
export { type Draw, type DrawOptions, type DrawTokenOptions, drawProbabilities, drawToken } from './draw.js'
export { GRPOLoss, type GRPOLossOptions, type LossBatch } from './grpo.js'
export { type KlEstimateOptions, type KlEstimateResult, klEstimate } from './kl.js'
export type { KlEstimator, KlPenalty, LossResult, Normalization } from './loss.js'
export { type SFTBatch, SFTLoss, type SFTLossOptions, type SFTLossResult } from './sft.js'
