/** Public data sets of texts as ids of one length, tokenised once. */

import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import type { FetchOptions, HubOptions } from '../../fetch/index.js'
import { loadMemmap, saveMemmap, TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { PromptTensorDictTokenizer } from './prompt-tensor-dict-tokenizer.js'
import { TensorDictTokenizer } from './tensor-dict-tokenizer.js'

/** Values of a row of a data set by the names of their columns. */
export type TextRow = Readonly<Record<string, unknown>>

/** Maps the rows of a split before they are tokenised. `read` starts a new pass over them. */
export type PreTokenizationHook = (
  read: () => AsyncGenerator<TextRow, void, undefined>,
) => AsyncIterable<TextRow> | Iterable<TextRow>

/** Options of every data set of texts. */
export interface TokenDatasetOptions
  extends Omit<FetchOptions, 'force'>,
    Pick<HubOptions, 'revision' | 'endpoint' | 'token' | 'cache' | 'offline'> {
  /** Name of the split, such as `train`. */
  readonly split: string
  /** Name on the hub, such as `CarperAI/openai_summarize_tldr`; with `fromDisk` a path. */
  readonly datasetName?: string
  /** Tokens of a row: longer ones are cut, shorter ones padded with the end. @default 550 */
  readonly maxLength?: number
  /**
   * Reads a folder on this machine: one that `save_to_disk` of `datasets` wrote, one with Parquet files or JSON lines named after the
   * split, or one file of JSON lines.
   * @default false
   */
  readonly fromDisk?: boolean
  /**
   * Folder of the ids: each data set has `NAME/SPLIT/MAX_LENGTH` in it.
   * @default `tokens` in the folder of the variable `FULMAR_HOME`, else in the platform's folder of caches
   */
  readonly rootDir?: string
  /** Most rows of a split whose name begins with `valid`, from 1. @default 2000 */
  readonly validSize?: number
  /** Tokenizer of the texts. @default that of `tokenizerModelName` */
  readonly tokenizer?: NativeTokenizer
  /** Model on the hub with a `tokenizer.json`. @default 'gpt2' */
  readonly tokenizerModelName?: string
  /** Leaves out texts that are longer than `maxLength`, which are cut otherwise. @default false */
  readonly dropTruncated?: boolean
  /** Tokenises once more what is there. @default false */
  readonly force?: boolean
}

/** Options of {@link TokenizedDatasetLoader}. */
export interface TokenizedDatasetLoaderOptions extends TokenDatasetOptions {
  readonly datasetName: string
  readonly maxLength: number
  /** The mapper: `TensorDictTokenizer` reads the column `text`, `PromptTensorDictTokenizer` reads `prompt` and `label`. */
  readonly tokenizerFn: typeof TensorDictTokenizer | typeof PromptTensorDictTokenizer
  /** Maps the rows before. @default none */
  readonly preTokenizationHook?: PreTokenizationHook
}

/** @internal Names of {@link TokenDatasetOptions}. */
export const TOKEN_DATASET_KEYS = [
  ...['client', 'clock', 'signal', 'retries', 'stallTimeoutMs', 'onProgress'],
  ...['revision', 'endpoint', 'token', 'cache', 'offline'],
  ...['split', 'datasetName', 'maxLength', 'fromDisk', 'rootDir', 'validSize'],
  ...['tokenizer', 'tokenizerModelName', 'dropTruncated', 'force'],
] as const

/**
 * Tokenises a split of a public data set once, into a folder of memory-mapped `input_ids` and `attention_mask`, `i64`
 * `[N, maxLength]`, and `prompt_rindex`, `i64` `[N]`, for prompts. A later load opens the folder, which TorchRL opens as well. Reads
 * Parquet files of the hub, folders of `save_to_disk` and JSON lines, a part at a time. The folder is there whole or not at all.
 * Native backend only.
 *
 * @example
 * ```ts native
 * import { HfTokenizer } from 'fulmar'
 * import { TensorDictTokenizer, TokenizedDatasetLoader } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, writeFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * await writeFile(join(folder, 'train.jsonl'), '{"text": "a"}\n{"text": "b a b"}\n')
 * const file = {
 *   version: '1.0',
 *   added_tokens: [{ id: 0, content: '<end>', special: true }],
 *   pre_tokenizer: { type: 'WhitespaceSplit' },
 *   model: { type: 'WordLevel', vocab: { '<end>': 0, a: 1, b: 2 }, unk_token: '<end>' },
 * }
 * using tokenizer = HfTokenizer.fromJson(file, { eos_token: '<end>' })
 * const loader = new TokenizedDatasetLoader({
 *   ...{ split: 'train', maxLength: 3, datasetName: folder, fromDisk: true, tokenizerFn: TensorDictTokenizer },
 *   ...{ tokenizer, rootDir: join(folder, 'ids') },
 * })
 * const rows = await loader.load()
 * assert.deepEqual(rows.tensor('input_ids').data, BigInt64Array.of(1n, 0n, 0n, 2n, 1n, 2n))
 * ```
 */
export class TokenizedDatasetLoader {
  readonly #options: TokenizedDatasetLoaderOptions

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` for a split or a name that cannot be one, or another mapper;
   *   `OUT_OF_RANGE` for a number outside its range.
   */
  constructor(options: TokenizedDatasetLoaderOptions) {
    const known = [...TOKEN_DATASET_KEYS, 'tokenizerFn', 'preTokenizationHook']
    checkKnownKeys('options', options, known, ['split', 'maxLength', 'datasetName', 'tokenizerFn'])
    const { split, maxLength, validSize = 1, tokenizerFn, preTokenizationHook: hook } = options
    if (typeof split !== 'string' || !/^[\w][\w.-]*$/.test(split) || split.includes('..')) {
      throw malformed('split', 'a name of letters, digits, `_`, `-` and `.`', split)
    }
    checkCount('maxLength', maxLength)
    checkCount('validSize', validSize)
    for (const name of ['datasetName', 'rootDir', 'tokenizerModelName'] as const) {
      const value: unknown = options[name]
      if (value !== undefined && (typeof value !== 'string' || value === ''))
        throw malformed(name, 'a text', value)
    }
    for (const name of ['fromDisk', 'dropTruncated', 'force'] as const) {
      const value: unknown = options[name]
      if (value !== undefined && typeof value !== 'boolean') throw malformed(name, 'a boolean', value)
    }
    if (tokenizerFn !== TensorDictTokenizer && tokenizerFn !== PromptTensorDictTokenizer) {
      throw malformed('tokenizerFn', 'TensorDictTokenizer or PromptTensorDictTokenizer', tokenizerFn)
    }
    if (hook !== undefined && typeof hook !== 'function')
      throw malformed('preTokenizationHook', 'a function', hook)
    this.#options = { ...options }
  }

  /**
   * Opens the ids; tokenises the split unless it is there.
   * @throws {FulmarError} `UNKNOWN_NAME` for a split without files; `INCOMPATIBLE` if the folder holds ids of another tokenizer,
   *   mapper, hook or data set, or something else; `EMPTY` if no row is left; `CORRUPT` or `LIMIT_EXCEEDED` for files that
   *   break their format; `CORRUPT`, with the row, for a column without a text; `UNAVAILABLE` in WebAssembly; those of `fetchSnapshot`.
   */
  async load(): Promise<TensorDict> {
    const { tokenizedFolder } = await import('./tokenize-dataset.js')
    return loadMemmap(await tokenizedFolder(this.#options))
  }

  /**
   * Keeps columns as a folder of memory-mapped leaves, below `prefix`, and opens it.
   * @throws {FulmarError} `MALFORMED` for a prefix that is no key; those of `saveMemmap`.
   */
  static datasetToTensorDict(
    columns: TensorDict,
    dataDir: string,
    options: { readonly prefix?: string | readonly string[] } = {},
  ): TensorDict {
    checkKnownKeys('options', options, ['prefix'])
    const keys = [options.prefix ?? []].flat()
    const wrong = keys.find((key) => typeof key !== 'string' || key === '')
    if (wrong !== undefined) throw malformed('prefix', 'a name, or a list of names', wrong)
    const nested = keys.reduceRight(
      (dict, key) => TensorDict.from({ [key]: dict }, { batchSize: [] }),
      columns,
    )
    saveMemmap(dataDir, nested)
    return loadMemmap(dataDir)
  }
}

function checkCount(name: string, value: unknown): void {
  if (Number.isSafeInteger(value) && Number(value) >= 1) return
  throw new FulmarError(
    'OUT_OF_RANGE',
    `options.${name} must be an integer from 1: got ${describeValue(value)}`,
  )
}

function malformed(name: string, rule: string, value: unknown): FulmarError {
  return new FulmarError('MALFORMED', `options.${name} must be ${rule}: got ${describeValue(value)}`)
}
