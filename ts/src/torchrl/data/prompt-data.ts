/** Prompts with their labels, as records. */

import { checkGiven, checkKnownKeys, FulmarError } from '../../core/index.js'
import { Tensor, type TensorClass, type TensorClassInstance, tensorClass } from '../../tensor/index.js'
import { PromptTensorDictTokenizer } from './prompt-tensor-dict-tokenizer.js'
import { type TokenDatasetOptions, TokenizedDatasetLoader } from './tokenized-dataset-loader.js'

/** Fields of {@link PromptData}. */
export type PromptDataFields = {
  readonly input_ids: 'i64'
  readonly attention_mask: 'i64'
  readonly prompt_rindex: 'i64'
  readonly labels: 'i64?'
  readonly logits: 'f32?'
  readonly loss: 'f32?'
}

/** Prompts with their labels: `input_ids`, `attention_mask` and `labels` of `[B, L]`, `prompt_rindex` of `[B]`. */
export type PromptData = TensorClassInstance<PromptDataFields>

/** The class {@link PromptData} and what it adds to those of `tensorClass`. */
export interface PromptDataClass extends TensorClass<PromptDataFields> {
  /**
   * Prompts without their labels: the tokens before `prompt_rindex`, then `padTokenId`. The batch size is `[]`, as in TorchRL.
   * @throws {FulmarError} `OUT_OF_RANGE` for an id that is no integer from 0, or a position outside the row; `SHAPE_MISMATCH` for
   *   ids that have not two dimensions.
   */
  maskLabel(data: PromptData, options?: { readonly padTokenId?: number }): PromptData
  /**
   * Rows of a split, `[N]`, with the ids as `labels`. The data set is `CarperAI/openai_summarize_tldr` by default. Native backend only.
   * @throws {FulmarError} As {@link TokenizedDatasetLoader.load}.
   */
  fromDataset(options: TokenDatasetOptions): Promise<PromptData>
}

const records = tensorClass<PromptDataFields>({
  input_ids: 'i64',
  attention_mask: 'i64',
  prompt_rindex: 'i64',
  labels: 'i64?',
  logits: 'f32?',
  loss: 'f32?',
})

/**
 * Prompts with their labels, one behind the other: `prompt_rindex` is where a prompt ends.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { PromptData } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const input_ids = Tensor.from(BigInt64Array.of(1n, 2n, 3n, 4n, 5n, 6n), { shape: [2, 3] })
 * const attention_mask = Tensor.from(new BigInt64Array(6).fill(1n), { shape: [2, 3] })
 * const prompt_rindex = Tensor.from(BigInt64Array.of(1n, 2n))
 * const data = PromptData.from({ input_ids, attention_mask, prompt_rindex }, { batchSize: [2] })
 * const prompts = PromptData.maskLabel(data, { padTokenId: 0 })
 * assert.deepEqual(prompts.input_ids.data, BigInt64Array.of(1n, 0n, 0n, 4n, 5n, 0n))
 * ```
 */
export const PromptData: PromptDataClass = { ...records, maskLabel, fromDataset }

/** Data set of {@link PromptData} where none is named. */
const DATASET = 'CarperAI/openai_summarize_tldr'

/** Id of GPT-2's end of text. */
const END_ID = 50_256

function maskLabel(data: PromptData, options: { readonly padTokenId?: number } = {}): PromptData {
  checkKnownKeys('options', options, ['padTokenId'])
  const { padTokenId = END_ID } = options
  if (!Number.isSafeInteger(padTokenId) || padTokenId < 0) {
    throw new FulmarError('OUT_OF_RANGE', `padTokenId must be an integer from 0: got ${padTokenId}`)
  }
  checkGiven('data', data)
  const { shape } = data.input_ids
  const width = shape[1]
  if (width === undefined || shape.length !== 2) {
    throw new FulmarError('SHAPE_MISMATCH', `input_ids must be of [B, L]: got [${shape.join(', ')}]`)
  }
  const [ids, mask] = [data.input_ids.data.slice(), data.attention_mask.data.slice()]
  for (const [row, end] of promptEnds(data, width).entries()) {
    ids.fill(BigInt(padTokenId), row * width + end, (row + 1) * width)
    mask.fill(0n, row * width + end, (row + 1) * width)
  }
  const fields = {
    input_ids: Tensor.from(ids, { shape }),
    attention_mask: Tensor.from(mask, { shape }),
    prompt_rindex: data.prompt_rindex,
  }
  return records.from(fields, { batchSize: [] })
}

/** @internal The positions that end the prompts, each in its row. @throws {FulmarError} `OUT_OF_RANGE`, `SHAPE_MISMATCH`. */
export function promptEnds(data: PromptData, width: number): number[] {
  const ends = Array.from(data.prompt_rindex.data, Number)
  const numRows = data.input_ids.shape[0] ?? 0
  if (ends.length !== numRows)
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `prompt_rindex must be of [${numRows}]: got ${ends.length} numbers`,
    )
  const wrong = ends.find((end) => end < 0 || end > width)
  if (wrong === undefined) return ends
  throw new FulmarError('OUT_OF_RANGE', `prompt_rindex must be from 0 to ${width}: got ${wrong}`)
}

async function fromDataset(options: TokenDatasetOptions): Promise<PromptData> {
  const loader = new TokenizedDatasetLoader({
    ...{ datasetName: DATASET, maxLength: 550, ...options },
    tokenizerFn: PromptTensorDictTokenizer,
  })
  const dict = await loader.load()
  return records.around(dict.set('labels', dict.tensor('input_ids')))
}
