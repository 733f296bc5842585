/** Requests of the hub's official client, and the files that it leaves in its cache: ours asks for the same and leaves the same. */

import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { fetchHubFile, fetchSnapshot } from 'fulmar/fetch'
import { bytesOf, folderHub } from './folder-hub.mjs'
import { same } from './golden-values.mjs'
import { decided } from './loss-rows.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/dataset', import.meta.url))
const RESUMED = 'a part of a file is resumed'
const CACHE_ONLY = 'a counterpart: files of the hub are kept in its cache alone'
const NAMED = 'a counterpart: files are asked for by the name of their repository'
const TREES = 'listings of the hub are not kept'

/** Files that the official client keeps besides: listings of repositories. */
const LISTING = /\/trees\/[0-9a-f]{40}\.json$/

const CALLS = { hf_hub_download: oneFile, snapshot_download: snapshot }
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

export const hub = {
  topic: 'fetches from the hub',
  members: ({ topic, args }) => ({
    input: 'id topic args file',
    expected: CALLS[topic] && !args?.local_dir ? 'ok requests cache' : '',
    refusal: 'error:ok',
    aside: {
      note: 'a remark',
      client: 'a version',
      'requests.*.range': 'of a part that is resumed',
      'requests.*.status': 'that of the server here',
      'requests.*.host': 'that of the server here',
      files: 'files in a folder of the official client',
      content: 'that of a file of the cache',
      ...(CALLS[topic] && !args?.local_dir
        ? {}
        : {
            ok: 'an answer of another client',
            requests: 'those of another client',
            cache: 'files of earlier rows',
          }),
    },
  }),
  matches: ({ topic, client, file, content, files }) =>
    (client?.startsWith('huggingface_hub') ?? false) ||
    (topic === 'ref' && content !== undefined && file !== undefined) ||
    (topic === 'local_dir' && files !== undefined),
  prepare: (folder) => ({
    folder: [folder, GOLDEN].find((one) => existsSync(join(one, 'raw/hub'))),
    before: cachesIn(join(folder, 'hub.jsonl')),
  }),
  check: async ({ value: row }, shared) => {
    if (row.topic === 'local_dir' || row.args?.local_dir) return { skipped: CACHE_ONLY }
    if (row.topic === 'ref') return refDiffers(row)
    if (CALLS[row.topic] === undefined) return { skipped: NAMED }
    if (!HAS_FILES) return { skipped: 'files, which the WebAssembly module does not open' }
    return await called(row, shared)
  },
}

/** The cache before each row of a file, by its id. */
function cachesIn(path) {
  const rows = existsSync(path)
    ? readFileSync(path, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    : []
  return new Map(rows.map(({ id }, at) => [id, rows[at - 1]?.cache ?? []]))
}

/** `refs/REVISION` is the commit alone. */
function refDiffers({ file, content }) {
  return same([/\/refs\/\w+$/.test(file), /^[0-9a-f]{40}$/.test(content)], [true, true])
}

async function called(row, { folder, before }) {
  const cache = await mkdtemp(join(tmpdir(), 'fulmar-conform-'))
  try {
    const left = row.cache.filter(([name]) => !LISTING.test(name) && !name.endsWith('.incomplete'))
    const server = folderHub(join(folder, 'raw/hub'), { commitOf: commitsIn(row.cache), isLarge })
    const fetching = { client: server.client, endpoint: server.endpoint, cache, kind: 'dataset', retries: 0 }
    // Rows follow one another on one cache: the files of earlier rows are fetched first.
    await filled(before.get(row.id) ?? [], fetching)
    const isPart = await leavePart(row, folder, cache)
    server.seen.length = 0
    const got = await attempted(() => CALLS[row.topic](row.args, fetching))
    const wanted = row.requests.map(({ method, path }) => `${method} ${path}`)
    const place = row.ok?.replace('<tmp>/hf/hub/', '')
    const wrong =
      (row.error
        ? got.code
          ? undefined
          : 'must be refused'
        : same(got.value?.slice(cache.length + 1), place)) ??
      same(server.seen.toSorted(), wanted.toSorted()) ??
      same(
        contentOf(cache),
        left.toSorted(([one], [other]) => (one < other ? -1 : 1)),
      )
    const isListed = row.topic === 'snapshot_download'
    const own = `datasets--${row.args.repo_id.replace('/', '--')}/`
    const listings = row.cache.filter(([name]) => name.startsWith(own) && LISTING.test(name))
    const unlisted = isListed ? same(listings.length, 1) : undefined
    const decisions = [...(isPart ? [RESUMED] : []), ...(isListed ? [TREES] : [])]
    return wrong ?? unlisted ?? (decisions.length > 0 ? decided(decisions.join('; ')) : undefined)
  } finally {
    await rm(cache, { recursive: true, force: true })
  }
}

/** Large files are those that another host has. */
const isLarge = (name) => /\.(?:h5|hdf5|npz|parquet|mp4|tar|gz|safetensors|gguf)$/.test(name)

/** A file of a cache: its repository, its commit, its name. */
const CACHED = /^datasets--(.+?)--(.+?)\/(?:snapshots|\.no_exist)\/([0-9a-f]{40})\/(.+)$/

/** The commit of a repository by its name. */
function commitsIn(cache) {
  const files = cache.map(([name]) => CACHED.exec(name)).filter(Boolean)
  const commits = new Map(files.map(([, owner, name, commit]) => [`${owner}/${name}`, commit]))
  return (name) => commits.get(name) ?? '0'.repeat(40)
}

/** Fetches the files of a cache, and asks for those that it lists as missing. */
async function filled(cache, fetching) {
  for (const [, owner, name, , file] of cache.map(([path]) => CACHED.exec(path)).filter(Boolean))
    await attempted(() => fetchHubFile(`${owner}/${name}`, file, fetching))
}

/** Leaves a part of the file of a row that begins with one; true if it does. */
async function leavePart({ args, note, cache }, folder, root) {
  const [, count] = /^(\d+) of \d+ bytes stood under/.exec(note ?? '') ?? []
  if (count === undefined) return false
  const [blob] = cache.find(([name]) => name.endsWith('.incomplete'))
  const bytes = bytesOf(join(folder, 'raw/hub/datasets', args.repo_id, args.filename))
  await mkdir(dirname(join(root, blob)), { recursive: true })
  await writeFile(join(root, blob), bytes.subarray(0, Number(count)))
  return true
}

function oneFile(
  { repo_id: name, filename, local_files_only: offline = false, force_download: force = false },
  fetching,
) {
  return fetchHubFile(name, filename, { ...fetching, offline, force })
}

function snapshot({ repo_id: name, allow_patterns: include }, fetching) {
  return fetchSnapshot(name, { ...fetching, ...(include && { include: [include].flat() }) })
}

async function attempted(body) {
  try {
    return { value: await body() }
  } catch (error) {
    if (error instanceof Error && error.name === 'FulmarError') return { code: error.code }
    throw error
  }
}

/** Each file of the cache with its length, and each link with its target, as the rows have them. */
function contentOf(cache) {
  const entries = readdirSync(cache, { recursive: true, withFileTypes: true })
  const shown = entries.flatMap((entry) => {
    const path = join(entry.parentPath, entry.name)
    const name = path.slice(cache.length + 1)
    if (entry.isSymbolicLink()) return [[name, `-> ${readlinkSync(path)}`]]
    return entry.isFile() ? [[name, lstatSync(path).size]] : []
  })
  return shown.sort(([one], [other]) => (one < other ? -1 : 1))
}
