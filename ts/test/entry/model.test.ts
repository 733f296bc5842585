/** Types of `fulmar/model`: decoders, engines, optimizers, packing. */

import { expectTypeOf, test } from 'vitest'
import {
  AdamW,
  type AdamWOptions,
  balance,
  Decoder,
  type DecoderConfig,
  Engine,
  type Generated,
  type Groups,
  generate,
  type Muon,
  type Optimizer,
  pack,
  type SampledToken,
  type Scores,
  type SGD,
  type StepReport,
  type StreamPacker,
  type TokenBatch,
  type TopScores,
  type UnpaddedTokenBatch,
} from '../../src/entry/model.js'

test('a decoder gives scores as typed arrays, the likeliest ids only where they are asked', () => {
  expectTypeOf(Decoder.fromSeed).returns.toEqualTypeOf<Decoder>()
  expectTypeOf(Decoder.fromFolder).returns.resolves.toEqualTypeOf<Decoder>()
  expectTypeOf<Decoder['forward']>().returns.resolves.toEqualTypeOf<Scores>()
  expectTypeOf<Decoder['score']>().returns.resolves.toEqualTypeOf<TopScores>()
  expectTypeOf<TopScores>().toExtend<Scores>()
  expectTypeOf<Scores>().not.toExtend<TopScores>()
  expectTypeOf<Scores['logSumSqProb']>().toEqualTypeOf<Float32Array | undefined>()
  expectTypeOf<Decoder['backward']>().parameters.toEqualTypeOf<
    [gradLogProb: Float32Array, gradEntropy?: Float32Array | undefined]
  >()
  expectTypeOf<Decoder['dtype']>().toEqualTypeOf<'f32' | 'bf16'>()
  expectTypeOf<Decoder['version']>().toEqualTypeOf<number>()
})

test('what owns native memory is disposable', () => {
  expectTypeOf<Decoder>().toExtend<Disposable>()
  expectTypeOf<Engine>().toExtend<Disposable>()
  expectTypeOf<Optimizer>().toExtend<Disposable>()
  expectTypeOf<StreamPacker>().toExtend<Disposable>()
  expectTypeOf<UnpaddedTokenBatch>().toExtend<Disposable>()
})

test('an engine gives tokens one by one or all at once', () => {
  expectTypeOf<Engine['generate']>().returns.resolves.toEqualTypeOf<Generated>()
  expectTypeOf<Engine['stream']>().returns.toEqualTypeOf<AsyncGenerator<SampledToken, void, undefined>>()
  expectTypeOf(generate).returns.resolves.toEqualTypeOf<Generated[]>()
  expectTypeOf<Generated['finishReason']>().toEqualTypeOf<'stop' | 'length' | 'abort'>()
  expectTypeOf<Generated['stoppedBy']>().toEqualTypeOf<number | string | null>()
  expectTypeOf<SampledToken['logProb']>().toEqualTypeOf<number>()
})

test('optimizers share a step, and each has options of its own', () => {
  expectTypeOf<AdamW>().toExtend<Optimizer>()
  expectTypeOf<SGD>().toExtend<Optimizer>()
  expectTypeOf<Muon>().toExtend<Optimizer>()
  expectTypeOf<Optimizer['step']>().returns.resolves.toEqualTypeOf<StepReport>()
  expectTypeOf<AdamWOptions['decay']>().toEqualTypeOf<'matrices' | 'all' | readonly string[] | undefined>()
  expectTypeOf(pack).returns.toEqualTypeOf<Groups>()
  expectTypeOf(balance).parameter(0).toEqualTypeOf<Float64Array>()
})

test('an adapter is for a list of projections, a pattern or all of them', () => {
  const adapt = async (decoder: Decoder) => {
    await decoder.addLora({ r: 8, target_modules: ['q_proj', 'v_proj'] }, { seed: 0 })
    await decoder.addLora({ r: 8, target_modules: 'all-linear' }, { seed: 0 })
    // @ts-expect-error one projection by number
    await decoder.addLora({ target_modules: 3 }, { seed: 0 })
    // @ts-expect-error a seed is needed
    await decoder.addLora({ r: 8 })
  }
  expectTypeOf(adapt).toBeFunction()
})

test('other shapes, options and batches are refused', () => {
  const wrong = (decoder: Decoder, config: DecoderConfig, batch: TokenBatch) => {
    // @ts-expect-error no such family
    Decoder.fromSeed({ ...config, model_type: 'gpt2' }, { seed: 1 })
    // @ts-expect-error a seed is needed
    Decoder.fromSeed(config, {})
    // @ts-expect-error no such dtype
    Decoder.fromSeed(config, { seed: 1, dtype: 'f16' })
    // @ts-expect-error ids are a Uint32Array
    decoder.score({ ...batch, ids: [1, 2] })
    // @ts-expect-error PyTorch's name of `learningRate`
    new AdamW(decoder, { lr: 1e-3 })
    // @ts-expect-error AdamW has no momentum
    new AdamW(decoder, { momentum: 0.9 })
    // @ts-expect-error a length is needed
    generate(decoder, [], {})
    // @ts-expect-error no such treatment
    new Engine(decoder, { onWeightChange: 'drop' })
    // @ts-expect-error no such strategy
    pack(new Uint32Array(), { capacity: 4, strategy: 'worstFit' })
    // @ts-expect-error no such head
    decoder.withScalarHead('reward', { seed: 1 })
  }
  expectTypeOf(wrong).toBeFunction()
})
