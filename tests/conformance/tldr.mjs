/** Rows of TorchRL's data sets of prompts and of pairs: files, ids, records and batches. */

import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { HfTokenizer } from 'fulmar'
import { Tensor, TensorDict } from 'fulmar/tensor'
import {
  createInfiniteIterator,
  getDataloader,
  PairwiseDataset,
  PromptData,
  PromptTensorDictTokenizer,
  preTokenizationHook,
  RewardData,
  TensorDictTokenizer,
  TokenizedDatasetLoader,
} from 'fulmar/torchrl'
import { folderHub } from './folder-hub.mjs'
import { dictDiffers, membersIn, same } from './golden-values.mjs'
import { decided } from './loss-rows.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/rlhf', import.meta.url))
const WHOLE = 'a validation split of fewer rows than its limit is taken whole'
const REFUSED = 'an empty source of endless passes is refused'

/** Name of the options in a folder of ids, which TorchRL's folders lack. */
const CONVERSION = 'conversion.json'

const CHECKS = {
  sources,
  rows: textRows,
  TokenizedDatasetLoader: loaded,
  TokenizedDatasetLoader_hub: fetched,
  hub_requests: asked,
  'PromptData.from_dataset': (row, shared) => recordsDiffer(row, shared, PromptData, 'PromptData'),
  'PairwiseDataset.from_dataset': (row, shared) =>
    recordsDiffer(row, shared, PairwiseDataset, 'PairwiseDataset'),
  'PromptData.mask_label': masked,
  get_dataloader: batches,
  dataset_to_tensordict: kept,
  create_infinite_iterator: refused,
}

/** The WebAssembly module opens no files. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')
const WITHOUT_FILES = new Set(['sources', 'create_infinite_iterator'])

/** Rows of `rlhf.jsonl` have topics of the same names, with other members. */
const isOther = ({ topic, input, source, ok }) =>
  (topic === 'PromptData.mask_label' && input !== undefined) ||
  (topic === 'create_infinite_iterator' && source !== undefined) ||
  (topic === 'rows' && ok !== undefined)

export const tldr = {
  topic: 'token data sets',
  members: ({ topic }) => ({
    input: 'id topic args dataset requests',
    expected: topic === 'rows' ? 'splits' : topic === 'sources' ? 'files' : 'ok',
    refusal: 'error:ok',
    aside: { note: 'a remark' },
  }),
  matches: (row) => Object.hasOwn(CHECKS, row.topic) && row.id?.startsWith('tldr') && !isOther(row),
  prepare,
  check: ({ value: row }, shared) =>
    HAS_FILES || WITHOUT_FILES.has(row.topic)
      ? CHECKS[row.topic](row, shared)
      : { skipped: 'files, which the WebAssembly module does not open' },
}

/** The files are in the folder of the rows, or in the repository. */
async function prepare(folder) {
  const raw = [folder, GOLDEN].map((one) => join(one, 'raw')).find((one) => existsSync(join(one, 'saved')))
  const tokenizer = await HfTokenizer.fromFolder(join(raw, 'hub/models/gpt2'))
  return { raw, tokenizer }
}

async function inFolder(body) {
  const root = await mkdtemp(join(tmpdir(), 'fulmar-conform-'))
  try {
    return await body(root)
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

async function attempted(body) {
  try {
    return { value: await body() }
  } catch (error) {
    if (error instanceof Error && 'code' in error) return { code: error.code }
    throw error
  }
}

/** Folders of the files, without those that `datasets` keeps for itself. */
const PLACES = ['hub/datasets/CarperAI', 'hub/models/gpt2', 'saved']

async function sources({ files }, { raw }) {
  const names = []
  for (const place of PLACES)
    for (const [name] of await filesIn(join(raw, place))) names.push(`raw/${place}/${name}`)
  const kept = names.filter((name) => !/\/cache-[^/]*$/.test(name))
  const strange = same(kept.sort(), files.map(([name]) => name).sort())
  if (strange) return strange
  for (const [name, hash] of files) {
    const bytes = await readFile(join(raw, '..', name))
    const wrong = same(createHash('sha256').update(bytes).digest('hex'), hash)
    if (wrong) return `${name}: ${wrong}`
  }
  return undefined
}

/** The rows that a hook sees are those of the files. */
async function textRows({ dataset, splits }, shared) {
  for (const [split, rows] of Object.entries(splits)) {
    for (const place of ['saved', 'hub/datasets/CarperAI']) {
      const seen = await inFolder(async (root) => {
        const got = []
        const hook = async function* (read) {
          for await (const row of read()) {
            got.push(row)
            yield { text: row.prompt }
          }
        }
        const datasetName = join(shared.raw, place, dataset)
        const options = { split, maxLength: 4, datasetName, fromDisk: true, rootDir: root, validSize: 1000 }
        const { tokenizer } = shared
        await new TokenizedDatasetLoader({
          ...{ ...options, tokenizer, tokenizerFn: TensorDictTokenizer, preTokenizationHook: hook },
        }).load()
        return got
      })
      const wrong = same(seen, rows)
      if (wrong) return `${place} ${split}: ${wrong}`
    }
  }
  return undefined
}

function loaderOf({ args }, { raw, tokenizer }, root) {
  const { split, max_length: maxLength, dataset, valid_size: validSize } = args
  const isPrompts = dataset === 'openai_summarize_tldr'
  const name = args.tokenizer_fn ?? (isPrompts ? 'PromptTensorDictTokenizer' : 'TensorDictTokenizer')
  const hasHook = args.hook === undefined ? !isPrompts : args.hook === 'pre_tokenization_hook'
  return new TokenizedDatasetLoader({
    ...{
      split,
      maxLength,
      tokenizer,
      datasetName: join(raw, 'saved', dataset),
      fromDisk: true,
      rootDir: root,
    },
    tokenizerFn: { PromptTensorDictTokenizer, TensorDictTokenizer }[name],
    ...(hasHook && { preTokenizationHook }),
    ...(validSize !== undefined && { validSize }),
  })
}

function loaded(row, shared) {
  return inFolder(async (root) => {
    const made = await attempted(() => loaderOf(row, shared, root).load())
    if (row.error) {
      const isSmall = row.error.class === 'IndexError'
      return isSmall
        ? decided(WHOLE, made.code ?? same(made.value.batchSize[0], 5))
        : made.code
          ? undefined
          : 'must be refused'
    }
    if (made.code) return made.code
    const { data, files, again_equal: isEqual, batch_size: batchSize } = membersIn(row.ok)
    const again = await loaderOf(row, shared, root).load()
    return (
      dictDiffers(made.value, data) ??
      same([...made.value.batchSize], batchSize) ??
      (isEqual === undefined ? undefined : same(again.equals(made.value), isEqual)) ??
      (files && same(await filesIn(root), files))
    )
  })
}

async function filesIn(root) {
  const names = await readdir(root, { recursive: true })
  const files = []
  for (const name of names.sort()) {
    const about = await stat(join(root, name))
    if (about.isFile() && !name.endsWith(CONVERSION)) files.push([name, about.size])
  }
  return files.sort(([left], [right]) => (left < right ? -1 : 1))
}

/** From a hub in place of the official one. */
function fetched({ args, ok, error }, { raw }) {
  return inFolder(async (root) => {
    const hub = folderHub(join(raw, 'hub'))
    const loader = new TokenizedDatasetLoader({
      ...{ split: args.split, maxLength: args.max_length, datasetName: args.dataset },
      ...{ tokenizerFn: PromptTensorDictTokenizer, rootDir: join(root, 'ids'), cache: join(root, 'hub') },
      ...{ client: hub.client, endpoint: hub.endpoint },
    })
    const made = await attempted(() => loader.load())
    if (error) return made.code ? undefined : 'must be refused'
    return made.code ?? dictDiffers(made.value, ok)
  })
}

/** Of the files of a data set, only those are asked for that the official client asks for, at the same addresses. */
function asked({ requests }, { raw }) {
  return inFolder(async (root) => {
    const addresses = requests.map(({ method, path }) => `${method} ${path}`)
    const [, name, commit] = addresses
      .map((one) => /^HEAD \/datasets\/(.+)\/resolve\/([0-9a-f]{40})\/data\//.exec(one))
      .find((one) => one !== null)
    const hub = folderHub(join(raw, 'hub'), { commitOf: () => commit })
    const options = {
      split: 'train',
      maxLength: 40,
      datasetName: name,
      tokenizerFn: PromptTensorDictTokenizer,
    }
    const places = { rootDir: join(root, 'ids'), cache: join(root, 'hub') }
    const client = { client: hub.client, endpoint: hub.endpoint }
    await new TokenizedDatasetLoader({ ...options, ...places, ...client }).load()
    const ours = hub.seen.filter((one) => one.startsWith('HEAD /datasets/'))
    const strange = ours.find((one) => !addresses.includes(one))
    return ours.length === 0
      ? 'no file was asked for'
      : strange && `got ${strange}, which the official client does not ask for`
  })
}

function recordsDiffer({ args, ok }, shared, records, cls) {
  return inFolder(async (root) => {
    const made = await records.fromDataset(sourceOf(records, args.max_length, args.split, shared, root))
    const inner =
      cls === 'PairwiseDataset' ? Object.values(ok.k).find((one) => one.cls !== 'RewardData') : undefined
    return (
      same(ok.cls, cls) ??
      (inner && `a part is a ${inner.cls}`) ??
      dictDiffers(made.dict, ok) ??
      (cls === 'PromptData' ? undefined : same(Object.keys(RewardData.fields).length, 4))
    )
  })
}

function sourceOf(records, maxLength, split, { raw, tokenizer }, root) {
  const set = records === PromptData ? 'openai_summarize_tldr' : 'openai_summarize_comparisons'
  return { split, maxLength, tokenizer, datasetName: join(raw, 'saved', set), fromDisk: true, rootDir: root }
}

function masked({ args, ok }, shared) {
  return inFolder(async (root) => {
    const data = await PromptData.fromDataset(sourceOf(PromptData, 40, 'train', shared, root))
    const prompts = PromptData.maskLabel(data.map((dict) => dict.slice(0, args.rows)))
    return same(ok.cls, 'PromptData') ?? dictDiffers(prompts.dict, ok)
  })
}

function batches({ args, ok, error }, shared) {
  return inFolder(async (root) => {
    const records = { PromptData, PairwiseDataset }[args.tensorclass_type]
    const { batch_size: batchSize, block_size: blockSize, infinite } = args
    const { maxLength: _, split: __, ...source } = sourceOf(records, blockSize, 'train', shared, root)
    const options = { ...source, tensorclassType: records, batchSize, blockSize, infinite }
    const made = await attempted(() => getDataloader(options))
    if (error) return made.code ? undefined : 'must be refused'
    if (made.code) return made.code
    const got = []
    for await (const batch of made.value) {
      got.push([[...batch.batchSize], Object.keys(records.fields).sort(), args.tensorclass_type])
      const ids = records === PromptData ? batch.input_ids : batch.chosen_data.input_ids
      const wrong = same([...ids.shape], [batchSize, blockSize])
      if (wrong) return wrong
      if (infinite && got.length === ok.length) break
    }
    return same(got, ok)
  })
}

function kept({ args, ok }) {
  return inFolder(async (root) => {
    const [want, files] = ok.$tuple
    const columns = TensorDict.from(
      {
        tokens: Tensor.from(BigInt64Array.of(1n, 2n, 3n, 4n), { shape: [2, 2] }),
        labels: Tensor.from([0, 1, 1, 0], { shape: [2, 2] }),
      },
      { batchSize: [2] },
    )
    const dict = TokenizedDatasetLoader.datasetToTensorDict(columns, join(root, 'kept'), {
      prefix: args.prefix,
    })
    return dictDiffers(dict, want) ?? same(await filesIn(join(root, 'kept')), files)
  })
}

function refused() {
  const isRefused = ['EMPTY'].includes(codeOf(() => createInfiniteIterator([]).next()))
  return decided(REFUSED, isRefused ? undefined : 'must be refused')
}

function codeOf(body) {
  try {
    body()
    return undefined
  } catch (error) {
    return error.code
  }
}
