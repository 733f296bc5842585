/** What a text of a policy is worth: answers, instructions, lengths. Pure functions of texts, on every runtime. */

export type { AnswerReward, AnswerRewardOptions, AnswerRewardParser } from './answer-reward.js'
export {
  COUNTDOWN_EXPRESSION_LENGTH_MAX,
  COUNTDOWN_NUMBERS_MAX,
  type CountdownProblem,
  CountdownRewardParser,
  type CountdownRewardParserOptions,
  type CountdownUse,
  isCountdownSolution,
  parseCountdown,
} from './countdown.js'
export {
  COUNTDOWN_DRAWS_MAX,
  type CountdownProblemOptions,
  type CountdownRow,
  countdownProblem,
  type DrawsBelow,
} from './countdown-problem.js'
export { canonicalDecimal } from './decimal.js'
export {
  GSM8KRewardParser,
  type GSM8KRewardParserOptions,
  gsm8kTruth,
  normalizeGsm8kAnswer,
} from './gsm8k.js'
export {
  IFEVAL_INSTRUCTIONS_MAX,
  type IFEvalScoreData,
  type IfEvalAggregator,
  type IfEvalBlocks,
  type IfEvalChecks,
  type IfEvalInstructions,
  type IfEvalResult,
  IfEvalScorer,
  type IfEvalScorerOptions,
  ifEvalChecks,
  ifEvalReward,
  scoreIfEval,
} from './ifeval.js'
export {
  IFEVAL_ARGUMENT_LENGTH_MAX,
  IFEVAL_INSTRUCTION_IDS,
  IFEVAL_KEYWORD_LENGTH_MAX,
  IFEVAL_KEYWORDS_MAX,
  IFEVAL_LANGUAGES,
  type IfEvalCheck,
  type IfEvalCheckOptions,
  type IfEvalInstructionId,
  type IfEvalKwargs,
  ifEvalCheck,
} from './instructions.js'
export { detectLanguage, LANGUAGE_TEXT_LENGTH_MAX } from './language.js'
export {
  type CosineScaledRewardOptions,
  cosineScaledReward,
  NGRAM_SIZE_MAX,
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
  type MathComparison,
  mathTruth,
  normalizeMath,
} from './math.js'
export { splitSentences } from './sentences.js'
export { SIMILARITY_EXCESS, SIMILARITY_LENGTH_MAX, SIMILARITY_PAIRS_MAX, similarity } from './similarity.js'
export { extractTags, type Tags, tagBlocks } from './tags.js'
export { checkRewardText, REWARD_TEXT_LENGTH_MAX } from './text.js'
export { wordTokens } from './word-tokens.js'
