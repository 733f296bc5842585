/** Types of `fulmar/policy`: requests, completions and what each policy adds. */

import { expectTypeOf, test } from 'vitest'
import type { FulmarError } from '../../src/core/error.js'
import type { Decoder } from '../../src/entry/model.js'
import {
  AsyncVLLM,
  type Completion,
  type CompletionPart,
  type DecoderPolicy,
  type DistributionPolicy,
  fetchClient,
  type GenerateRequest,
  type HttpClient,
  type OnnxPolicy,
  type Policy,
  type Reservation,
  Router,
  type StreamingPolicy,
  type TokenScores,
  type TokenStream,
  type WeightReceiver,
  type WeightUpdateResult,
  WorkerPolicy,
} from '../../src/entry/policy.js'

test('each policy is a Policy, some of them more', () => {
  expectTypeOf<DecoderPolicy>().toExtend<DistributionPolicy>()
  expectTypeOf<AsyncVLLM>().toExtend<StreamingPolicy>()
  expectTypeOf<WorkerPolicy>().toExtend<Policy>()
  expectTypeOf<OnnxPolicy>().toExtend<Policy>()
  expectTypeOf<WorkerPolicy>().not.toExtend<StreamingPolicy>()
  expectTypeOf<AsyncVLLM>().not.toExtend<DistributionPolicy>()
})

test('a policy of the caller needs a version and generate alone', () => {
  expectTypeOf<{
    version: number
    generate(request: GenerateRequest): Promise<Completion>
  }>().toExtend<Policy>()
  expectTypeOf<{ version: number; generate(text: string): Promise<Completion> }>().not.toExtend<Policy>()
  expectTypeOf<Policy['score']>().toEqualTypeOf<
    | ((request: {
        readonly requestId: string
        readonly ids: Uint32Array
        readonly signal?: AbortSignal
      }) => Promise<TokenScores>)
    | undefined
  >()
})

test('a completion has ids, log-probs and a reason of a closed union', () => {
  expectTypeOf<Completion['ids']>().toEqualTypeOf<Uint32Array>()
  expectTypeOf<Completion['logProbs']>().toEqualTypeOf<Float32Array>()
  expectTypeOf<Completion['finishReason']>().toEqualTypeOf<'stop' | 'length' | 'abort'>()
  expectTypeOf<Completion['stoppedBy']>().toEqualTypeOf<number | string | null | undefined>()
  expectTypeOf<AsyncVLLM['stream']>().returns.toEqualTypeOf<TokenStream<CompletionPart, Completion>>()
  expectTypeOf<TokenStream<CompletionPart, Completion>['result']>().resolves.toEqualTypeOf<Completion>()
  expectTypeOf(AsyncVLLM.connect).returns.resolves.toEqualTypeOf<AsyncVLLM>()
  expectTypeOf(WorkerPolicy.launch).returns.resolves.toEqualTypeOf<WorkerPolicy>()
})

test('a weight update tells success from failure', () => {
  const phase = (result: WeightUpdateResult) => (result.ok ? null : result.phase)
  expectTypeOf(phase).returns.toEqualTypeOf<
    'pause' | 'start' | 'update' | 'finish' | 'reset' | 'resume' | null
  >()
  expectTypeOf<Extract<WeightUpdateResult, { ok: false }>['error']>().toEqualTypeOf<FulmarError>()
  // @ts-expect-error a success has no error
  const error = (result: WeightUpdateResult) => result.error
  expectTypeOf(error).toBeFunction()
})

test('each policy with weights receives weights of its own form', () => {
  expectTypeOf<DecoderPolicy>().toExtend<WeightReceiver<Decoder>>()
  expectTypeOf<WorkerPolicy>().toExtend<WeightReceiver<Decoder | string>>()
  expectTypeOf<OnnxPolicy>().toExtend<WeightReceiver<string | Uint8Array>>()
  expectTypeOf<AsyncVLLM>().toExtend<WeightReceiver<string>>()
  expectTypeOf<AsyncVLLM>().not.toExtend<WeightReceiver<Decoder>>()
  expectTypeOf<WeightReceiver<string>['settle']>().toEqualTypeOf<((version: number) => void) | undefined>()
})

test('the global fetch is an HTTP client, and a router may have no place', () => {
  const client = () => fetchClient(fetch)
  expectTypeOf(client).returns.toEqualTypeOf<HttpClient>()
  expectTypeOf<Router['reserve']>().returns.toEqualTypeOf<Reservation | undefined>()
})

test('unknown options, missing parts and lists of ids are refused', () => {
  const wrong = (policy: DecoderPolicy, request: GenerateRequest) => {
    // @ts-expect-error a seed, a length and stop ids are needed
    policy.generate({ requestId: 'a', promptIds: new Uint32Array() })
    // @ts-expect-error ids are a Uint32Array
    policy.generate({ ...request, promptIds: [1, 2] })
    // @ts-expect-error vLLM's name of `maxTokens`
    policy.generate({ ...request, max_tokens: 8 })
    // @ts-expect-error no such option
    AsyncVLLM.connect('http://localhost:8000', { timeout: 3 })
    // @ts-expect-error no such strategy
    new Router({ numTargets: 2, strategy: 'random' })
    // @ts-expect-error a completion cannot be changed
    const change = (completion: Completion) => (completion.finishReason = 'stop')
    return change
  }
  expectTypeOf(wrong).toBeFunction()
})
