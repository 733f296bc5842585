import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  generalizedAdvantageEstimate,
  reward2go,
  td0AdvantageEstimate,
  td0ReturnEstimate,
  td1AdvantageEstimate,
  td1ReturnEstimate,
  tdLambdaAdvantageEstimate,
  tdLambdaReturnEstimate,
  vtraceAdvantageEstimate,
} from '../../src/objective/returns.js'
import { Tensor } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { expectNear } from './rows.js'

/** Sequences of steps: 0 continues, 1 is truncated, 2 terminated. */
const drawn = fc
  .record({ lanes: fc.integer({ min: 1, max: 3 }), time: fc.integer({ min: 1, max: 6 }) })
  .chain(({ lanes, time }) => {
    const count = lanes * time
    const numbers = fc.array(fc.double({ min: -3, max: 3, noNaN: true }), {
      minLength: count,
      maxLength: count,
    })
    const ends = fc.array(fc.constantFrom(0, 0, 0, 1, 2), { minLength: count, maxLength: count })
    const unit = fc.double({ min: 0, max: 1, noNaN: true })
    const columns = { reward: numbers, value: numbers, nextValue: numbers, logPi: numbers, ends }
    return fc.record({ ...columns, gamma: unit, lambda: unit, shape: fc.constant([lanes, time, 1]) })
  })

const double = (values: readonly number[], shape: readonly number[]) =>
  Tensor.from(Float64Array.from(values), { shape })
const bools = (flags: readonly boolean[], shape: readonly number[]) =>
  Tensor.from(Uint8Array.from(flags, Number), { shape, dtype: 'bool' })

describe('value estimates', () => {
  it('are the recursions of the books, sequence by sequence', () => {
    fc.assert(
      fc.property(drawn, ({ shape, ends, gamma, lambda, reward, value, nextValue, logPi }) => {
        const time = shape[1] ?? 1
        const at = (column: readonly number[], step: number) => column[step] ?? 0
        const future = (step: number) => (ends[step] === 2 ? 0 : at(nextValue, step))
        const isEnd = (step: number) => (step + 1) % time === 0 || ends[step] !== 0
        const from = (term: (step: number) => number, onward: (step: number) => number) => {
          const x = new Float64Array(reward.length)
          for (let step = reward.length - 1; step >= 0; step--) {
            x[step] = term(step) + (isEnd(step) ? 0 : onward(step) * at([...x], step + 1))
          }
          return x
        }
        const delta = (step: number) => at(reward, step) + gamma * future(step) - at(value, step)
        const steps = {
          reward: double(reward, shape),
          nextValue: double(nextValue, shape),
          value: double(value, shape),
          done: bools(
            ends.map((end) => end > 0),
            shape,
          ),
          terminated: bools(
            ends.map((end) => end > 1),
            shape,
          ),
          gamma,
        }
        const { value: own, ...returns } = steps
        const gae = generalizedAdvantageEstimate({ ...steps, lambda })
        expectNear(
          gae.advantage.as('f64').data,
          from(delta, () => gamma * lambda),
          1e-9,
        )
        expectNear(
          gae.target.as('f64').data,
          gae.advantage.as('f64').data.map((one, step) => one + at(value, step)),
          1e-9,
        )

        const mixed = from(
          (step) => at(reward, step) + gamma * (isEnd(step) ? 1 : 1 - lambda) * future(step),
          () => gamma * lambda,
        )
        const tdLambda = tdLambdaReturnEstimate({ ...returns, lambda })
        expectNear(tdLambda.as('f64').data, mixed, 1e-9)
        const less = (tensor: Tensor) => tensor.as('f64').data.map((one, step) => one - at(value, step))
        expectNear(tdLambdaAdvantageEstimate({ ...steps, lambda }).as('f64').data, less(tdLambda), 1e-9)
        expect(td0ReturnEstimate(returns).equals(tdLambdaReturnEstimate({ ...returns, lambda: 0 }))).toBe(
          true,
        )
        expect(td1ReturnEstimate(returns).equals(tdLambdaReturnEstimate({ ...returns, lambda: 1 }))).toBe(
          true,
        )
        expectNear(td0AdvantageEstimate(steps).as('f64').data, less(td0ReturnEstimate(returns)), 1e-9)
        expectNear(td1AdvantageEstimate(steps).as('f64').data, less(td1ReturnEstimate(returns)), 1e-9)

        const toGo = reward2go({ reward: steps.reward, done: steps.done, gamma })
        expectNear(
          toGo.as('f64').data,
          from(
            (step) => at(reward, step),
            () => gamma,
          ),
          1e-9,
        )

        const weight = (step: number) => Math.min(1, Math.exp(at(logPi, step)))
        const logs = { logPi: double(logPi, shape), logMu: Tensor.zeros('f64', shape) }
        const vtrace = vtraceAdvantageEstimate({ ...steps, ...logs })
        const corrected = from(
          (step) => weight(step) * delta(step),
          (step) => gamma * weight(step),
        )
        expectNear(
          vtrace.target.as('f64').data,
          corrected.map((x, step) => x + at(value, step)),
          1e-9,
        )
        expect(own.shape).toEqual(vtrace.advantage.shape)
      }),
      { numRuns: 50 },
    )
  })

  it('run along the dimension of time, with factors for each step', () => {
    const column = (...values: number[]) => Tensor.from(values, { shape: [2, 3] })
    const columns = {
      reward: column(1, 1, 1, 2, 2, 2),
      nextValue: column(0, 0, 0, 0, 0, 0),
      done: Tensor.zeros('bool', [2, 3]),
    }
    const along = (timeDim: number) => td1ReturnEstimate({ ...columns, gamma: 0.5, timeDim }).data
    expect(along(0)).toEqual(Float32Array.of(2, 2, 2, 2, 2, 2))
    expect(along(-1)).toEqual(Float32Array.of(1.75, 1.5, 1, 3.5, 3, 2))
    const gamma = column(1, 0.5, 0, 0, 1, 0)
    const rolling = (rollingGamma: boolean) =>
      td1ReturnEstimate({ ...columns, gamma, timeDim: -1, rollingGamma }).data
    expect(rolling(true)).toEqual(Float32Array.of(2.5, 1.5, 1, 2, 4, 2))
    expect(rolling(false)).toEqual(Float32Array.of(3, 1.5, 1, 2, 4, 2))
  })

  it.each<[string, object]>([
    ['SHAPE_MISMATCH', { nextValue: Tensor.zeros('f32', [3, 1]) }],
    ['SHAPE_MISMATCH', { value: undefined }],
    ['INCOMPATIBLE', { value: Tensor.zeros('f64', [2, 1]) }],
    ['INCOMPATIBLE', { reward: Tensor.zeros('i32', [2, 1]) }],
    ['INCOMPATIBLE', { done: Tensor.zeros('f32', [2, 1]) }],
    ['OUT_OF_RANGE', { gamma: 1.5 }],
    ['OUT_OF_RANGE', { timeDim: 2 }],
    ['OUT_OF_RANGE', { timeDim: 0.5 }],
    ['NON_FINITE', { reward: Tensor.from([0, Number.NaN], { shape: [2, 1] }) }],
    ['UNKNOWN_NAME', { lmbda: 0.5 }],
    ['MALFORMED', { reward: undefined }],
    ['MALFORMED', { value: [1, 2] }],
    ['MALFORMED', { done: 1 }],
  ])('refuse with %s the change %j', (code, change) => {
    const zeros = () => Tensor.zeros('f32', [2, 1])
    const columns = {
      reward: zeros(),
      value: zeros(),
      nextValue: zeros(),
      done: Tensor.zeros('bool', [2, 1]),
    }
    const estimate = () => generalizedAdvantageEstimate({ ...columns, gamma: 0.9, lambda: 0.9, ...change })
    expect(codeOf(estimate)).toBe(code)
  })
})
