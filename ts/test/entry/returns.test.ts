/** Types of `fulmar/returns`: which columns each estimate needs, and what it returns. */

import { expectTypeOf, test } from 'vitest'
import {
  type GeneralizedAdvantageSteps,
  generalizedAdvantageEstimate,
  type RewardSteps,
  reward2go,
  td0AdvantageEstimate,
  td0ReturnEstimate,
  td1ReturnEstimate,
  tdLambdaReturnEstimate,
  type ValueEstimate,
  type ValueSteps,
  type VtraceSteps,
  vtraceAdvantageEstimate,
} from '../../src/entry/returns.js'
import type { Tensor } from '../../src/tensor/index.js'

test('returns and advantages of TD are tensors, GAE and V-trace return both', () => {
  expectTypeOf(td0ReturnEstimate).returns.toEqualTypeOf<Tensor>()
  expectTypeOf(td0AdvantageEstimate).returns.toEqualTypeOf<Tensor>()
  expectTypeOf(reward2go).returns.toEqualTypeOf<Tensor>()
  expectTypeOf(generalizedAdvantageEstimate).returns.toEqualTypeOf<ValueEstimate>()
  expectTypeOf(vtraceAdvantageEstimate).returns.toEqualTypeOf<ValueEstimate>()
  expectTypeOf<ValueEstimate>().toEqualTypeOf<{ readonly advantage: Tensor; readonly target: Tensor }>()
})

test('a factor is a number or a tensor, time a dimension', () => {
  expectTypeOf<ValueSteps['gamma']>().toEqualTypeOf<number | Tensor>()
  expectTypeOf<GeneralizedAdvantageSteps['lambda']>().toEqualTypeOf<number | Tensor>()
  expectTypeOf<RewardSteps['timeDim']>().toEqualTypeOf<number | undefined>()
  expectTypeOf(reward2go).parameter(0).toHaveProperty('gamma').toEqualTypeOf<number>()
  expectTypeOf<ValueSteps['terminated']>().toEqualTypeOf<Tensor | undefined>()
})

test('a missing column, an unknown option and a list of numbers are refused', () => {
  const wrong = (steps: ValueSteps, gae: GeneralizedAdvantageSteps, vtrace: VtraceSteps) => {
    // @ts-expect-error an advantage needs the value of each step
    td0AdvantageEstimate(steps)
    // @ts-expect-error TD(lambda) needs lambda
    tdLambdaReturnEstimate(steps)
    // @ts-expect-error the option is called `rollingGamma`
    td1ReturnEstimate({ ...steps, rolling_gamma: true })
    // @ts-expect-error columns are tensors
    td0ReturnEstimate({ ...steps, reward: [1, 2] })
    // @ts-expect-error importance weights need the behaviour's log-probs
    vtraceAdvantageEstimate(gae)
    // @ts-expect-error results cannot be replaced
    generalizedAdvantageEstimate(gae).target = vtrace.value
  }
  expectTypeOf(wrong).toBeFunction()
})
