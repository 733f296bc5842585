/** IFEval: the checks of its instructions, its scores, languages and sentences. */

export {
  type IFEvalRow,
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
  IFEVAL_INSTRUCTION_IDS,
  IFEVAL_LANGUAGES,
  type IfEvalCheck,
  type IfEvalCheckOptions,
  type IfEvalInstructionId,
  type IfEvalKwargs,
  ifEvalCheck,
} from './instructions.js'
export { detectLanguage } from './language.js'
export { splitSentences } from './sentences.js'
export { wordTokens } from './word-tokens.js'
