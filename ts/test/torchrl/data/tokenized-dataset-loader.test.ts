import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../../src/tensor/index.js'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import {
  PromptTensorDictTokenizer,
  preTokenizationHook,
  TensorDictTokenizer,
  TokenizedDatasetLoader,
  type TokenizedDatasetLoaderOptions,
} from '../../../src/torchrl/index.js'
import { isNative } from '../../dataset/golden-rows.js'
import { startHub } from '../../fetch/fake-hub.js'
import { temporaryFolder } from '../../telemetry/folder.js'
import { failing } from '../envs/chats.js'
import { golden, linesFolder, words } from './token-sets.js'

const bytesOf = async (path: string) => new Uint8Array(await readFile(golden(path)))
const idsOf = (dict: TensorDict) => Array.from(dict.tensor('input_ids').data, Number)

/** A loader over rows of JSON lines, and the root of its folders. */
async function loaderOver(
  rows: readonly object[],
  options: Partial<TokenizedDatasetLoaderOptions> = {},
  tokenizerFn: TokenizedDatasetLoaderOptions['tokenizerFn'] = TensorDictTokenizer,
) {
  const folder = await linesFolder(rows, options.split)
  const rootDir = await temporaryFolder()
  const all = {
    ...{ split: 'train', maxLength: 3, datasetName: folder, fromDisk: true, tokenizerFn, rootDir },
    ...{ tokenizer: words, ...options },
  }
  const load = (other: Partial<TokenizedDatasetLoaderOptions> = {}) =>
    new TokenizedDatasetLoader({ ...all, ...other }).load()
  return { folder, rootDir, load, path: join(rootDir, basename(folder), all.split, '3') }
}

describe.runIf(isNative)('TokenizedDatasetLoader', () => {
  it('tokenises once, and opens the folder the next time', async () => {
    const { folder, load, path } = await loaderOver([{ text: 'a b' }, { text: 'c b a c' }])
    const ids = await load()
    expect(ids.batchSize).toEqual([2])
    expect(idsOf(ids)).toEqual([1, 2, 0, 3, 2, 1])
    await rm(folder, { recursive: true })
    expect((await load()).equals(ids)).toBe(true)
    expect((await readdir(path)).sort()).toEqual([
      'attention_mask.memmap',
      'conversion.json',
      'input_ids.memmap',
      'meta.json',
    ])
  })

  it('keeps many rows in order, whatever the parts of the file are', async () => {
    const texts = Array.from({ length: 3000 }, (_, at) => ['a', 'b', 'c'][at % 3])
    const { load } = await loaderOver(texts.map((text) => ({ text })))
    const first = idsOf(await load()).filter((_, at) => at % 3 === 0)
    expect(first).toEqual(texts.map((text) => ' abc'.indexOf(text ?? '')))
  })

  it('takes the first rows of a validation split, or all there are', async () => {
    const rows = ['a', 'b', 'c'].map((text) => ({ text }))
    const two = await loaderOver(rows, { split: 'valid1', validSize: 2 })
    expect((await two.load()).batchSize).toEqual([2])
    await expect(two.load({ validSize: 3 })).rejects.toThrow(
      failing('INCOMPATIBLE', /validSize 3: it was with 2/),
    )
    const all = await loaderOver(rows, { split: 'valid', validSize: 9 })
    expect((await all.load()).batchSize).toEqual([3])
    const train = await loaderOver(rows, { validSize: 2 })
    expect((await train.load()).batchSize).toEqual([3])
  })

  it('leaves out what would be cut, if it shall', async () => {
    const rows = [
      { prompt: 'a ', label: 'b c' },
      { prompt: 'a ', label: 'b c a' },
    ]
    const { load } = await loaderOver(rows, { dropTruncated: true }, PromptTensorDictTokenizer)
    const ids = await load()
    expect([ids.batchSize, idsOf(ids)]).toEqual([[1], [1, 2, 3]])
    expect([...ids.tensor('prompt_rindex').data]).toEqual([0n])
    const none = await loaderOver(rows.slice(1), { dropTruncated: true }, PromptTensorDictTokenizer)
    await expect(none.load()).rejects.toThrow(failing('EMPTY', /all 1 were left out/))
    expect(existsSync(none.path)).toBe(false)
  })

  it('refuses ids of other options, and replaces them if it is forced to', async () => {
    const { load } = await loaderOver([{ text: 'a', prompt: 'b', label: ' c' }])
    await load()
    const hook = async function* upper() {
      yield { text: 'c' }
    }
    const others: [Partial<TokenizedDatasetLoaderOptions>, RegExp][] = [
      [{ tokenizerFn: PromptTensorDictTokenizer }, /tokenizerFn prompt: it was with text/],
      [{ preTokenizationHook: hook }, /hook upper: it was with none/],
      [{ dropTruncated: true }, /dropTruncated true/],
    ]
    for (const [other, message] of others)
      await expect(load(other)).rejects.toThrow(failing('INCOMPATIBLE', message))
    expect(idsOf(await load({ preTokenizationHook: hook, force: true }))).toEqual([3, 0, 0])
  })

  it('leaves nothing of a split that fails, and names the row', async () => {
    const { load, path, rootDir, folder } = await loaderOver([{ text: 'a' }, { text: 7 }])
    await expect(load()).rejects.toThrow(failing('CORRUPT', /row 1 of the split train .*column text: got 7/))
    expect(existsSync(path)).toBe(false)
    expect(await readdir(join(rootDir, basename(folder), 'train'))).toEqual([])
    const stopped = new AbortController()
    stopped.abort()
    await expect(load({ signal: stopped.signal })).rejects.toThrow(failing('ABORTED'))
  })

  it('opens what TorchRL would have left, without the options', async () => {
    const { load, path, folder } = await loaderOver([{ text: 'a' }])
    const rows = Tensor.from(BigInt64Array.of(7n, 7n, 7n), { shape: [1, 3] })
    await mkdir(path, { recursive: true })
    TokenizedDatasetLoader.datasetToTensorDict(
      TensorDict.from({ input_ids: rows, attention_mask: rows }, { batchSize: [1] }),
      path,
    )
    await rm(folder, { recursive: true })
    expect(idsOf(await load())).toEqual([7, 7, 7])
  })

  it('refuses a hook that yields no rows', async () => {
    const { load } = await loaderOver([{ text: 'a' }])
    const hook = () => ['a'] as never
    await expect(load({ preTokenizationHook: hook })).rejects.toThrow(failing('USER_CODE', /must yield rows/))
  })

  it('fetches only the files of the split and of the tokenizer', async () => {
    const files = ['train', 'test'].map((split) => `data/${split}-00000-of-00001.parquet`)
    const repo = 'CarperAI/openai_summarize_comparisons'
    const bodies = await Promise.all(files.map((file) => bytesOf(`raw/hub/datasets/${repo}/${file}`)))
    const hub = await startHub({
      ...{ kind: 'dataset', repo },
      files: Object.fromEntries(files.map((file, at) => [file, bodies[at] ?? new Uint8Array()])),
    })
    const tokenizer = await HfTokenizer.fromFolder(golden('raw/hub/models/gpt2'))
    const [rootDir, cache] = [await temporaryFolder(), await temporaryFolder()]
    const loader = new TokenizedDatasetLoader({
      ...{ split: 'test', maxLength: 12, datasetName: repo, tokenizerFn: TensorDictTokenizer },
      ...{ preTokenizationHook, tokenizer, rootDir, cache, endpoint: hub.endpoint },
    })
    const ids = await loader.load()
    const saved = new TokenizedDatasetLoader({
      ...{ split: 'test', maxLength: 12, datasetName: golden('raw/saved/openai_summarize_comparisons') },
      ...{ fromDisk: true, tokenizerFn: TensorDictTokenizer, preTokenizationHook, tokenizer },
      rootDir: await temporaryFolder(),
    })
    expect(ids.equals(await saved.load())).toBe(true)
    const bytes = hub.seen.filter(({ method, path }) => method === 'GET' && path.endsWith('.parquet'))
    expect(bytes.map(({ path }) => basename(path))).toEqual(['test-00000-of-00001.parquet'])
    const before = hub.seen.length
    await loader.load()
    expect(hub.seen).toHaveLength(before)
  })

  it('refuses bytes that are not those of the hub', async () => {
    const file = 'data/train-00000-of-00001.parquet'
    const hub = await startHub({ kind: 'dataset', repo: 'Org/Name', files: { [file]: 'no Parquet' } })
    const [rootDir, cache] = [await temporaryFolder(), await temporaryFolder()]
    const options = {
      ...{ split: 'train', maxLength: 3, datasetName: 'Org/Name', tokenizerFn: TensorDictTokenizer },
      ...{ tokenizer: words, rootDir, cache, endpoint: hub.endpoint },
    }
    await expect(new TokenizedDatasetLoader(options).load()).rejects.toThrow(failing('CORRUPT', /Parquet/))
    await expect(new TokenizedDatasetLoader({ ...options, split: 'other' }).load()).rejects.toThrow(
      failing('UNKNOWN_NAME', /the split other/),
    )
  })
})

describe('options of TokenizedDatasetLoader', () => {
  const options = { split: 'train', maxLength: 3, datasetName: 'a', tokenizerFn: TensorDictTokenizer }

  it('are refused before anything is read', () => {
    const cases: [object, string, RegExp][] = [
      [{ split: '../train' }, 'MALFORMED', /split/],
      [{ split: 'a..b' }, 'MALFORMED', /split/],
      [{ split: '*' }, 'MALFORMED', /split/],
      [{ maxLength: 0 }, 'OUT_OF_RANGE', /maxLength .*: got 0/],
      [{ validSize: 1.5 }, 'OUT_OF_RANGE', /validSize/],
      [{ datasetName: '' }, 'MALFORMED', /datasetName/],
      [{ fromDisk: 'yes' }, 'MALFORMED', /fromDisk/],
      [{ tokenizerFn: class Other {} }, 'MALFORMED', /tokenizerFn/],
      [{ preTokenizationHook: 'lower' }, 'MALFORMED', /preTokenizationHook/],
      [{ max_length: 3 }, 'UNKNOWN_NAME', /maxLength/],
      [{ datasetName: undefined }, 'MALFORMED', /datasetName/],
    ]
    for (const [part, code, message] of cases) {
      const make = () => new TokenizedDatasetLoader({ ...options, ...part } as never)
      expect(make, JSON.stringify(part)).toThrow(failing(code, message))
    }
  })

  it.skipIf(isNative)('need files, which WebAssembly lacks', async () => {
    await expect(new TokenizedDatasetLoader(options).load()).rejects.toThrow(
      failing('UNAVAILABLE', /WebAssembly/),
    )
  })

  it.runIf(isNative)('of columns name a prefix that is no key', async () => {
    const folder = await temporaryFolder()
    const keep = () =>
      TokenizedDatasetLoader.datasetToTensorDict(TensorDict.from({}), join(folder, 'x'), {
        prefix: ['a', ''],
      })
    expect(keep).toThrow(failing('MALFORMED', /prefix/))
  })
})
