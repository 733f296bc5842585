/** Types of `fulmar/testing`: suites for parts of the caller's own. */

import { expectTypeOf, test } from 'vitest'
import {
  type CheckPolicyOptions,
  checkCheckpointer,
  checkPolicy,
  checkSampler,
  checkStorage,
  checkWriter,
  type ManualClock,
  ScriptedPolicy,
  type ScriptedReply,
} from '../../src/entry/testing.js'
import type { GenerateRequest, Policy } from '../../src/policy/index.js'
import type { Sampler, Storage, Writer } from '../../src/replay/index.js'
import type { Clock } from '../../src/telemetry/index.js'

test('a suite takes what makes a part, and reports by throwing', () => {
  expectTypeOf(checkSampler).parameter(0).toEqualTypeOf<() => Sampler>()
  expectTypeOf(checkStorage).parameters.toEqualTypeOf<[make: () => Storage]>()
  expectTypeOf(checkWriter).parameter(0).toEqualTypeOf<() => Writer>()
  expectTypeOf(checkPolicy).returns.resolves.toBeVoid()
  expectTypeOf(checkSampler).returns.toBeVoid()
  expectTypeOf<CheckPolicyOptions['textOf']>().toEqualTypeOf<((id: number) => string) | undefined>()
})

test('a scripted policy is a policy whose replies see the request', () => {
  expectTypeOf<ScriptedPolicy>().toExtend<Policy>()
  const policy = () =>
    new ScriptedPolicy({
      reply: (request, callIndex) => {
        expectTypeOf(request).toEqualTypeOf<GenerateRequest>()
        expectTypeOf(callIndex).toEqualTypeOf<number>()
        return [1, 2]
      },
    })
  expectTypeOf(policy).returns.toEqualTypeOf<ScriptedPolicy>()
  expectTypeOf<{ ids: [1]; finishReason: 'length' }>().toExtend<ScriptedReply>()
  expectTypeOf<{ ids: [1]; finishReason: 'eos' }>().not.toExtend<ScriptedReply>()
  expectTypeOf<ManualClock>().toExtend<Clock>()
})

test('a part of another kind, and an unknown option, are refused', () => {
  const wrong = (sampler: Sampler, policy: Policy) => {
    // @ts-expect-error each case has a part of its own
    checkSampler(sampler)
    // @ts-expect-error a sampler is no storage
    checkStorage(() => sampler)
    // @ts-expect-error no such option
    checkPolicy(() => policy, { vocab_size: 10 })
    // @ts-expect-error a folder is needed
    checkCheckpointer(() => null as never, {})
    // @ts-expect-error text is no reply
    new ScriptedPolicy({ reply: () => 'yes' })
  }
  expectTypeOf(wrong).toBeFunction()
})
