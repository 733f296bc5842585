/** Suites that parts of your own must pass, as ours do. `import from 'fulmar/testing'`. */

export { type CheckCheckpointerOptions, checkCheckpointer } from './check-checkpointer.js'
export { type CheckPolicyOptions, checkPolicy } from './check-policy.js'
export { type CheckSamplerOptions, checkSampler } from './check-sampler.js'
export { checkStorage } from './check-storage.js'
export { type CheckWeightReceiverOptions, checkWeightReceiver } from './check-weight-receiver.js'
export { type CheckWriterOptions, checkWriter } from './check-writer.js'
export { ScriptedPolicy, type ScriptedPolicyOptions, type ScriptedReply } from './scripted-policy.js'
