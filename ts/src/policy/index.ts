/** What samples tokens. */

export { DecoderPolicy } from './decoder.js'
export {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
  type PolicyCapabilities,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
export { ScriptedPolicy, type ScriptedPolicyOptions, type ScriptedReply } from './scripted.js'
