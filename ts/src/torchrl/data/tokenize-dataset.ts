/** Tokenises a split into the folder of its ids. Node only. */

import { createHash } from 'node:crypto'
import { basename, dirname, join, resolve } from 'node:path'
import { aborted } from '../../async/index.js'
import { describeValue, FulmarError } from '../../core/index.js'
import { ensureFolder } from '../../dataset/dataset-folder.js'
import { cacheRoot } from '../../fetch/cache-folder.js'
import { fetchSnapshot, type SnapshotOptions } from '../../fetch/index.js'
import { raw } from '../../native/index.js'
import type { TensorDict } from '../../tensor/index.js'
import { HfTokenizer, type NativeTokenizer } from '../../tokenizer/index.js'
import { endIdOf, PromptTensorDictTokenizer } from './prompt-tensor-dict-tokenizer.js'
import { TensorDictTokenizer } from './tensor-dict-tokenizer.js'
import { rowFilesIn, splitPatterns, textParts } from './text-rows.js'
import { noteInnerFolders, TokenFolder } from './token-folder.js'
import type {
  PreTokenizationHook,
  TextRow,
  TokenizedDatasetLoaderOptions,
} from './tokenized-dataset-loader.js'

/** Rows that are tokenised at once. */
const CHUNK_ROWS = 1024

/** Rows of a split whose name begins with `valid`. */
const VALID_SIZE = 2000

/** Files of a model's folder that its tokenizer is made of. */
const TOKENIZER_FILES = ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json']

const FETCH_NAMES = [
  ...['client', 'clock', 'signal', 'retries', 'stallTimeoutMs', 'onProgress'],
  ...['endpoint', 'token', 'cache', 'offline'],
] as const

/** Returns the folder of the ids; tokenises the split unless it is there. */
export async function tokenizedFolder(options: TokenizedDatasetLoaderOptions): Promise<string> {
  if (raw.convertColumns === undefined) {
    throw new FulmarError(
      'UNAVAILABLE',
      'the backend must be native to keep token data sets: got WebAssembly',
    )
  }
  const { datasetName, split, maxLength, rootDir, fromDisk = false, force = false } = options
  const root = rootDir === undefined ? join(cacheRoot(undefined), 'tokens') : cacheRoot(rootDir)
  const name = basename(fromDisk ? resolve(datasetName).replace(/\.jsonl$/, '') : datasetName)
  const dataPath = join(root, name, split, String(maxLength))
  const label = `the split ${split} of ${datasetName}`
  let isNew = false
  const convert = async (folder: string) => {
    await tokenize(folder, label, options)
    isNew = true
  }
  const { clock, signal } = options
  const how = {
    ...(clock && { clock }),
    ...(signal && { signal }),
    download: force ? 'force' : true,
  } as const
  await ensureFolder({ dataPath, label, conversion: conversionOf(options), convert }, how)
  if (isNew)
    for (const folder of [dirname(dataPath), dirname(dirname(dataPath))]) await noteInnerFolders(folder)
  return dataPath
}

/** The parts of the options that ids depend on. */
function conversionOf(
  options: TokenizedDatasetLoaderOptions,
): Readonly<Record<string, boolean | number | string>> {
  const { datasetName, fromDisk = false, revision = 'main', validSize = VALID_SIZE, split } = options
  const { tokenizer, tokenizerModelName = 'gpt2', tokenizerFn, dropTruncated = false } = options
  const { preTokenizationHook: hook } = options
  return {
    dataset: fromDisk ? resolve(datasetName) : `${datasetName}@${revision}`,
    tokenizer: tokenizer ? `vocabulary ${vocabularyHash(tokenizer)}` : tokenizerModelName,
    tokenizerFn: tokenizerFn === PromptTensorDictTokenizer ? 'prompt' : 'text',
    hook: hook === undefined ? 'none' : hook.name,
    dropTruncated,
    ...(split.startsWith('valid') && { validSize }),
  }
}

function vocabularyHash(tokenizer: NativeTokenizer): string {
  const hash = createHash('sha256')
  for (let id = 0; id < tokenizer.vocabSize; id++) hash.update(`${tokenizer.tokenOf(id) ?? ''}\0`)
  return hash.digest('hex').slice(0, 32)
}

/** Writes the ids of the split to a new folder. */
async function tokenize(
  folder: string,
  label: string,
  options: TokenizedDatasetLoaderOptions,
): Promise<void> {
  const { preTokenizationHook: hook = (read) => read(), signal } = options
  const files = await filesOf(options)
  const rowsMax = options.split.startsWith('valid') ? (options.validSize ?? VALID_SIZE) : undefined
  const read = async function* () {
    for await (const part of textParts(files, rowsMax)) yield* part
  }
  const owned = options.tokenizer ? undefined : await hubTokenizer(options)
  const target = new TokenFolder(folder)
  try {
    const map = mapperOf(label, options, options.tokenizer ?? (owned as NativeTokenizer))
    let start = 0
    for await (const rows of chunksOf(hook, read)) {
      if (signal?.aborted) throw aborted(signal)
      const ids = map(rows, start)
      if (ids) await target.append(ids.dict, ids.keys)
      start += rows.length
    }
    if (target.numRows === 0)
      throw new FulmarError('EMPTY', `${label} must have a row: all ${start} were left out`)
    await target.finish()
  } finally {
    await target.close()
    owned?.[Symbol.dispose]()
  }
}

/** The files of the split; those of the hub are fetched. */
async function filesOf(options: TokenizedDatasetLoaderOptions) {
  const { datasetName, split, fromDisk = false, revision } = options
  if (fromDisk) return await rowFilesIn(datasetName, split)
  const fetching: SnapshotOptions = {
    ...{ ...fetchOptionsOf(options), kind: 'dataset', include: splitPatterns(split) },
    ...(revision !== undefined && { revision }),
  }
  return await rowFilesIn(await fetchSnapshot(datasetName, fetching), split)
}

async function hubTokenizer(options: TokenizedDatasetLoaderOptions): Promise<NativeTokenizer> {
  const { tokenizerModelName = 'gpt2' } = options
  const fetching = { ...fetchOptionsOf(options), include: TOKENIZER_FILES }
  return await HfTokenizer.fromFolder(await fetchSnapshot(tokenizerModelName, fetching))
}

function fetchOptionsOf(options: TokenizedDatasetLoaderOptions): SnapshotOptions {
  const { force = false } = options
  const given = FETCH_NAMES.filter((name) => options[name] !== undefined)
  return { ...Object.fromEntries(given.map((name) => [name, options[name]])), force }
}

/** Yields the rows that the hook makes, many at a time. @throws {FulmarError} `USER_CODE` for what is no row. */
async function* chunksOf(
  hook: PreTokenizationHook,
  read: () => AsyncGenerator<TextRow, void, undefined>,
): AsyncGenerator<readonly TextRow[], void, undefined> {
  let rows: TextRow[] = []
  for await (const row of hook(read)) {
    if (typeof row !== 'object' || row === null) {
      throw new FulmarError('USER_CODE', `preTokenizationHook must yield rows: got ${describeValue(row)}`)
    }
    rows.push(row)
    if (rows.length < CHUNK_ROWS) continue
    yield rows
    rows = []
  }
  if (rows.length > 0) yield rows
}

type Mapper = (
  rows: readonly TextRow[],
  start: number,
) => { readonly dict: TensorDict; readonly keys: readonly string[] } | undefined

/** Returns what makes ids of rows; nothing if all are left out. The end of a text pads, as in TorchRL. */
function mapperOf(label: string, options: TokenizedDatasetLoaderOptions, tokenizer: NativeTokenizer): Mapper {
  const { maxLength, tokenizerFn, dropTruncated = false } = options
  const shared = { tokenizer, maxLength, value: endIdOf({ tokenizer }) }
  const kept = (rows: readonly TextRow[], start: number, names: readonly string[]) => {
    const columns = names.map((name) =>
      rows.map((row, at) => textAt(row, name, `row ${start + at} of ${label}`)),
    )
    if (!dropTruncated) return columns
    const whole = rows.map((_, at) => columns.map((column) => column[at]).join(''))
    const truncation = { maxLength: maxLength + 1, side: 'right' } as const
    const { rows: ends } = tokenizer.encodeBatch(whole, {
      addedTokens: true,
      addSpecialTokens: true,
      truncation,
    })
    return columns.map((column) =>
      column.filter((_, at) => (ends[at + 1] ?? 0) - (ends[at] ?? 0) <= maxLength),
    )
  }
  if (tokenizerFn === PromptTensorDictTokenizer) {
    const map = new PromptTensorDictTokenizer(shared)
    return (rows, start) => {
      const [prompt = [], texts = []] = kept(rows, start, ['prompt', 'label'])
      if (prompt.length === 0) return undefined
      return {
        dict: map.apply({ prompt, label: texts }),
        keys: ['input_ids', 'attention_mask', 'prompt_rindex'],
      }
    }
  }
  const map = new TensorDictTokenizer({ ...shared, side: 'right', truncation: 'right' })
  return (rows, start) => {
    const [text = []] = kept(rows, start, ['text'])
    return text.length === 0
      ? undefined
      : { dict: map.apply({ text }), keys: ['input_ids', 'attention_mask'] }
  }
}

function textAt(row: TextRow, name: string, place: string): string {
  const value = row[name]
  if (typeof value === 'string') return value
  throw new FulmarError(
    'CORRUPT',
    `${place} must have a text in the column ${name}: got ${describeValue(value)}`,
  )
}
