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
  PairwiseDataset,
  PromptData,
  PromptTensorDictTokenizer,
  preTokenizationHook,
  RewardData,
  TensorDictTokenizer,
} from 'fulmar/torchrl'
import { dictDiffers, membersIn, tensorDiffers } from './golden-values.mjs'
import { attempt, decided, farther, flat, singles } from './loss-rows.mjs'

const NO_VALUES = 'a coefficient is not updated by no divergence'
const ANEW = 'a group of answers that is complete begins anew'

const CHECKS = {
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

export const rlhf = {
  topic: 'rlhf',
  members: {
    input: `id topic note max_length padding truncation return_tensordict sample kl_coef init_kl_coef target horizon steps.*.kl_values
      steps.*.type total_dialog_turns topk_size calls logits labels input pad_token_id rows source`,
    expected: 'ok model_after_init model_after returns steps.*.coef vocab pad unk eos default_pad first_8',
    refusal: 'error:ok',
    aside: { kind: 'words for people' },
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
