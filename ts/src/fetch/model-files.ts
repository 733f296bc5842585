/** Models of the hub: which files of a repository a model needs. */

import { join } from 'node:path'
import { checkKnownKeys, describeValue, FulmarError, messageOf, readRegular } from '../core/index.js'
import { isThere } from './download.js'
import { type ParallelOptions, withTransfer } from './fetch-options.js'
import { nameParts } from './file-name.js'
import type { HubFile } from './hub.js'
import { isRepoName, shownRepo } from './hub.js'
import {
  fetchHubFile,
  fetchMany,
  HUB_KEYS,
  type HubOptions,
  type HubPlan,
  heldSnapshot,
  listed,
  notCached,
  planOf,
} from './hub-files.js'
import { Tally } from './tally.js'

/** Options of {@link fetchModel}. */
export interface FetchModelOptions extends HubOptions, ParallelOptions {}

const WEIGHTS = 'model.safetensors'
const INDEX = 'model.safetensors.index.json'
const ADAPTER = 'adapter_model.safetensors'

/** Configuration, tokenizer, template, index: files of the repository's top folder. */
const SMALL = /^[^/]+\.(?:json|jinja|txt|model)$/

/** Most bytes of an index of weights. */
const INDEX_BYTES_MAX = 64 * 1024 * 1024

/** A model of the hub as its name says: a repository, and a GGUF file of it. */
interface ModelName {
  readonly repo: string
  readonly file: string | undefined
}

/**
 * Fetches a model of the hub into its cache and returns the folder: configuration, tokenizer, chat template, and weights as
 * safetensors. A name `owner/name/FILE.gguf` fetches that file alone and returns its path. Weights come last, so weights that are
 * whole mean that the model is.
 *
 * @throws {FulmarError} As {@link fetchHubFile}; `INCOMPATIBLE` for a repository without weights as safetensors.
 *
 * @example
 * ```ts
 * import { fetchModel } from 'fulmar/fetch'
 * import assert from 'node:assert/strict'
 *
 * const fetching = fetchModel('Qwen/Qwen3-0.6B', { cache: '/nowhere', offline: true })
 * await assert.rejects(fetching, { code: 'UNAVAILABLE' }) // it is not there; leave `offline` out to fetch it
 * ```
 */
export async function fetchModel(name: string, options: FetchModelOptions = {}): Promise<string> {
  checkKnownKeys('options', options, [...HUB_KEYS, 'parallel'])
  const { repo, file } = partsOf(name)
  if (file !== undefined) {
    const { parallel, ...others } = options
    return await fetchHubFile(repo, file, others)
  }
  const plan = planOf(repo, options)
  if (plan.isOffline) return await heldModel(plan)
  return await withTransfer(options, async (transfer, slots) => {
    const { commit, files } = await listed(transfer, plan)
    const pinned = { ...plan, repo: { ...plan.repo, revision: commit } }
    const folder = plan.cache.snapshot(commit)
    const tally = new Tally(shownRepo(plan.repo), options.onProgress)
    const all = new Set(files.map((one) => one.name))
    const isSharded = all.has(INDEX)
    const hasTokenizer = all.has('tokenizer.json') || all.has('tokenizer.fulmar.json')
    if (!hasTokenizer || !all.has('config.json') || !all.has(isSharded ? INDEX : WEIGHTS))
      throw withoutWeights(plan, files)
    const small = files.filter((one) => SMALL.test(one.name))
    const singles = isSharded ? [ADAPTER] : [WEIGHTS, ADAPTER]
    await fetchMany(transfer, slots, pinned, small, tally)
    const names = new Set([...singles, ...(isSharded ? await shardsIn(join(folder, INDEX)) : [])])
    const weights = files.filter((one) => names.has(one.name))
    await fetchMany(transfer, slots, pinned, weights, tally)
    await plan.cache.setCommit(plan.repo.revision, commit)
    tally.end()
    if (!(await isWhole(folder))) throw withoutWeights(plan, files)
    return folder
  })
}

/**
 * @internal Returns the path of a model that is whole in the cache, without a question to the hub; else `undefined`.
 * @throws {FulmarError} `MALFORMED` for a name or options that cannot be.
 */
export async function cachedModel(name: string, options: FetchModelOptions): Promise<string | undefined> {
  checkKnownKeys('options', options, [...HUB_KEYS, 'parallel'])
  const { repo, file } = partsOf(name)
  const { cache, repo: at } = planOf(repo, options)
  const commit = options.force ? undefined : await cache.commitOf(at.revision)
  if (commit === undefined) return undefined
  if (file !== undefined) return await cache.find(commit, file)
  const folder = cache.snapshot(commit)
  return (await isWhole(folder)) ? folder : undefined
}

/** @internal Returns true for the name of a model on the hub: `owner/name` or `owner/name/FILE.gguf`. */
export function isModelName(name: string): boolean {
  const [owner = '', repo = '', ...file] = name.split('/')
  if (!isRepoName(`${owner}/${repo}`)) return false
  return file.length === 0 || name.endsWith('.gguf')
}

function partsOf(name: string): ModelName {
  if (typeof name !== 'string')
    throw new FulmarError('MALFORMED', `name must be a text: got ${describeValue(name)}`)
  if (!name.endsWith('.gguf')) return { repo: name, file: undefined }
  const [owner, repo, ...file] = name.split('/')
  nameParts('name', file.join('/'), 'MALFORMED')
  return { repo: `${owner}/${repo}`, file: file.join('/') }
}

async function heldModel(plan: HubPlan): Promise<string> {
  const folder = await heldSnapshot(plan)
  if (await isWhole(folder)) return folder
  const lacking = await lackingIn(folder)
  throw notCached(plan, lacking.join(', '))
}

async function isWhole(folder: string): Promise<boolean> {
  return (await lackingIn(folder)).length === 0
}

/** The files that a model needs and the folder lacks. */
async function lackingIn(folder: string): Promise<readonly string[]> {
  const has = (name: string) => isThere(join(folder, name))
  const weights = (await has(INDEX)) ? await shardsIn(join(folder, INDEX)) : [WEIGHTS]
  const tokenizer = (await has('tokenizer.fulmar.json')) ? [] : ['tokenizer.json']
  const lacking: string[] = []
  for (const name of ['config.json', ...tokenizer, ...weights]) if (!(await has(name))) lacking.push(name)
  return lacking
}

/** The files of weights that an index names. @throws {FulmarError} `CORRUPT` for one that is not in its folder. */
async function shardsIn(path: string): Promise<readonly string[]> {
  const bytes = await readRegular(path, INDEX_BYTES_MAX)
  const shards = new Set(Object.values(weightMapIn(path, bytes ?? new Uint8Array())))
  for (const shard of shards) {
    const { length } = nameParts(`a file of ${path}`, shard, 'CORRUPT')
    if (length !== 1)
      throw new FulmarError('CORRUPT', `a file of ${path} must be in its folder: got ${shard}`)
  }
  return [...shards].map(String)
}

function weightMapIn(path: string, bytes: Uint8Array): object {
  try {
    const { weight_map: map } = JSON.parse(new TextDecoder().decode(bytes))
    if (typeof map === 'object' && map !== null) return map
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be JSON: ${messageOf(cause)}`, { cause })
  }
  throw new FulmarError('CORRUPT', `${path} must have a weight_map: there is none`)
}

function withoutWeights({ repo }: HubPlan, files: readonly HubFile[]): FulmarError {
  const names = files.map((file) => file.name)
  const gguf = names.filter((name) => name.endsWith('.gguf')).slice(0, 8)
  const hint =
    gguf.length === 0
      ? ''
      : `; name one of its GGUF files: ${gguf.map((name) => `${repo.name}/${name}`).join(', ')}`
  const needed = [INDEX, WEIGHTS, 'config.json', 'tokenizer.json'].join(', ')
  const detail = `${shownRepo(repo)} must have a configuration, a tokenizer and weights as safetensors (${needed}): it lacks some${hint}`
  return new FulmarError('INCOMPATIBLE', detail)
}
