/** Losses with their gradients, group advantages, KL estimates, token drawing. */

export { type GroupAdvantageOptions, type GroupAdvantageResult, groupAdvantage } from './advantage.js'
export {
  BradleyTerryLoss,
  type BradleyTerryLossOptions,
  type RewardLossResult,
  type RewardPairs,
} from './bradley-terry.js'
export { type DistillationBatch, DistillationLoss, type DistillationLossOptions } from './distillation.js'
export { DPOLoss, type DPOLossOptions, type DPOLossType, type PreferenceBatch } from './dpo.js'
export {
  type Draw,
  type DrawMethod,
  type DrawOptions,
  type DrawRule,
  type DrawTokenOptions,
  drawProbabilities,
  drawToken,
  tokenMask,
} from './draw.js'
export {
  type HeadGradients,
  headBackward,
  headLogProbs,
  type LinearHeadOptions,
  type TokenGradients,
  type TokenLogitsOptions,
  type TokenLogProbsResult,
  type TokenSquares,
  tokenLogProbs,
  tokenLogProbsBackward,
} from './fused.js'
export {
  type Correction,
  type Envelope,
  GRPOLoss,
  type GRPOLossOptions,
  type GRPOLossOutput,
  type GRPOPreset,
  type LossBatch,
  type Surrogate,
} from './grpo.js'
export {
  AdaptiveKLController,
  type AdaptiveKLControllerOptions,
  ConstantKLController,
  type ImportanceWeightsOptions,
  importanceWeights,
  type KlEstimateOptions,
  type KlEstimateResult,
  type KlRewardOptions,
  type KlRewardResult,
  klEstimate,
  klReward,
} from './kl.js'
export { type KTOBatch, KTOLoss, type KTOLossOptions } from './kto.js'
export type { KlEstimator, KlPenalty, LossResult, Normalization, Objective, ObjectiveResult } from './loss.js'
export {
  type AdvantageOf,
  type CandidateSelector,
  MCAdvantage,
  type MCAdvantageOptions,
  MCAdvantageSelector,
  type MCAdvantageSelectorOptions,
  type MCAdvantageState,
  type MCAdvantageStats,
  type ReturnBounds,
  TopKRewardSelector,
  type TopKRewardSelectorOptions,
} from './mc-advantage.js'
export { type SFTBatch, SFTLoss, type SFTLossOptions, type SFTLossOutput, type SFTReduction } from './sft.js'
