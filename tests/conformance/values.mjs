/**
 * Compares returns and advantages of steps with what TorchRL gave for the same ones: doubles to a relative 1e-10 and an absolute 1e-12,
 * singles to 1e-4 and 1e-5, of vectorised forms to 1e-3; of a refusal only the fact. Its vectorised forms are the same functions here.
 */

import { Tensor } from 'fulmar'
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
} from 'fulmar/returns'
import { attempt, decided, given, tensorIn } from './replay-rows.mjs'

const ESTIMATES = {
  generalized_advantage_estimate: generalizedAdvantageEstimate,
  td0_return_estimate: td0ReturnEstimate,
  td0_advantage_estimate: td0AdvantageEstimate,
  td1_return_estimate: td1ReturnEstimate,
  td1_advantage_estimate: td1AdvantageEstimate,
  td_lambda_return_estimate: tdLambdaReturnEstimate,
  td_lambda_advantage_estimate: tdLambdaAdvantageEstimate,
  vtrace_advantage_estimate: vtraceAdvantageEstimate,
  reward2go,
}
const NAMES = {
  gamma: 'gamma',
  lmbda: 'lambda',
  state_value: 'value',
  next_state_value: 'nextValue',
  reward: 'reward',
  done: 'done',
  terminated: 'terminated',
  rolling_gamma: 'rollingGamma',
  time_dim: 'timeDim',
  log_pi: 'logPi',
  log_mu: 'logMu',
  rho_thresh: 'rhoMax',
  c_thresh: 'cMax',
}
const ROUNDED = 'gamma is not rounded to a single where the data are doubles'
const ZERO_FACTOR = 'the vectorised form may have a factor of 0'

const isDouble = (args) => args.reward.$t === 'float64'
const isVectorised = (topic) => topic.startsWith('vec_')

function toleranceOf(topic, args) {
  // The vectorised TD(lambda) mixes a single and a double of the same factor in one sum: no factors give its digits.
  if (isDouble(args) && topic === 'vec_td_lambda_return_estimate') return { relative: 1e-7, absolute: 1e-9 }
  if (isDouble(args)) return { relative: 1e-10, absolute: 1e-12 }
  return { relative: isVectorised(topic) ? 1e-3 : 1e-4, absolute: 1e-5 }
}

const plainTopic = (topic) => topic?.replace(/^vec_/, '')

export const values = {
  topic: 'value estimates',
  members: { input: 'id topic args note', expected: 'ok', refusal: 'error:ok' },
  tolerance: ({ topic, args }) => toleranceOf(topic, args),
  matches: ({ topic, args }) => plainTopic(topic) in ESTIMATES && args !== undefined,
  prepare: () => undefined,
  check: ({ value: row }) => ofEstimate(row),
}

function ofEstimate({ topic, args, ok }) {
  const estimate = (options) => attempt(() => ESTIMATES[plainTopic(topic)](options))
  const got = estimate(optionsOf(args))
  const fails = isVectorised(topic) && hasZeroFactor(args)
  if (ok === undefined) {
    if (got.error) return fails ? 'it must be computed' : undefined
    return fails ? decided(ZERO_FACTOR) : 'must be refused'
  }
  if (fails) return 'the original divides by 0'
  if (got.error) return got.error.message
  const wanted = [ok].flat().map(tensorIn)
  const difference = farther(got.value, wanted, toleranceOf(topic, args))
  if (difference === undefined || !isDouble(args)) return difference
  // The factors as the original keeps them give its numbers.
  const far = roundedFactors(args).map((factors) =>
    farther(estimate(optionsOf({ ...args, ...factors })).value, wanted, toleranceOf(topic, args)),
  )
  return far.includes(undefined) ? decided(ROUNDED) : difference
}

/** The factors that are singles there: each, or one of them, or gamma and the product of both. */
function roundedFactors({ gamma, lmbda }) {
  if (typeof gamma !== 'number') return []
  const single = Math.fround(gamma)
  if (typeof lmbda !== 'number') return [{ gamma: single }]
  const product = gamma * lmbda
  return [
    [single, Math.fround(lmbda)],
    [single, lmbda],
    [gamma, Math.fround(lmbda)],
    [single, Math.fround(product) / single],
    [single, product / single],
  ].map(([one, other]) => ({ gamma: one, lmbda: other }))
}

/** Returns true if the factor is one number and equals 0; factors per step take another path. */
function hasZeroFactor({ gamma, lmbda = 1 }) {
  const factors = [gamma, lmbda].map((factor) => [factor?.d ?? factor].flat())
  return factors.every((factor) => factor.length === 1) && factors.some(([one]) => Number(one) === 0)
}

function farther(value, wanted, { relative, absolute }) {
  const got = value instanceof Tensor ? [value] : [value.advantage, value.target]
  if (got.length !== wanted.length) return `${got.length} columns for ${wanted.length}`
  for (const [at, want] of wanted.entries()) {
    if (got[at].dtype !== want.dtype || String(got[at].shape) !== String(want.shape))
      return `${got[at].dtype} ${got[at].shape} for ${want.dtype} ${want.shape}`
    const index = want.data.findIndex(
      (one, index) => !(Math.abs(one - got[at].data[index]) <= absolute + relative * Math.abs(one)),
    )
    if (index >= 0) return `[${at}][${index}]: got ${got[at].data[index]}, expected ${want.data[index]}`
  }
  return undefined
}

const optionsOf = (args) =>
  given(Object.fromEntries(Object.entries(args).map(([name, value]) => [NAMES[name], optionIn(value)])))

/** A number, a bool or a column; a tensor without dimensions is a number. */
function optionIn(value) {
  if (value?.$t === undefined) return value
  return value.s.length === 0 ? Number(value.d) : tensorIn(value)
}
