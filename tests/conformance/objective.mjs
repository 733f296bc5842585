/**
 * Compares advantages, KL estimates, log-probabilities of logits, token drawing and torchtitan's losses with what their programs gave:
 * numbers to a relative 1e-5, choices and kept tokens exactly, and of a refusal only the fact.
 */

import { Tensor } from 'fulmar'
import {
  drawProbabilities,
  GRPOLoss,
  groupAdvantage,
  headBackward,
  headLogProbs,
  importanceWeights,
  klEstimate,
  klReward,
  MCAdvantage,
  MCAdvantageSelector,
  TopKRewardSelector,
  tokenLogProbs,
  tokenLogProbsBackward,
} from 'fulmar/objective'
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
import { attempt, bits, camel, decided, farther, flat, number, offsetsIn, singles } from './loss-rows.mjs'

const RAGGED = 'rewards of sequences of unequal length are computed'
const LAST_VALUE = 'steps that do not end continue with the value of what follows'

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
  transformers_more: drawn,
  vllm_penalties: drawn,
  vllm_topk_topp: drawn,
}

const QUEUE = `id kind case note dtype config.grpo_size config.trajectory_return config.keep_return_bounds config.candidate_group_size
  config.candidate_selection_min_size calls token_rewards`
const CHOICE = 'id kind strategy returns group_size keep_return_bounds max_combinations'
const MEMBERS = {
  mc_advantage: { input: QUEUE, expected: 'outputs stats', refusal: 'expected_error:outputs' },
  mc_advantage_ragged_tokens: { input: QUEUE, expected: 'outputs', refusal: 'expected_error:outputs' },
  selector: { input: CHOICE, expected: 'selected', refusal: 'expected_error:selected' },
  topk: {
    input: 'id kind total_dialog_turns topk_size items',
    expected: 'outputs',
    refusal: 'expected_error:outputs',
  },
  trl_grpo_advantages: {
    input: `id kind case note dtype rewards_per_func reward_weights num_generations scale_rewards multi_objective_aggregation`,
    expected: 'advantages rewards std_rewards is_std_zero',
  },
  trl_rloo_advantages: {
    input: `id kind case dtype rewards num_generations normalize_advantages reward_clip_range beta old_log_probs ref_log_probs
      completion_mask`,
    expected: 'advantages',
  },
  value_estimator: {
    input: `id kind function case shape time_dim gamma lmbda rolling_gamma state_value next_state_value reward done terminated log_pi log_mu
      rho_thresh c_thresh`,
    expected: 'outputs',
    aside: {
      gradients_of_first_output_sum: 'estimates are functions of numbers here, which have no gradient',
      vectorised_max_abs_diff: 'it compares two forms of the original',
      vectorised_error: 'it is of another form of the original',
    },
  },
  k3_token_estimate: {
    input: 'kind case log_probs target_log_probs',
    expected: 'k3 k3_grad_log_probs k1_from_KLComputation',
  },
  KLComputation: { input: 'kind case gen_log_probs ref_log_probs rewards config note', expected: 'outputs' },
  KLRewardTransform: {
    input: `kind case log_probs ref_log_probs assistant_mask prompt_lengths rewards coef pad_output add_to_reward note dtype upstream_bug`,
    expected: 'outputs',
    refusal: 'expected_error:outputs',
  },
  trl_vllm_importance_ratio: {
    input: 'kind case mode clip_min clip_max old_log_probs sampling_log_probs completion_mask tool_mask',
    expected: 'ratio',
  },
  gather: {
    input: 'kind case dtype logits ids temperature mask upstream_gradient',
    expected: `log_probs entropy grad_logits_of_log_probs grad_logits_of_entropy masked_categorical_log_prob masked_categorical_entropy
      masked_categorical_mode`,
  },
  liger_fused_linear_grpo: {
    input: `kind config.loss_type config.beta config.temperature config.max_completion_length hidden weight bias ids mask advantages
      ref_log_probs old_log_probs vllm_is_ratio dtype`,
    expected: 'loss metrics gradients',
  },
  loss: {
    input: `kind case loss config.clip_eps config.ratio_clip_low config.ratio_clip_high logits labels generator_logprobs advantages loss_mask
      global_valid_tokens dtype`,
    expected: 'value metrics grad_logits',
  },
  advantage: { input: 'kind should_std_normalize rewards', expected: 'advantages' },
  transformers: {
    input: `kind case logits input_ids prompt_length config.top_k config.temperature config.top_p config.min_p config.repetition_penalty`,
    expected: 'processed_logits probs kept processors',
    refusal: 'expected_error:probs',
  },
  transformers_more: {
    input: `kind case logits input_ids config.top_k config.temperature config.top_p config.min_p config.repetition_penalty config.typical_p
      config.top_h config.epsilon_cutoff config.eta_cutoff config.no_repeat_ngram_size config.sequence_bias config.bad_words_ids`,
    expected: 'probs kept processors',
  },
  vllm_penalties: {
    input: `kind logits prompt_ids output_ids presence_penalty frequency_penalty repetition_penalty`,
    expected: 'processed_logits probs',
  },
  vllm_topk_topp: { input: 'kind logits top_k top_p', expected: 'kept probs' },
}

export const objective = {
  topic: 'advantages, KL, logits, drawing',
  members: ({ kind }) => MEMBERS[kind],
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

const MODES = ['single', 'concat', 'stack']

function mcAdvantage(row) {
  const names = ['grpo_size', 'trajectory_return', 'keep_return_bounds', 'candidate_group_size']
  const options = given(row.config, [...names, 'candidate_selection_min_size'])
  const made = attempt(() => new MCAdvantage(options))
  if (row.expected_error) return refused(made)
  if (made.value === undefined) return `must be made: ${made.code}`
  const queues = made.value
  for (const [at, { mode, trajectories }] of row.calls.entries()) {
    if (!MODES.includes(mode)) return `the mode ${mode} is not known`
    const out = trajectories.flatMap(
      ({ group, rewards }) => queues.push(JSON.stringify(group), rewards, { group, rewards }) ?? [],
    )
    const difference = groupDifference(out, row.outputs[at])
    if (difference) return `call ${at}: ${difference}`
  }
  if (row.outputs.length !== row.calls.length)
    return `${row.outputs.length} outputs of ${row.calls.length} calls`
  const stats = queues.stats()
  const wrong = Object.entries(row.stats).find(([name, value]) => {
    const [got, want] = [stats[camel(name)] ?? Number.NEGATIVE_INFINITY, number(value)]
    return got !== want && !(Math.abs(got - want) <= 1e-5 * Math.abs(want) + 1e-6)
  })
  return wrong && `${wrong[0]}: got ${stats[camel(wrong[0])]}, expected ${wrong[1]}`
}

/** Rows of a group that is complete, or null; each step is a row. */
function groupDifference(out, wanted) {
  if (wanted === null) return out.length === 0 ? undefined : `got ${out.length} trajectories, expected none`
  const groups = out.flatMap(({ item }) => item.rewards.map(() => item.group))
  const strange = Object.keys(wanted).find(
    (name) => !['reward', 'advantage', 'group', 'batch_size'].includes(name),
  )
  return first(
    strange && `${strange} is not known`,
    same([groups, [groups.length]], [wanted.group, wanted.batch_size]),
    farther(
      'reward',
      out.flatMap(({ item }) => item.rewards),
      wanted.reward,
    ),
    farther(
      'advantage',
      out.flatMap(({ advantage }) => [...advantage]),
      wanted.advantage,
    ),
    same(
      [wanted.reward, wanted.advantage].map((rows) => rows.map((one) => one.length)),
      [groups, groups].map((all) => all.map(() => 1)),
    ),
  )
}

function same(got, wanted) {
  const [left, right] = [JSON.stringify(got), JSON.stringify(wanted)]
  return left === right ? undefined : `got ${left}, expected ${right}`
}

/** Groups of trajectories with a reward a token; what is incomplete gives null. */
function tokenRewards(row) {
  const queues = new MCAdvantage({ grpoSize: row.config.grpo_size })
  for (const [at, rewards] of row.token_rewards.entries()) {
    const group = queues.push('group', rewards, rewards)
    const wanted = row.outputs[at]
    if ((group === undefined) !== (wanted === null)) return `call ${at}: ${group} for ${wanted}`
    const lists = group?.map(({ advantage }) => [...advantage])
    const difference =
      lists &&
      (farther('advantage', lists.flat(), wanted) ??
        same(
          lists.map((list) => list.length),
          wanted.map((list) => list.length),
        ))
    if (difference) return `call ${at}: ${difference}`
  }
  return row.outputs.length === row.token_rewards.length ? undefined : `${row.outputs.length} outputs`
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

const AGGREGATIONS = { sum_then_normalize: 'sumThenNormalize', normalize_then_sum: 'normalizeThenSum' }

function grpoAdvantages(row) {
  const { advantage } = groupAdvantage({
    rewards: row.rewards_per_func,
    weights: row.reward_weights,
    aggregation: AGGREGATIONS[row.multi_objective_aggregation],
    groupSize: row.num_generations,
    scale: row.scale_rewards,
    stdFloor: 0,
  })
  const { rewards, std } = trlRewards(row)
  return first(
    farther('advantage', advantage, row.advantages),
    farther('rewards', rewards, row.rewards),
    farther('std', std, row.std_rewards),
    same(
      std.map((one) => Math.abs(one) <= 1e-8),
      row.is_std_zero,
    ),
  )
}

/** TRL's additional results: the rewards that it compares, and their deviation. */
function trlRewards(row) {
  const size = row.num_generations
  const columns = row.rewards_per_func.map((rewards) =>
    rewards.map((one) => (one === null ? Number.NaN : one)),
  )
  const groups = (values) =>
    values.map((_, at) => values.slice(Math.floor(at / size) * size, (Math.floor(at / size) + 1) * size))
  const isSum = row.multi_objective_aggregation === 'sum_then_normalize'
  const scaled = row.reward_weights.map((weight, of) => {
    const values = columns.map((rewards) => rewards[of])
    if (isSum) return values.map((one) => one * weight)
    return groups(values).map(
      (group, at) => (weight * (values[at] - meanOf(group))) / (deviation(group) + 1e-4),
    )
  })
  const rewards = columns.map((_, at) => {
    const known = scaled.map((values) => values[at]).filter((one) => !Number.isNaN(one))
    return known.length === 0 ? Number.NaN : known.reduce((sum, one) => sum + one, 0)
  })
  const isBatch = !isSum || row.scale_rewards === 'batch'
  return { rewards, std: isBatch ? rewards.map(() => deviation(rewards)) : groups(rewards).map(deviation) }
}

const scored = (values) => values.filter((one) => !Number.isNaN(one))
const meanOf = (values) => scored(values).reduce((sum, one) => sum + one, 0) / scored(values).length
const deviation = (values) =>
  Math.sqrt(
    scored(values).reduce((sum, one) => sum + (one - meanOf(values)) ** 2, 0) / (scored(values).length - 1),
  )

function rlooAdvantages(row) {
  const strange = ['old_log_probs', 'ref_log_probs', 'completion_mask'].find((name) => row[name] !== null)
  if (row.beta !== 0 || strange) return { skipped: 'a penalty of KL inside of the rewards of RLOO' }
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
  return compared(valueless) === undefined ? decided(LAST_VALUE) : difference
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
  const behindMask = bits(row.assistant_mask ?? behind)
  const { kl, reward } = klReward({
    logProb: singles(sequences),
    refLogProb: singles(row.ref_log_probs),
    mask: behindMask,
    offsets: offsetsIn(sequences),
    reward: singles(row.rewards),
    coefficient: row.coef ?? row.config.coeff ?? 1,
    place: 'everyToken',
  })
  const gaps = flat(sequences).map((one, t) => behindMask[t] * (one - flat(row.ref_log_probs)[t]))
  const own = sequences.flatMap((tokens, s) => tokens.map(() => number(row.rewards[s])))
  const coefficient = row.coef ?? row.config.coeff ?? 1
  const implied = first(
    farther('kl', kl, gaps),
    farther(
      'reward',
      reward,
      gaps.map((gap, t) => own[t] - coefficient * gap),
    ),
  )
  if (row.expected_error) {
    const isRagged = new Set(sequences.map((tokens) => tokens.length)).size > 1
    return isRagged ? decided(RAGGED, implied) : 'must be refused'
  }
  const { kl: one, kl_penalty: other, reward: theirs, ref_log_probs: shown, ...rest } = row.outputs
  const adds = row.add_to_reward ?? row.config?.add_to_reward ?? true
  const masked = flat(row.ref_log_probs).map((value, t) => behindMask[t] * value)
  return first(
    Object.keys(rest).length > 0 ? `${Object.keys(rest)} is not known` : undefined,
    farther('kl', kl, one ?? other),
    lengthsDiffer(one ?? other, sequences),
    adds || theirs !== undefined ? farther('reward', reward, theirs) : undefined,
    shown && farther('reference', shown, masked),
    ...[theirs, shown].map((rows) => rows && lengthsDiffer(rows, sequences)),
  )
}

const lengthsDiffer = (rows, sequences) =>
  same(
    rows.map((row) => row.length),
    sequences.map((tokens) => tokens.length),
  )

function importanceRatio(row) {
  const [level, rule] = row.mode.split('_')
  const tools = row.tool_mask && flat(row.tool_mask)
  const mask = bits(row.completion_mask).map((bit, t) => bit * (tools?.[t] ?? 1))
  const [min, max] = [row.clip_min ?? 0, row.clip_max ?? 1e30]
  const got = importanceWeights({
    oldLogProb: singles(row.old_log_probs),
    samplerLogProb: singles(row.sampling_log_probs),
    mask,
    offsets: offsetsIn(row.old_log_probs),
    level,
    rule,
    min,
    max,
  })
  const wanted = row.ratio.flatMap((values, s) => row.old_log_probs[s].map((_, t) => values[t] ?? values[0]))
  // The original also gives a ratio of 1, and its rule, to tokens that are not trained.
  const untrained = rule === 'truncate' ? Math.min(Math.max(1, min), max) : Number(min <= 1 && 1 <= max)
  const widths = row.old_log_probs.map((values) => (level === 'token' ? values.length : 1))
  return first(
    same(
      row.ratio.map((values) => values.length),
      widths,
    ),
    farther('ratio', got, wanted, { counts: (t) => mask[t] === 1 }),
    level === 'token'
      ? farther(
          'untrained',
          wanted.map(() => untrained),
          wanted,
          { counts: (t) => mask[t] === 0 },
        )
      : undefined,
  )
}

/** Probabilities near 1 are as near as singles are, and so are gradients by logits. */
const BY_LOGITS = { absolute: 1e-6 }

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
  const { masked_categorical_log_prob: maskedLogProb, masked_categorical_entropy: maskedEntropy } = row
  const modes = row.logits.map((logits, t) =>
    row.mask?.[t] ? logits.indexOf(Math.max(...logits)) : undefined,
  )
  return first(
    farther('log-probs', logProb, row.log_probs),
    farther('entropy', entropy, row.entropy),
    same(shapeOf(row.grad_logits_of_log_probs), shapeOf(row.logits)),
    same(shapeOf(row.grad_logits_of_entropy), shapeOf(row.logits)),
    farther('gradient of log-probs', backward(upstream, none), row.grad_logits_of_log_probs, BY_LOGITS),
    farther('gradient of entropy', backward(none, upstream), row.grad_logits_of_entropy, BY_LOGITS),
    maskedLogProb && farther('masked log-probs', masked(logProb), maskedLogProb),
    maskedEntropy && farther('masked entropy', masked(entropy), maskedEntropy),
    row.masked_categorical_mode &&
      same(
        modes.map((mode, t) => mode ?? row.masked_categorical_mode[t]),
        row.masked_categorical_mode,
      ),
  )
}

const shapeOf = (value) => (Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [])

function fusedHead(row) {
  const { loss_type: type, beta, temperature, max_completion_length: fixedLength } = row.config
  const ids = Uint32Array.from(flat(row.ids))
  const width = row.weight[0].length
  const head = { hidden: singles(row.hidden), weight: singles(row.weight), width, ids, temperature }
  const normalization = { grpo: 'sequenceMean', bnpo: 'tokenMean', dr_grpo: { fixedLength } }[type]
  if (row.bias !== null) return { skipped: 'a head with a bias' }
  const old = flat(row.old_log_probs)
  const ratios =
    row.vllm_is_ratio &&
    row.ids.flatMap((own, s) =>
      own.map((_, t) => flat(row.vllm_is_ratio[s])[t] ?? flat(row.vllm_is_ratio[s])[0]),
    )
  const { loss, gradLogProb, metrics } = new GRPOLoss({
    normalization,
    klToRef: { coefficient: beta },
    ...(ratios && { corrections: [{ rule: 'truncate', max: 1e30 }] }),
  }).forward({
    logProb: headLogProbs(head).logProb,
    oldLogProb: singles(old),
    ...(ratios && { samplerLogProb: singles(ratios.map((ratio, t) => old[t] - Math.log(ratio))) }),
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
    same(
      ['hidden', 'weight'].map((name) => shapeOf(row.gradients[name])),
      [shapeOf(row.hidden), shapeOf(row.weight)],
    ),
    farther('metrics', [metrics.klToRef, metrics.clipFractionLow + metrics.clipFractionHigh], row.metrics),
  )
}

function torchtitanLoss(row) {
  const { clip_eps: both = 0.2, ratio_clip_low: low = both, ratio_clip_high: high = both } = row.config
  const options = { logits: singles(row.logits), ids: Uint32Array.from(row.labels) }
  // No count, or a count of 0, divides by 1 upstream.
  const count = Math.max(row.global_valid_tokens ?? 1, 1)
  const { logProb, entropy } = tokenLogProbs(options)
  const mask = bits(row.loss_mask)
  const { loss, gradLogProb, metrics } = new GRPOLoss({
    clipEpsilon: [low, high],
    normalization: { globalTokens: count },
  }).forward({
    logProb,
    oldLogProb: singles(row.generator_logprobs),
    advantage: singles(row.advantages),
    mask,
    offsets: Uint32Array.of(0, row.labels.length),
  })
  const trained = mask.map((bit, t) => bit * Number(Number.isFinite(number(row.generator_logprobs[t]))))
  const gaps = [...logProb].map((one, t) => (trained[t] ? one - number(row.generator_logprobs[t]) : 0))
  const total = (values) => values.reduce((sum, one) => sum + one, 0)
  const share = metrics.numTokens / count
  const shown = {
    'loss/mean': loss,
    'loss/ratio_mean': metrics.ratioMean * share,
    'loss/ratio_clipped_frac': metrics.clipFraction * share,
    'bit_wise/logprob_diff/mean': total(gaps) / count,
    'bit_wise/ratio_tokens_different/mean': gaps.filter((gap) => gap !== 0).length / count,
    'bit_wise/logprob_diff/max': Math.max(...gaps.map(Math.abs)),
    'trainer/entropy/mean': total([...entropy].map((one, t) => one * trained[t])) / count,
  }
  return first(
    farther('loss', [loss], [row.value]),
    farther('logits', tokenLogProbsBackward({ ...options, gradLogProb }), row.grad_logits, BY_LOGITS),
    same(shapeOf(row.grad_logits), shapeOf(row.logits)),
    same(Object.keys(row.metrics).sort(), Object.keys(shown).sort()),
    ...Object.keys(shown).map((name) => farther(name, shown[name], row.metrics[name])),
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

const RULES =
  `temperature top_p min_p repetition_penalty presence_penalty frequency_penalty typical_p top_h epsilon_cutoff eta_cutoff
  no_repeat_ngram_size sequence_bias bad_words_ids`.split(/\s+/)

function drawn(row) {
  const config = row.config ?? row
  const topK = config.top_k
  const options = {
    logits: singles(row.logits),
    promptIds: Uint32Array.from(row.input_ids ?? row.prompt_ids ?? []),
    outputIds: Uint32Array.from(row.output_ids ?? []),
    ...given(config, RULES),
  }
  const got = attempt(() => drawProbabilities({ ...options, ...(topK > 0 && { topK }) }))
  if (row.expected_error) return refused(got)
  if (got.value === undefined) return `must give probabilities: ${got.code}`
  const kept = [...got.value.keys()].filter((id) => got.value[id] > 0)
  const wrongKept = row.kept && String(kept) !== String(row.kept) ? `kept ${kept}` : undefined
  return first(
    wrongKept,
    farther('probabilities', got.value, row.probs),
    row.processed_logits && processedDifference(row.processed_logits, got.value),
    row.processors && processorsDiffer(row, config, topK),
  )
}

/** Logits are known up to a constant: that of the likeliest token, to whose logit the others are compared. */
function processedDifference(logits, probabilities) {
  const numbers = flat(logits)
  if (numbers.length !== probabilities.length) return `${numbers.length} logits`
  const top = probabilities.indexOf(Math.max(...probabilities))
  const gaps = [...probabilities].map((one) => Math.log(one) - Math.log(probabilities[top]))
  const shown = numbers.map((one) => one - numbers[top])
  const at = gaps.findIndex((gap, id) =>
    gap === Number.NEGATIVE_INFINITY ? shown[id] !== gap : !(Math.abs(gap - shown[id]) <= 2e-5),
  )
  return at < 0 ? undefined : `logit ${at} lies ${shown[at]} from the largest, and ${gaps[at]} here`
}

/** The original's processors of a configuration, in its order. */
function processorsDiffer(
  { processors },
  { temperature = 1, top_p: topP = 1, min_p: minP, repetition_penalty: repetition = 1, ...more },
  topK,
) {
  const asked = [
    [more.sequence_bias !== undefined, 'SequenceBiasLogitsProcessor'],
    [repetition !== 1, 'RepetitionPenaltyLogitsProcessor'],
    [more.no_repeat_ngram_size > 0, 'NoRepeatNGramLogitsProcessor'],
    [more.bad_words_ids !== undefined, 'NoBadWordsLogitsProcessor'],
    [temperature !== 1, 'TemperatureLogitsWarper'],
    [more.top_h !== undefined, 'TopHLogitsWarper'],
    [topK > 0, 'TopKLogitsWarper'],
    [topP < 1, 'TopPLogitsWarper'],
    [(minP ?? 0) > 0, 'MinPLogitsWarper'],
    [(more.typical_p ?? 1) < 1, 'TypicalLogitsWarper'],
    [more.epsilon_cutoff > 0, 'EpsilonLogitsWarper'],
    [more.eta_cutoff > 0, 'EtaLogitsWarper'],
  ]
  return same(
    processors,
    asked.filter(([isAsked]) => isAsked).map(([, name]) => name),
  )
}
