/**
 * Compares advantages, KL estimates, log-probabilities of logits, token drawing and torchtitan's losses with what their programs gave:
 * numbers to a relative 1e-5, choices and kept tokens exactly, and of a refusal only the fact.
 */

import {
  drawProbabilities,
  GRPOLoss,
  generalizedAdvantageEstimate,
  groupAdvantage,
  headBackward,
  headLogProbs,
  importanceWeights,
  klEstimate,
  klReward,
  MCAdvantage,
  MCAdvantageSelector,
  reward2go,
  Tensor,
  TopKRewardSelector,
  td0AdvantageEstimate,
  td0ReturnEstimate,
  td1AdvantageEstimate,
  td1ReturnEstimate,
  tdLambdaAdvantageEstimate,
  tdLambdaReturnEstimate,
  tokenLogProbs,
  tokenLogProbsBackward,
  vtraceAdvantageEstimate,
} from 'fulmar'
import { attempt, bits, camel, farther, flat, number, offsetsIn, singles } from './loss-rows.mjs'

/** Sequences of unequal length, which upstream cannot stack. */
const RAGGED = { byDecision: 'rewards of sequences of unequal length are computed' }

/** Upstream's TD(1) with factors that do not roll forgets the value of what follows the last step. */
const LAST_VALUE = { byDecision: 'steps that do not end go on with the value of what follows' }

const KINDS = {
  mc_advantage: mcAdvantage,
  mc_advantage_ragged_tokens: tokenRewards,
  selector,
  topk,
  trl_grpo_advantages: grpoAdvantages,
  trl_rloo_advantages: rlooAdvantages,
  value_estimator: valueEstimate,
  k3_token_estimate: klEstimates,
  KLComputation: klRewards,
  KLRewardTransform: klRewards,
  trl_vllm_importance_ratio: importanceRatio,
  gather,
  liger_fused_linear_grpo: fusedHead,
  loss: torchtitanLoss,
  advantage: torchtitanAdvantage,
  transformers: drawn,
  vllm_penalties: drawn,
  vllm_topk_topp: drawn,
}

export const objective = {
  topic: 'advantages, KL, logits, drawing',
  matches: ({ kind }) => kind in KINDS,
  prepare: () => undefined,
  check: ({ value: row }) => KINDS[row.kind](row),
}

/** Snake-cased options that are given, as TypeScript writes them. */
const given = (config, names) =>
  Object.fromEntries(
    names.filter((name) => (config[name] ?? null) !== null).map((name) => [camel(name), config[name]]),
  )

const refused = (outcome) => (outcome.code === 'OUT_OF_RANGE' ? undefined : 'must be refused')

/** The first difference of several. */
const first = (...differences) => differences.find((difference) => difference !== undefined)

function mcAdvantage(row) {
  const names = ['grpo_size', 'trajectory_return', 'keep_return_bounds', 'candidate_group_size']
  const options = given(row.config, [...names, 'candidate_selection_min_size'])
  const made = attempt(() => new MCAdvantage(options))
  if (row.expected_error) return refused(made)
  const queues = made.value
  for (const [at, { trajectories }] of row.calls.entries()) {
    const out = trajectories.flatMap(
      ({ group, rewards }) => queues.push(JSON.stringify(group), rewards, rewards) ?? [],
    )
    const wanted = row.outputs[at] ?? { reward: [], advantage: [] }
    const difference = first(
      farther(
        'reward',
        out.flatMap(({ item }) => item),
        wanted.reward,
      ),
      farther(
        'advantage',
        out.flatMap(({ advantage }) => [...advantage]),
        wanted.advantage,
      ),
    )
    if (difference) return `call ${at}: ${difference}`
  }
  const stats = queues.stats()
  const wrong = Object.entries(row.stats).find(([name, value]) => {
    const [got, want] = [stats[camel(name)] ?? Number.NEGATIVE_INFINITY, number(value)]
    return got !== want && !(Math.abs(got - want) <= 1e-5)
  })
  return wrong && `${wrong[0]}: got ${stats[camel(wrong[0])]}, expected ${wrong[1]}`
}

function tokenRewards(row) {
  const queues = new MCAdvantage({ grpoSize: row.config.grpo_size })
  const out = row.token_rewards.map((rewards) => queues.push('group', rewards, undefined))
  const got = out.flatMap((group) => group?.flatMap(({ advantage }) => [...advantage]) ?? [])
  return farther(
    'advantage',
    got,
    row.outputs.flat(2).filter((value) => value !== null),
  )
}

function selector(row) {
  const options = { strategy: row.strategy, maxCombinations: row.max_combinations }
  const bounds = row.keep_return_bounds ? { keepReturnBounds: row.keep_return_bounds } : {}
  const got = attempt(() =>
    new MCAdvantageSelector(options).select(row.returns, { groupSize: row.group_size, ...bounds }),
  )
  if (row.expected_error) return refused(got)
  const same = JSON.stringify(got.value ?? null) === JSON.stringify(row.selected)
  return same ? undefined : `got ${got.value}, expected ${row.selected}`
}

function topk(row) {
  const made = attempt(
    () => new TopKRewardSelector({ totalDialogTurns: row.total_dialog_turns, topkSize: row.topk_size }),
  )
  if (row.expected_error) return refused(made)
  const got = row.items.map(({ prompt, reward }) => made.value.push(prompt, reward, reward) ?? null)
  return JSON.stringify(got) === JSON.stringify(row.outputs) ? undefined : `got ${JSON.stringify(got)}`
}

function grpoAdvantages(row) {
  const isSum = row.multi_objective_aggregation === 'sum_then_normalize'
  const { advantage } = groupAdvantage({
    rewards: row.rewards_per_func,
    weights: row.reward_weights,
    aggregation: isSum ? 'sumThenNormalize' : 'normalizeThenSum',
    groupSize: row.num_generations,
    scale: row.scale_rewards,
    stdFloor: 0,
  })
  return farther('advantage', advantage, row.advantages)
}

function rlooAdvantages(row) {
  const [low, high] = row.reward_clip_range ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]
  const { advantage } = groupAdvantage({
    rewards: row.rewards.map((reward) => Math.min(Math.max(reward, low), high)),
    groupSize: row.num_generations,
    baseline: 'leaveOneOut',
    scale: row.normalize_advantages ? 'batch' : 'none',
    stdFloor: 0,
  })
  return farther('advantage', advantage, row.advantages)
}

const STEPS = ['reward', 'done']
const VALUED = [...STEPS, 'nextValue', 'terminated']
const TD1 = [...VALUED, 'rollingGamma']
const LAMBDA = [...TD1, 'lambda']
const ESTIMATES = {
  generalized_advantage_estimate: [generalizedAdvantageEstimate, [...VALUED, 'value', 'lambda']],
  td0_return_estimate: [td0ReturnEstimate, VALUED],
  td0_advantage_estimate: [td0AdvantageEstimate, [...VALUED, 'value']],
  td1_return_estimate: [td1ReturnEstimate, TD1],
  td1_advantage_estimate: [td1AdvantageEstimate, [...TD1, 'value']],
  td_lambda_return_estimate: [tdLambdaReturnEstimate, LAMBDA],
  td_lambda_advantage_estimate: [tdLambdaAdvantageEstimate, [...LAMBDA, 'value']],
  vtrace_advantage_estimate: [
    vtraceAdvantageEstimate,
    [...VALUED, 'value', 'logPi', 'logMu', 'rhoMax', 'cMax'],
  ],
  reward2go: [reward2go, STEPS],
}

function valueEstimate(row) {
  const [estimate, names] = ESTIMATES[row.function]
  const doubles = (value) => Tensor.from(Float64Array.from(flat(value)), { shape: row.shape })
  const bools = (value) => Tensor.from(bits(value), { shape: row.shape, dtype: 'bool' })
  const factor = (value) => (Array.isArray(value) ? doubles(value) : value)
  const all = {
    reward: doubles(row.reward),
    done: bools(row.done),
    ...(row.terminated && { terminated: bools(row.terminated) }),
    ...(row.state_value && { value: doubles(row.state_value), nextValue: doubles(row.next_state_value) }),
    ...(row.log_pi && { logPi: doubles(row.log_pi), logMu: doubles(row.log_mu) }),
    ...((row.rolling_gamma ?? null) !== null && { rollingGamma: row.rolling_gamma }),
    ...(row.rho_thresh !== undefined && { rhoMax: row.rho_thresh, cMax: row.c_thresh }),
    lambda: factor(row.lmbda),
  }
  const compared = (columns) => {
    const known = Object.entries(columns).filter(([name]) => names.includes(name))
    const got = estimate({ ...Object.fromEntries(known), gamma: factor(row.gamma), timeDim: row.time_dim })
    const tensors = got instanceof Tensor ? [got] : [got.advantage, got.target]
    return farther(
      row.function,
      tensors.flatMap(({ data }) => [...data]),
      row.outputs,
    )
  }
  const difference = compared(all)
  if (difference === undefined || row.rolling_gamma !== false) return difference
  const valueless = {
    ...all,
    nextValue: Tensor.from(new Float64Array(flat(row.reward).length), { shape: row.shape }),
  }
  return compared(valueless) === undefined ? LAST_VALUE : difference
}

function klEstimates(row) {
  const count = row.log_probs.length
  const batch = {
    logProb: singles(row.log_probs),
    refLogProb: singles(row.target_log_probs),
    mask: new Uint8Array(count).fill(1),
  }
  const { kl, gradLogProb } = klEstimate({ ...batch, estimator: 'k3' })
  return first(
    farther('k3', kl, row.k3),
    farther(
      'k3 gradient',
      gradLogProb.map((gradient) => gradient * count),
      row.k3_grad_log_probs,
    ),
    farther('k1', klEstimate({ ...batch, estimator: 'k1' }).kl, row.k1_from_KLComputation),
  )
}

function klRewards(row) {
  const sequences = row.gen_log_probs ?? row.log_probs
  const behind = sequences.map((tokens, s) => tokens.map((_, t) => t >= (row.prompt_lengths?.[s] ?? 0)))
  const { kl, reward } = klReward({
    logProb: singles(sequences),
    refLogProb: singles(row.ref_log_probs),
    mask: bits(row.assistant_mask ?? behind),
    offsets: offsetsIn(sequences),
    reward: singles(row.rewards),
    coefficient: row.coef ?? row.config.coeff ?? 1,
    place: 'everyToken',
  })
  if (row.upstream_bug) return reward.length === flat(sequences).length ? RAGGED : 'a reward for each token'
  return first(
    farther('kl', kl, row.outputs.kl ?? row.outputs.kl_penalty),
    row.outputs.reward && farther('reward', reward, row.outputs.reward),
  )
}

function importanceRatio(row) {
  const [level, rule] = row.mode.split('_')
  const mask = bits(row.completion_mask)
  const got = importanceWeights({
    oldLogProb: singles(row.old_log_probs),
    samplerLogProb: singles(row.sampling_log_probs),
    mask,
    offsets: offsetsIn(row.old_log_probs),
    level,
    rule,
    min: row.clip_min ?? 0,
    max: row.clip_max ?? 1e30,
  })
  const wanted = row.ratio.flatMap((values, s) => row.old_log_probs[s].map((_, t) => values[t] ?? values[0]))
  return farther('ratio', got, wanted, { counts: (t) => mask[t] === 1 })
}

function gather(row) {
  const options = {
    logits: singles(row.logits),
    ids: Uint32Array.from(row.ids),
    temperature: row.temperature,
  }
  const { logProb, entropy } = tokenLogProbs(options)
  const [upstream, none] = [singles(row.upstream_gradient), new Float32Array(row.ids.length)]
  const backward = (gradLogProb, gradEntropy) =>
    tokenLogProbsBackward({ ...options, gradLogProb, gradEntropy })
  const masked = (values) => [...values].map((value, t) => (row.mask?.[t] ? value : 0))
  return first(
    farther('log-probs', logProb, row.log_probs),
    farther('entropy', entropy, row.entropy),
    farther('gradient of log-probs', backward(upstream, none), row.grad_logits_of_log_probs),
    farther('gradient of entropy', backward(none, upstream), row.grad_logits_of_entropy),
    row.masked_categorical_log_prob &&
      farther('masked log-probs', masked(logProb), row.masked_categorical_log_prob),
    row.masked_categorical_entropy &&
      farther('masked entropy', masked(entropy), row.masked_categorical_entropy),
  )
}

function fusedHead(row) {
  const { loss_type: type, beta, temperature, max_completion_length: fixedLength } = row.config
  const ids = Uint32Array.from(flat(row.ids))
  const width = row.weight[0].length
  const head = { hidden: singles(row.hidden), weight: singles(row.weight), width, ids, temperature }
  const normalization = { grpo: 'sequenceMean', bnpo: 'tokenMean', dr_grpo: { fixedLength } }[type]
  const { loss, gradLogProb } = new GRPOLoss({ normalization, klToRef: { coefficient: beta } }).forward({
    logProb: headLogProbs(head).logProb,
    oldLogProb: singles(row.old_log_probs),
    refLogProb: singles(row.ref_log_probs),
    advantage: singles(row.advantages),
    mask: bits(row.mask),
    offsets: offsetsIn(row.ids),
  })
  const gradients = headBackward({ ...head, gradLogProb })
  return first(
    farther('loss', [loss], [row.loss]),
    farther('hidden', gradients.hidden, row.gradients.hidden),
    farther('weight', gradients.weight, row.gradients.weight),
  )
}

function torchtitanLoss(row) {
  const { clip_eps: both = 0.2, ratio_clip_low: low = both, ratio_clip_high: high = both } = row.config
  const options = { logits: singles(row.logits), ids: Uint32Array.from(row.labels) }
  // No count, or a count of 0, divides by 1 upstream.
  const normalization = { globalTokens: Math.max(row.global_valid_tokens ?? 1, 1) }
  const { loss, gradLogProb } = new GRPOLoss({ clipEpsilon: [low, high], normalization }).forward({
    logProb: tokenLogProbs(options).logProb,
    oldLogProb: singles(row.generator_logprobs),
    advantage: singles(row.advantages),
    mask: bits(row.loss_mask),
    offsets: Uint32Array.of(0, row.labels.length),
  })
  return first(
    farther('loss', [loss], [row.value]),
    farther('logits', tokenLogProbsBackward({ ...options, gradLogProb }), row.grad_logits),
  )
}

function torchtitanAdvantage({ rewards, should_std_normalize: normalizes, advantages }) {
  const scale = normalizes ? 'group' : 'none'
  const options = { scale, std: 'population', epsilon: 1e-6, stdFloor: 0 }
  return farther(
    'advantage',
    groupAdvantage({ rewards, groupSize: rewards.length, ...options }).advantage,
    advantages,
  )
}

const RULES = ['temperature', 'top_p', 'min_p', 'repetition_penalty', 'presence_penalty', 'frequency_penalty']

function drawn(row) {
  const config = row.config ?? row
  const got = attempt(() =>
    drawProbabilities({
      logits: singles(row.logits),
      promptIds: Uint32Array.from(row.input_ids ?? row.prompt_ids ?? []),
      outputIds: Uint32Array.from(row.output_ids ?? []),
      ...given(config, RULES),
      ...(config.top_k > 0 && { topK: config.top_k }),
    }),
  )
  if (row.expected_error) return refused(got)
  const kept = [...got.value.keys()].filter((id) => got.value[id] > 0)
  const wrongKept = row.kept && String(kept) !== String(row.kept) ? `kept ${kept}` : undefined
  return first(wrongKept, farther('probabilities', got.value, row.probs))
}
