/** Rows of TorchRL's first tools for language models: a tokenizer for samples, controllers of a KL coefficient, and the choice of the best. */

import { isDeepStrictEqual } from 'node:util'
import { HfTokenizer } from 'fulmar'
import {
  AdaptiveKLController,
  ConstantKLController,
  TopKRewardSelector,
  tokenLogProbs,
} from 'fulmar/objective'
import { Ragged, Tensor } from 'fulmar/tensor'
import {
  createInfiniteIterator,
  generatedLogProbs,
  PairwiseDataset,
  PromptData,
  PromptTensorDictTokenizer,
  paddedLeftToRight,
  paddedRightToLeft,
  preTokenizationHook,
  RewardData,
  RolloutFromModel,
  TensorDictTokenizer,
} from 'fulmar/torchrl'
import { dictDiffers, membersIn, tensorDiffers } from './golden-values.mjs'
import { attempt, decided, farther, flat, singles } from './loss-rows.mjs'

const NO_VALUES = 'a coefficient is not updated by no divergence'
const ANEW = 'a group of answers that is complete begins anew'

const CHECKS = {
  constants,
  rollout,
  get_scores: scored,
  padded_right_to_left: ({ input, ok }) => tensorDiffers(paddedRightToLeft(tensorOf(input)), ok),
  padded_left_to_right: ({ input, ok, sequence_length: sequenceLength }) =>
    tensorDiffers(
      paddedLeftToRight(tensorOf(input), sequenceLength === undefined ? {} : { sequenceLength }),
      ok,
    ),
  toy_tokenizer: vocabulary,
  TensorDictTokenizer: tokenized,
  PromptTensorDictTokenizer: prompted,
  'PromptData.mask_label': masked,
  RewardData: rewarded,
  PairwiseDataset: paired,
  pre_tokenization_hook: hooked,
  create_infinite_iterator: endless,
  ConstantKLController: constant,
  AdaptiveKLController: adaptive,
  TopKRewardSelector: chosen,
  logprobs_of_labels: labelled,
}

const NAMES = 'the dimensions of rollouts have no names here'

export const rlhf = {
  topic: 'rlhf',
  members: {
    input: `id topic note max_length padding truncation return_tensordict sample kl_coef init_kl_coef target horizon steps.*.kl_values
      steps.*.type total_dialog_turns topk_size calls logits labels input pad_token_id rows source
      sequence_length scores generated max_new_tokens B prompt_len kl_coef score_clip input_ids prompt_rindex model reward_model`,
    expected: `ok model_after_init model_after returns steps.*.coef vocab pad unk eos default_pad first_8 EOS_TOKEN_ID
      log_ratio generated_tokens kl_queue`,
    refusal: 'error:ok',
    aside: { kind: 'words for people', 'ok.names': NAMES, 'ok.k.next.names': NAMES },
  },
  matches: ({ topic, id }) => Object.hasOwn(CHECKS, topic) && id !== undefined,
  prepare: toyTokenizer,
  check: ({ value: row }, tokenizer) => CHECKS[row.topic](row, tokenizer),
}

/** Words between spaces, 40 of them behind three special tokens; others are unknown. */
function toyTokenizer() {
  const words = ['<pad>', '<unk>', '<eos>', ...Array.from({ length: 40 }, (_, at) => `w${at}`)]
  const special = (content, id) => ({
    ...{ id, content, special: true, single_word: false, lstrip: false, rstrip: false, normalized: false },
  })
  const vocab = Object.fromEntries(words.map((word, id) => [word, id]))
  return HfTokenizer.fromJson(
    JSON.stringify({
      ...{
        version: '1.0',
        truncation: null,
        padding: null,
        normalizer: null,
        post_processor: null,
        decoder: null,
      },
      added_tokens: words.slice(0, 3).map(special),
      pre_tokenizer: { type: 'WhitespaceSplit' },
      model: { type: 'WordLevel', vocab, unk_token: '<unk>' },
    }),
  )
}

function tokenized(row, tokenizer) {
  if (!['max_length', false].includes(row.padding)) return `the padding ${row.padding} is not known`
  const map = new TensorDictTokenizer({
    tokenizer,
    maxLength: row.max_length,
    side: 'right',
    truncation: row.truncation ? 'right' : false,
    padding: row.padding === 'max_length',
    value: 0,
  })
  const made = attempt(() => (row.return_tensordict ? map.apply(row.sample) : map.lists(row.sample)))
  if (row.error) return made.code ? undefined : 'must be refused'
  if (made.code) return made.code
  if (!row.return_tensordict) return same(Object.entries(made.value), row.ok.$dict)
  const { $td: batchSize, k: entries } = row.ok
  const wrong =
    same(made.value.batchSize, batchSize) ??
    same(made.value.keys().toSorted(), Object.keys(entries).toSorted())
  if (wrong) return wrong
  return Object.keys(entries)
    .map((name) => columnDiffers(made.value.get([name]), entries[name]))
    .find((one) => one !== undefined)
}

function columnDiffers(got, want) {
  if (got instanceof Tensor)
    return same(
      [`i${want.$t?.slice(3)}`, want.s, want.d],
      [got.dtype, got.shape, Array.from(got.data, Number)],
    )
  if (!(got instanceof Ragged)) return 'a column of ids is missing'
  const rows = Array.from({ length: got.numRows }, (_, row) => Array.from(got.row(row).data, Number))
  if (want.$nts) return same(rows, want.$nts)
  const width = rows[0].length
  return same(['int64', [rows.length, width], rows.flat()], [want.$t, want.s, want.d])
}

function vocabulary({ vocab, pad, unk, eos }, tokenizer) {
  const words = Array.from({ length: tokenizer.vocabSize }, (_, id) => tokenizer.tokenOf(id))
  return same(
    [words, ...['<pad>', '<unk>', '<eos>'].map((one) => tokenizer.idOf(one))],
    [vocab, pad, unk, eos],
  )
}

function prompted({ max_length: maxLength, sample, ok, error }, tokenizer) {
  const map = new PromptTensorDictTokenizer({ tokenizer, maxLength, value: 0, endId: 2 })
  const made = attempt(() => map.apply(sample))
  if (error) return made.code ? undefined : 'must be refused'
  return made.code ?? dictDiffers(made.value, ok)
}

function masked({ input, pad_token_id: padTokenId, ok, default_pad: wanted }) {
  const { input_ids: rows, prompt_rindex: ends } = input
  const shape = [rows.length, rows[0].length]
  const fields = {
    input_ids: Tensor.from(integers(rows), { shape }),
    attention_mask: Tensor.from(integers(rows).fill(1n), { shape }),
    prompt_rindex: Tensor.from(integers(ends)),
  }
  const data = PromptData.from(fields, { batchSize: [rows.length] })
  const prompts = PromptData.maskLabel(data, { padTokenId })
  const { batch_size: batchSize, ...members } = membersIn(ok)
  return (
    same([...prompts.batchSize], batchSize) ??
    Object.keys(members)
      .map((name) => tensorDiffers(prompts.dict.get([name]), members[name]))
      .find((one) => one !== undefined) ??
    tensorDiffers(PromptData.maskLabel(data).input_ids, wanted)
  )
}

/** The end that pads, where none is given. */
function constants({ EOS_TOKEN_ID: end }) {
  const padded = paddedLeftToRight(Tensor.from(integers([7]), { shape: [1, 1] }), { sequenceLength: 2 })
  return same(Number(padded.data[1]), end)
}

const tensorOf = ({ $t, s, d }) => Tensor.from($t === 'int64' ? integers(d) : singles(d), { shape: s })

function scored({ scores, generated, max_new_tokens: steps, ok }) {
  const { gathered, max } = membersIn(ok)
  const of = (options) => generatedLogProbs(scores.map(tensorOf), tensorOf(generated), options)
  const own = of({})
  return (
    same(own.shape[1], steps) ??
    tensorDiffers(own.reshape([...own.shape, 1]), gathered, ...NEAR) ??
    tensorDiffers(of({ useMax: true }), max, ...NEAR)
  )
}

const NEAR = [1e-5, 1e-6]

/** A ratio is the difference of two numbers of about 12, each near to a relative 1e-5 at most. */
const NEAR_RATIO = [1e-5, 2e-5]

/** The vocabulary of the models of the rows. */
const VOCABULARY = 50_257

/** Log-probabilities of the tokens of a row where the logit of `v` behind `id` is `scale * ((id * (v + 1)) mod 7)`. */
function logProbsOf(ids, scale) {
  return Float32Array.from(ids, (id, at) => {
    if (at === 0) return Number.NaN
    const logit = (v) => scale * ((ids[at - 1] * (v + 1)) % 7)
    let sum = 0
    for (let v = 0; v < VOCABULARY; v++) sum += Math.exp(logit(v))
    return logit(id) - Math.log(sum)
  })
}

/** The answers are those of the row: the policy draws them. */
async function rollout(row) {
  const { input_ids: whole, prompt_rindex: ends, generated, max_new_tokens: maxNewTokens } = row
  const scorer = (scale) => ({ score: async ({ ids }) => ({ logProbs: logProbsOf(ids, scale) }) })
  const answerOf = (prompt) => generated.find((ids) => prompt.every((id, at) => id === ids[at]))
  const model = {
    version: 0,
    generate: async ({ promptIds }) => {
      const all = answerOf([...promptIds])
      const ids = Uint32Array.from(all.slice(promptIds.length))
      const logProbs = logProbsOf(all, 0.5).slice(promptIds.length)
      return { ids, logProbs, sampledLogProbs: new Float32Array(ids.length), finishReason: 'length' }
    },
  }
  const rewardModel = (rows) => rows.map((ids) => (ids.reduce((sum, id) => sum + id, 0) % 1000) / 50)
  const rollouts = new RolloutFromModel({
    ...{ model, refModel: scorer(0.25), rewardModel, maxNewTokens },
    ...{ klCoef: row.kl_coef, scoreClip: row.score_clip },
  })
  const shape = [whole.length, whole[0].length]
  const fields = {
    input_ids: Tensor.from(integers(whole), { shape }),
    attention_mask: Tensor.from(integers(whole).fill(1n), { shape }),
    prompt_rindex: Tensor.from(integers(ends)),
  }
  const batch = PromptData.from(fields, { batchSize: [row.B] })
  const drawn = await rollouts.generate(batch)
  // The rows of the original are as long as the longest answer; ours leave room for the longest that there could be.
  const width = generated[0].length
  const tokens = drawn.tokens.slice({ dim: 1, end: width })
  const steps = await rollouts.createRolloutTd(batch, { ...drawn, tokens, logRatio: tensorOf(row.log_ratio) })
  const { names: _, k, ...wanted } = row.ok
  const { names: __, ...next } = k.next
  return (
    tensorDiffers(drawn.logRatio, row.log_ratio, ...NEAR_RATIO) ??
    tensorDiffers(steps.tensor('action'), row.generated_tokens) ??
    dictDiffers(steps, { ...wanted, k: { ...k, next } }, ...NEAR) ??
    farther(
      'kl_queue',
      rollouts.klQueue.map((one) => -row.kl_coef * one),
      row.kl_queue,
    )
  )
}

const integers = (value) => BigInt64Array.from(flat(value), BigInt)

/** Records of texts of three tokens, as the original builds them: counted from 0. */
function textsOf(first, numRows) {
  const ids = BigInt64Array.from({ length: 3 * numRows }, (_, at) => BigInt(first + at))
  const fields = {
    input_ids: Tensor.from(ids, { shape: [numRows, 3] }),
    attention_mask: Tensor.from(
      ids.map(() => 1n),
      { shape: [numRows, 3] },
    ),
  }
  return RewardData.from(fields, { batchSize: [numRows] })
}

const described = ({ dtype, shape, data }) => ({
  $dict: [
    ['$t', { i64: 'int64' }[dtype]],
    ['s', [...shape]],
    ['d', Array.from(data, Number)],
  ],
})

function rewarded({ ok }) {
  const data = textsOf(0, 2)
  const missing = [data.rewards ?? null, data.end_scores ?? null]
  return same([Object.keys(RewardData.fields).sort(), ...missing, described(data.at(0).input_ids)], ok)
}

function paired({ ok }) {
  const pairs = PairwiseDataset.from(
    { chosen_data: textsOf(0, 2), rejected_data: textsOf(0, 2) },
    { batchSize: [2] },
  )
  const [second, first] = [pairs.at(1), pairs.at([0])]
  return same(
    [[...pairs.batchSize], described(second.chosen_data.input_ids), described(first.rejected_data.input_ids)],
    ok,
  )
}

async function hooked({ rows, ok }) {
  const read = async function* () {
    yield* rows
  }
  const texts = []
  for await (const row of preTokenizationHook(read)) texts.push(row)
  return same(texts, ok)
}

function endless({ source, first_8: wanted }) {
  const items = createInfiniteIterator(source)
  return same(
    range(8).map(() => items.next().value),
    wanted,
  )
}

function constant(row) {
  // A user's model has no coefficient here, so it cannot lack one.
  if (row.kl_coef === undefined) return row.error ? undefined : 'the original fails'
  const controller = new ConstantKLController({ klCoef: row.kl_coef })
  const returns = row.returns.map(() => controller.update([1]))
  if (row.returns.length !== 3) return `${row.returns.length} returns`
  return same(
    [controller.coefficient, controller.coefficient, returns],
    [row.model_after_init, row.model_after, row.returns],
  )
}

function adaptive(row) {
  if (row.steps === undefined) {
    const made = attempt(() =>
      new AdaptiveKLController({ initKlCoef: 0.1, target: 1, horizon: 10 }).update([]),
    )
    const refusal = made.code ? undefined : 'must be refused'
    return row.error
      ? refusal
      : decided(NO_VALUES, row.ok === 'NaN' ? undefined : `no mean is ${row.ok}`, refusal)
  }
  const controller = new AdaptiveKLController({
    initKlCoef: row.init_kl_coef,
    target: row.target,
    horizon: row.horizon,
  })
  for (const [at, { kl_values: values, coef }] of row.steps.entries()) {
    // The original takes penalties: divergences times minus the coefficient.
    const divergences = flat(values).map((one) => -one / controller.coefficient)
    const difference = farther('coefficient', controller.update(divergences), coef)
    if (difference) return `step ${at}: ${difference}`
  }
  return undefined
}

function chosen(row) {
  const made = attempt(
    () => new TopKRewardSelector({ totalDialogTurns: row.total_dialog_turns, topkSize: row.topk_size }),
  )
  if (row.error) return made.code ? undefined : 'must be refused'
  if (made.code) return made.code
  const { total_dialog_turns: size } = row
  const rewards = row.calls.map((call) => call.rewards[0])
  if (row.calls.some((call) => call.rewards.length !== 1)) return 'a call has one reward'
  const got = row.calls.map(({ prompt }, at) => shown(made.value.push(prompt, rewards[at], rewards[at])))
  if (same(got, row.ok) === undefined) return undefined
  const before = (at) => range(at + 1).filter((other) => row.calls[other].prompt === row.calls[at].prompt)
  const best = (calls) => {
    const fresh = new TopKRewardSelector({ totalDialogTurns: size, topkSize: row.topk_size })
    return shown(calls.map((at) => fresh.push('group', rewards[at], rewards[at])).at(-1))
  }
  const sliding = range(rewards.length).map((at) =>
    before(at).length < size ? null : best(before(at).slice(-size)),
  )
  const apart = range(rewards.length).map((at) =>
    before(at).length % size === 0 ? best(before(at).slice(-size)) : null,
  )
  return decided(ANEW, same(sliding, row.ok), same(got, apart))
}

const range = (count) => Array.from({ length: count }, (_, at) => at)

const shown = (best = []) =>
  best.length === 0
    ? null
    : {
        $dict: [
          ['rows', best.length],
          ['rewards', best],
        ],
      }

function labelled({ logits, labels, ok, error }) {
  const ids = Uint32Array.from(flat(labels.d))
  const made = attempt(() => tokenLogProbs({ logits: singles(logits.d), ids, temperature: 1 }))
  if (error) return made.code ? undefined : 'must be refused'
  if (made.code) return made.code
  return same([ok.$t, ok.s], ['float32', labels.s]) ?? farther('log-probs', made.value.logProb, ok.d)
}

const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
