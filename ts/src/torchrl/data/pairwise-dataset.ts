/** Pairs of texts of which the first is preferred, as records. */

import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { type TensorClass, type TensorClassInstance, TensorDict, tensorClass } from '../../tensor/index.js'
import { RewardData } from './reward-data.js'
import { TensorDictTokenizer } from './tensor-dict-tokenizer.js'
import { type TextRow, type TokenDatasetOptions, TokenizedDatasetLoader } from './tokenized-dataset-loader.js'

/** Fields of {@link PairwiseDataset}. */
export type PairwiseDatasetFields = {
  readonly chosen_data: typeof RewardData
  readonly rejected_data: typeof RewardData
}

/** Pairs, `[B]`: of each the preferred text in `chosen_data`, the other in `rejected_data`. */
export type PairwiseDataset = TensorClassInstance<PairwiseDatasetFields>

/** The class {@link PairwiseDataset} and what it adds to those of `tensorClass`. */
export interface PairwiseDatasetClass extends TensorClass<PairwiseDatasetFields> {
  /**
   * Pairs of a split, `[N]`, through {@link preTokenizationHook}. The data set is `CarperAI/openai_summarize_comparisons` by default.
   * Native backend only.
   * @throws {FulmarError} As {@link TokenizedDatasetLoader.load}; `INCOMPATIBLE` for `dropTruncated`, which would leave halves of pairs.
   */
  fromDataset(options: TokenDatasetOptions): Promise<PairwiseDataset>
}

const records = tensorClass<PairwiseDatasetFields>({ chosen_data: RewardData, rejected_data: RewardData })

/**
 * Pairs of texts to train a reward model on.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { PairwiseDataset, RewardData } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const texts = (...ids: bigint[]) => {
 *   const input_ids = Tensor.from(BigInt64Array.from(ids), { shape: [1, ids.length] })
 *   return RewardData.from({ input_ids, attention_mask: input_ids }, { batchSize: [1] })
 * }
 * const pairs = PairwiseDataset.from({ chosen_data: texts(1n, 2n), rejected_data: texts(1n, 3n) }, { batchSize: [1] })
 * assert.deepEqual(pairs.at(0).rejected_data.input_ids.data, BigInt64Array.of(1n, 3n))
 * ```
 */
export const PairwiseDataset: PairwiseDatasetClass = { ...records, fromDataset }

/** Data set of {@link PairwiseDataset} where none is named. */
const DATASET = 'CarperAI/openai_summarize_comparisons'

async function fromDataset(options: TokenDatasetOptions): Promise<PairwiseDataset> {
  const loader = new TokenizedDatasetLoader({
    ...{ datasetName: DATASET, maxLength: 550, ...options },
    ...{ tokenizerFn: TensorDictTokenizer, preTokenizationHook },
  })
  if (options.dropTruncated) {
    const detail = 'options.dropTruncated must be false for pairs, whose halves belong together: got true'
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  return pairsOf(await loader.load())
}

/** Pairs of the first half of the texts and the second. @throws {FulmarError} `SHAPE_MISMATCH` for an odd number. */
function pairsOf(texts: TensorDict): PairwiseDataset {
  const [numTexts = 0] = texts.batchSize
  if (numTexts % 2 === 1)
    throw new FulmarError('SHAPE_MISMATCH', `the texts of pairs must be an even number: got ${numTexts}`)
  const half = numTexts / 2
  const chosen_data = texts.slice(0, half)
  const rejected_data = texts.slice(half)
  return records.around(TensorDict.from({ chosen_data, rejected_data }, { batchSize: [half] }))
}

/** Options of {@link preTokenizationHook}. */
export interface PreTokenizationHookOptions {
  /** Fewest words of either summary, from 0. @default 5 */
  readonly minLength?: number
}

/**
 * The texts of pairs: `prompt`, a line feed and `chosen` of each row, then `prompt` and `rejected` of each. Pairs of equal summaries are
 * left out, and those with a summary of fewer words. Reads the rows twice.
 * @throws {FulmarError} `OUT_OF_RANGE` for a length that is no integer from 0; `MALFORMED`, with the row, for a column without a text.
 *
 * @example
 * ```ts
 * import { preTokenizationHook } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const read = async function* () {
 *   yield { prompt: 'TL;DR:', chosen: 'a short one', rejected: 'a bad one' }
 *   yield { prompt: 'TL;DR:', chosen: 'the same', rejected: 'the same' }
 * }
 * const texts = []
 * for await (const { text } of preTokenizationHook(read, { minLength: 2 })) texts.push(text)
 * assert.deepEqual(texts, ['TL;DR:\na short one', 'TL;DR:\na bad one'])
 * ```
 */
export async function* preTokenizationHook(
  read: () => AsyncGenerator<TextRow, void, undefined>,
  options: PreTokenizationHookOptions = {},
): AsyncGenerator<{ readonly text: string }, void, undefined> {
  checkKnownKeys('options', options, ['minLength'])
  if (typeof read !== 'function')
    throw new FulmarError('MALFORMED', `read must be a function: got ${describeValue(read)}`)
  const { minLength = 5 } = options
  if (!Number.isSafeInteger(minLength) || minLength < 0)
    throw new FulmarError('OUT_OF_RANGE', `minLength must be an integer from 0: got ${minLength}`)
  for (const side of ['chosen', 'rejected'] as const) {
    let row = 0
    for await (const values of read()) {
      const [prompt, chosen, rejected] = ['prompt', 'chosen', 'rejected'].map((name) =>
        textAt(values, name, row),
      )
      row += 1
      if (chosen === rejected || !hasWords(chosen, minLength) || !hasWords(rejected, minLength)) continue
      yield { text: `${prompt}\n${side === 'chosen' ? chosen : rejected}` }
    }
  }
}

const hasWords = (text = '', count: number): boolean => text.split(/\s+/).filter(Boolean).length >= count

function textAt(values: TextRow, name: string, row: number): string {
  const value = values[name]
  if (typeof value === 'string') return value
  throw new FulmarError(
    'MALFORMED',
    `row ${row} must have a text in the column ${name}: got ${describeValue(value)}`,
  )
}
