/**
 * Compares returns and advantages of steps with what TorchRL gave for the same ones: doubles to a relative 1e-10, singles to 1e-4, and
 * of a refusal only the fact. Its vectorised forms are the same functions here.
 */

import {
  generalizedAdvantageEstimate,
  reward2go,
  Tensor,
  td0AdvantageEstimate,
  td0ReturnEstimate,
  td1AdvantageEstimate,
  td1ReturnEstimate,
  tdLambdaAdvantageEstimate,
  tdLambdaReturnEstimate,
  vtraceAdvantageEstimate,
} from 'fulmar'
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
const ROUNDED = decided('gamma is not rounded to a single where the data are doubles')
const ZERO_FACTOR = decided('the vectorised form may have a factor of 0')

const plainTopic = (topic) => topic?.replace(/^vec_/, '')

export const values = {
  topic: 'value estimates',
  matches: ({ topic, args }) => plainTopic(topic) in ESTIMATES && args !== undefined,
  prepare: () => undefined,
  check: ({ value: row }) => ofEstimate(row),
}

function ofEstimate(row) {
  const got = attempt(() => ESTIMATES[plainTopic(row.topic)](optionsOf(row.args)))
  if (row.ok === undefined) {
    if (got.error) return undefined
    return row.topic.startsWith('vec_') ? ZERO_FACTOR : 'must be refused'
  }
  if (got.error) return got.error.message
  const tensors = got.value instanceof Tensor ? [got.value] : [got.value.advantage, got.value.target]
  const wanted = [row.ok].flat().map(tensorIn)
  const isDouble = row.args.reward.$t === 'float64'
  const difference = farther(tensors, wanted, isDouble ? 1e-10 : 1e-4)
  return difference && isDouble && farther(tensors, wanted, 1e-6) === undefined ? ROUNDED : difference
}

function farther(got, wanted, tolerance) {
  for (const [at, want] of wanted.entries()) {
    if (got[at]?.dtype !== want.dtype || String(got[at].shape) !== String(want.shape))
      return `${got[at]?.dtype} ${got[at]?.shape} for ${want.dtype} ${want.shape}`
    const index = want.data.findIndex(
      (one, index) => !(Math.abs(one - got[at].data[index]) <= tolerance * Math.max(1, Math.abs(one))),
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
