/** Rewards of texts: answers, instructions, lengths. Pure functions of texts, on every runtime. */

export type { AnswerReward, AnswerRewardOptions, AnswerRewardParser } from './answer-reward.js'
export {
  type CountdownProblem,
  CountdownRewardParser,
  type CountdownRewardParserOptions,
  type CountdownUse,
  isCountdownSolution,
  parseCountdown,
} from './countdown.js'
export {
  type CountdownProblemOptions,
  type CountdownRow,
  countdownProblem,
  type DrawsBelow,
} from './countdown-problem.js'
export {
  GSM8KRewardParser,
  type GSM8KRewardParserOptions,
  type GSM8KRow,
  gsm8kTruth,
  normalizeGsm8kAnswer,
} from './gsm8k.js'
export {
  type CosineScaledRewardOptions,
  cosineScaledReward,
  type RepetitionPenaltyOptions,
  repetitionPenalty,
  type SoftOverlongPunishmentOptions,
  softOverlongPunishment,
  thinkFormatReward,
} from './length.js'
export {
  extractBoxed,
  extractMathAnswer,
  isSameMath,
  MATHRewardParser,
  type MATHRewardParserOptions,
  type MATHRow,
  type MathComparison,
  mathTruth,
  normalizeMath,
} from './math.js'
export { SIMILARITY_EXCESS, similarity } from './similarity.js'
export { extractTags, type Tags, tagBlocks } from './tags.js'
