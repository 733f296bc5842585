import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  ActionTokenizerBase,
  RobotDatasetMetadata,
  UniformActionTokenizer,
  VocabTailActionTokenizer,
} from '../../src/dataset/index.js'
import { Tensor } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'

const ENDS = Tensor.from([-1, 0, 1])
const ids = (tokens: Tensor) => Array.from(tokens.data, Number)
const encoded = (tokenizer: ActionTokenizerBase, actions: readonly number[]) =>
  ids(tokenizer.encode(Tensor.from(actions)))

describe('UniformActionTokenizer', () => {
  it('has the bins that TorchRL documents', () => {
    const tokenizer = new UniformActionTokenizer(256, { low: -1, high: 1 })
    const tokens = tokenizer.encode(ENDS)
    expect(ids(tokens)).toEqual([0, 128, 255])
    expect(tokens.dtype).toBe('i64')
    expect([...tokenizer.decode(tokens).data]).toEqual([-0.99609375, 0.00390625, 0.99609375])
    expect(tokenizer.vocabSize).toBe(256)
    expect(tokenizer).toBeInstanceOf(ActionTokenizerBase)
  })

  it('keeps bounds for each dimension, in any batch', () => {
    const tokenizer = new UniformActionTokenizer(4, { low: [0, -10], high: [1, 10] })
    expect(tokenizer.actionDim).toBe(2)
    const tokens = tokenizer.encode(Tensor.from([0.5, 0, 2, -99, 0.999, 9.9, 0, 5], { shape: [2, 2, 2] }))
    expect(tokens.shape).toEqual([2, 2, 2])
    expect(ids(tokens)).toEqual([2, 2, 3, 0, 3, 3, 0, 3])
    expect([...tokenizer.decode(Tensor.from([0, 3], { dtype: 'i32' })).data]).toEqual([0.125, 7.5])
    const spread = new UniformActionTokenizer(4, { low: 0, high: [1, 2], actionDim: 2 })
    expect(encoded(spread, [0.5, 0.5])).toEqual([2, 1])
  })

  it('decodes into the bin of the token, for any bounds', () =>
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 500 }),
        fc.integer({ min: -50, max: 50 }),
        fc.integer({ min: 1, max: 100 }),
        fc.array(fc.double({ min: -1, max: 2, noNaN: true }), { minLength: 1 }),
        (numBins, low, width, places) => {
          const tokenizer = new UniformActionTokenizer(numBins, { low, high: low + width })
          const actions = places.map((place) => low + place * width)
          const tokens = tokenizer.encode(Tensor.from(Float64Array.from(actions)))
          // The naive version: bin edges one by one.
          const naive = actions.map((action) => {
            let bin = 0
            while (bin < numBins - 1 && action >= low + ((bin + 1) * width) / numBins) bin += 1
            return bin
          })
          ids(tokens).forEach((token, at) => {
            const edge = ((actions[at] ?? 0) - low) / (width / numBins)
            if (Math.abs(edge - Math.round(edge)) > 1e-9) expect(token).toBe(naive[at])
          })
          expect(ids(tokenizer.encode(tokenizer.decode(tokens)))).toEqual(ids(tokens))
        },
      ),
      { numRuns: 50 },
    ))

  it('takes the bounds of metadata', () => {
    const metadata = new RobotDatasetMetadata('a', { actionLow: [-1], actionHigh: [1] })
    expect(encoded(UniformActionTokenizer.fromMetadata(metadata, 8), [0])).toEqual([4])
    expect(() => UniformActionTokenizer.fromMetadata(new RobotDatasetMetadata('a'), 8)).toThrow(
      failing('MALFORMED', /actionLow/),
    )
  })

  it('refuses bounds and arguments that cannot be', () => {
    const make = (numBins: number, options: object) => () =>
      new UniformActionTokenizer(numBins, options as never)
    expect(make(0, { low: 0, high: 1 })).toThrow(failing('OUT_OF_RANGE', /numBins.*got 0/))
    expect(make(4, { low: 1, high: 1 })).toThrow(failing('OUT_OF_RANGE', /below options\.high: got 1 and 1/))
    expect(make(4, { low: [0], high: [1, 2] })).toThrow(failing('SHAPE_MISMATCH', /got 1 and 2/))
    expect(make(4, { low: [0], high: [1], actionDim: 2 })).toThrow(failing('SHAPE_MISMATCH', /actionDim/))
    expect(make(4, { low: 0, high: 1, actionDim: 0 })).toThrow(failing('OUT_OF_RANGE', /actionDim/))
    expect(make(4, { low: Number.NaN, high: 1 })).toThrow(failing('MALFORMED', /low.*NaN/))
    expect(make(4, { low: 0 })).toThrow(failing('MALFORMED', /high/))
    expect(make(4, { low: 0, high: 1, hihg: 1 })).toThrow(failing('UNKNOWN_NAME', /hihg/))
    const tokenizer = new UniformActionTokenizer(4, { low: [0, 0], high: [1, 1] })
    const refused = (tensor: Tensor) => () => tokenizer.encode(tensor)
    expect(refused(Tensor.from([1, 2, 3]))).toThrow(failing('SHAPE_MISMATCH', /dimension of 2: got \[3\]/))
    expect(refused(Tensor.from([1, Number.NaN]))).toThrow(failing('NON_FINITE', /element 1/))
    expect(refused(Tensor.from([1, 2], { dtype: 'i64' }))).toThrow(failing('INCOMPATIBLE', /i64/))
    expect(refused('text' as never)).toThrow(failing('INCOMPATIBLE', /text/))
    const decode = (tensor: Tensor) => () => tokenizer.decode(tensor)
    expect(decode(Tensor.from([0, 4], { dtype: 'i64' }))).toThrow(failing('OUT_OF_RANGE', /0 to 3: got 4/))
    expect(decode(Tensor.from([0, 1]))).toThrow(failing('INCOMPATIBLE', /f32/))
  })
})

describe('VocabTailActionTokenizer', () => {
  it('has the ids that OpenVLA documents', () => {
    const window = new VocabTailActionTokenizer()
    expect(ids(window.encode(ENDS))).toEqual([255, 128, 0])
    expect(window.vocabSize).toBe(256)
    const decoded = [...window.decode(window.encode(ENDS)).data]
    expect(decoded.map((number) => Number(number.toFixed(4)))).toEqual([-0.9961, 0, 0.9961])
    const tail = new VocabTailActionTokenizer({ fullVocabSize: 32000 })
    expect(ids(tail.encode(ENDS))).toEqual([31999, 31872, 31744])
    expect(tail.vocabSize).toBe(32000)
    expect(tail.decode(Tensor.from([0, 1], { dtype: 'i64' })).data[0]).toBeCloseTo(254 / 255, 5)
  })

  it('counts the edges at or below an action, as a loop does', () =>
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 300 }),
        fc.array(fc.float({ min: -2, max: 2, noNaN: true }), { minLength: 1 }),
        (numBins, actions) => {
          const tokenizer = new VocabTailActionTokenizer({ numBins, fullVocabSize: numBins + 7 })
          const tokens = encoded(tokenizer, actions)
          actions.forEach((action, at) => {
            const clipped = Math.min(Math.max(action, -1), 1)
            const place = ((clipped + 1) * (numBins - 1)) / 2
            if (Math.abs(place - Math.round(place)) < 1e-3) return
            expect(tokens[at]).toBe(numBins + 7 - (Math.floor(place) + 1))
          })
        },
      ),
      { numRuns: 50 },
    ))

  it('scales actions by statistics, and leaves the gripper', () => {
    const stats = { bridge: { action: { q01: [0, -2, 0], q99: [10, 2, 1], mask: [true, true, false] } } }
    const tokenizer = VocabTailActionTokenizer.fromNormStats(stats, 'bridge')
    expect(encoded(tokenizer, [0, 0, 1])).toEqual([255, 128, 0])
    const [first = 0, second = 0, third = 0] = tokenizer.decode(
      Tensor.from([255, 0, 0], { dtype: 'i64' }),
    ).data
    expect(first).toBeCloseTo((0.5 * 10) / 255, 5)
    expect(second).toBeCloseTo(2 - 2 / 255, 5)
    expect(third).toBeCloseTo(254 / 255, 5)
    const binary = VocabTailActionTokenizer.fromNormStats(stats, 'bridge', {
      gripperBinarize: true,
      gripperBinarizeThreshold: 0.5,
      gripperInvert: true,
    })
    const grippers = Tensor.from([255, 0, 80, 0, 0, 10], { dtype: 'i64', shape: [2, 3] })
    expect([2, 5].map((at) => binary.decode(grippers).data[at])).toEqual([1, -1])
    expect(() => VocabTailActionTokenizer.fromNormStats(stats, 'brigde')).toThrow(
      failing('UNKNOWN_NAME', /bridge/),
    )
    expect(() => VocabTailActionTokenizer.fromNormStats({ a: {} } as never, 'a')).toThrow(
      failing('MALFORMED', /action/),
    )
  })

  it('scales all dimensions without a mask', () => {
    const tokenizer = new VocabTailActionTokenizer({ normLow: [0], normHigh: [4] })
    expect(encoded(tokenizer, [2, 4, 99].slice(0, 1))).toEqual([128])
    const doubles = tokenizer.encode(Tensor.from(Float64Array.of(4, 99), { shape: [2, 1] }))
    expect(Math.max(...ids(doubles))).toBeLessThanOrEqual(1)
  })

  it('refuses options that cannot be', () => {
    const make = (options: object) => () => new VocabTailActionTokenizer(options)
    expect(make({ numBins: 1 })).toThrow(failing('OUT_OF_RANGE', /numBins/))
    expect(make({ fullVocabSize: 255 })).toThrow(failing('OUT_OF_RANGE', /fullVocabSize/))
    expect(make({ normLow: [1] })).toThrow(failing('INCOMPATIBLE', /together/))
    expect(make({ normMask: [true] })).toThrow(failing('INCOMPATIBLE', /together/))
    expect(make({ normLow: [1], normHigh: [1, 2] })).toThrow(failing('SHAPE_MISMATCH', /1, 2 and 1/))
    expect(make({ normLow: [0], normHigh: [1], normMask: [1] })).toThrow(failing('MALFORMED', /normMask/))
    expect(make({ gripperBinarize: true })).toThrow(failing('INCOMPATIBLE', /normMask/))
    expect(make({ gripperInvert: 1 })).toThrow(failing('MALFORMED', /gripperInvert/))
    expect(make({ gripperBinarizeThreshold: '0' })).toThrow(failing('MALFORMED', /Threshold/))
    expect(make({ bins: 4 })).toThrow(failing('UNKNOWN_NAME', /bins/))
  })
})
