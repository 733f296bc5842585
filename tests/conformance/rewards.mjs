/**
 * Compares rewards with what TorchRL, TRL and IFEval's checkers gave: truths exactly, rewards, which upstream keeps as singles, to 1e-6.
 * Answers of GSM8K and MATH are compared by what they are worth and letter by letter; both must agree with the row.
 */

import {
  CountdownRewardParser,
  extractBoxed,
  extractTags,
  GSM8KRewardParser,
  isCountdownSolution,
  isSameMath,
  MATHRewardParser,
  normalizeGsm8kAnswer,
  normalizeMath,
  parseCountdown,
  repetitionPenalty,
  softOverlongPunishment,
  thinkFormatReward,
} from 'fulmar/reward'
import { IfEvalScorer, ifEvalCheck } from 'fulmar/reward/ifeval'
import { decided } from './loss-rows.mjs'

const OPERATORS = 'countdown accepts + - * / alone, no powers and no whole division'

const KINDS = {
  gsm8k_normalize: ({ input, output }) => same(normalizeGsm8kAnswer(input), output),
  extract_tags: ({ input, output }) => same(Object.values(extractTags(input)), output),
  math_boxed: ({ input, output }) => same(extractBoxed(input), output),
  math_match_fallback: mathMatch,
  countdown_validate: countdown,
  countdown_parse: ({ input, output }) => same(Object.values(parseCountdown(input)), output),
  reward_parser_step: parserStep,
  trl_think_format: ({ input, output }) => same(thinkFormatReward(input), output),
  trl_repetition_penalty: repetition,
  trl_soft_overlong: overlong,
  ifeval_instruction: ({ instruction_id, kwargs, text, follows }) =>
    same(ifEvalCheck(instruction_id, kwargs)(text), follows),
  ifeval_score: ifevalScore,
}

export const rewards = {
  topic: 'rewards',
  members: {
    input: `kind input parser predicted reference expression target numbers config completions answers existing_reward completion_ids
      ngram_size max_penalty length max_completion_len soft_punish_cache instruction_id kwargs text key instruction_id_list variant response
      needs upstream_bug`,
    expected:
      'output outputs normalized follows prompt_strict inst_strict prompt_loose inst_loose reward done output_shapes reward_shape',
  },
  matches: ({ kind }) => Object.hasOwn(KINDS, kind ?? ''),
  prepare: () => undefined,
  check: ({ value: row }) => KINDS[row.kind](row),
}

function same(got, wanted) {
  const [left, right] = [JSON.stringify(got), JSON.stringify(wanted)]
  return left === right ? undefined : `got ${left}, expected ${right}`
}

function near(got, wanted) {
  return Math.abs(got - wanted) <= 1e-6 ? undefined : `got ${got}, expected ${wanted}`
}

function mathMatch({ predicted, reference, output, normalized }) {
  return (
    same([predicted, reference].map(normalizeMath), normalized) ??
    same(isSameMath(predicted, reference, 'text'), output)
  )
}

function countdown({ expression, target, numbers, output }) {
  const got = isCountdownSolution(expression, { target, numbers })
  if (!/\*\*|\/\//.test(expression)) return same(got, output)
  // The original evaluates the text as a program; JavaScript has powers, but no integer division.
  const isKnown = /^[\d+\-*/(). ]+$/.test(expression) && !expression.includes('//')
  const used = expression.match(/\d+/g).map(Number)
  const isUsed = same(used.toSorted(), numbers.toSorted()) === undefined
  const theirs = isKnown ? isUsed && Math.abs(new Function(`return ${expression}`)() - target) < 1e-5 : true
  return decided(OPERATORS, same(theirs, output), same(got, false))
}

const PARSERS = {
  gsm8k: (options) => [
    new GSM8KRewardParser(options),
    new GSM8KRewardParser({ ...options, compare: 'text' }),
  ],
  math: (options) => [new MATHRewardParser(options), new MATHRewardParser({ ...options, compare: 'text' })],
  countdown: (options) => [new CountdownRewardParser(options)],
}

const OUTPUTS = ['reward_answer', 'reward_think', 'reward_right', 'reward', 'success', 'done', 'terminated']
const shapeOf = (value) => (Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [])

function parserStep(row) {
  const { parser, config, completions, answers, existing_reward: existing, outputs } = row
  if (existing !== null) return `no row had a reward before: got ${existing}`
  const options = Object.fromEntries(Object.entries(config).map(([name, value]) => [camel(name), value]))
  const names = Object.keys(outputs)
  const shapes = Object.fromEntries(names.map((name) => [name, shapeOf(outputs[name])]))
  const isStrange = names.find((name) => !OUTPUTS.includes(name) || shapes[name][0] !== completions.length)
  const shaped = isStrange ? `${isStrange} is ${shapes[isStrange]}` : same(shapes, row.output_shapes)
  if (shaped) return shaped
  for (const one of PARSERS[parser](options)) {
    const scores = completions.map((completion, index) => one.score(completion, answers[index]))
    const difference = scores.map((score, index) => compare(score, index, outputs)).find(Boolean)
    if (difference) return difference
  }
  return undefined
}

function compare(score, index, outputs) {
  const { success, done, ...numbers } = score
  const names = { rewardAnswer: 'reward_answer', rewardThink: 'reward_think', rewardRight: 'reward_right' }
  const wanted = (name) => [outputs[names[name] ?? name][index]].flat(3)[0]
  const far = Object.keys(numbers).map((name) => near(numbers[name], wanted(name)))
  return (
    far.find(Boolean) ??
    same([success, done, done], [wanted('success'), wanted('done'), wanted('terminated')])
  )
}

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())

function repetition({ completion_ids: ids, ngram_size: ngramSize, max_penalty: maxPenalty, output }) {
  return near(repetitionPenalty({ ids, ngramSize, maxPenalty }), output)
}

function overlong({ length, max_completion_len: lengthMax, soft_punish_cache: cache, output }) {
  return near(softOverlongPunishment({ length, lengthMax, cache }), output)
}

function ifevalScore(row) {
  const instructions = { instructionIdList: row.instruction_id_list, kwargs: row.kwargs }
  const { score, reward, done } = new IfEvalScorer().score(row.response, instructions)
  const got = [
    score.promptLevelStrictAcc,
    score.instLevelStrictAcc,
    score.promptLevelLooseAcc,
    score.instLevelLooseAcc,
    done,
  ]
  const wanted = [row.prompt_strict, row.inst_strict, row.prompt_loose, row.inst_loose, row.done]
  return same(got, wanted) ?? near(reward, row.reward) ?? same([1, 1], row.reward_shape)
}
