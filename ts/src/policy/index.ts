/** What samples tokens. */

export { DecoderPolicy } from './decoder.js'
export {
  type Completion,
  checkGenerateRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
} from './policy.js'
export { ScriptedPolicy, type ScriptedPolicyOptions, type ScriptedReply } from './scripted.js'
