/** What the official client of the hub asks for and leaves in its cache: ours asks for the same and leaves the same. */

import { existsSync, lstatSync, readdirSync, readlinkSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { fetchHubFile, fetchSnapshot } from 'fulmar/fetch'
import { bytesOf, folderHub } from './folder-hub.mjs'
import { same } from './golden-values.mjs'
import { decided } from './loss-rows.mjs'

const GOLDEN = fileURLToPath(new URL('../golden/dataset', import.meta.url))
const RESUMED = 'a part of a file is gone on with'
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
      'requests.*.range': 'a part that is gone on with',
      'requests.*.status': 'that of the server here',
      'requests.*.host': 'that of the server here',
      files: 'what the official client leaves in a folder of its own',
      content: 'that of a file of the cache',
      ...(CALLS[topic] && !args?.local_dir
        ? {}
        : {
            ok: 'an answer of another client',
            requests: 'those of another client',
            cache: 'what was left before',
          }),
    },
  }),
  matches: ({ topic, client, file, content, files }) =>
    (client?.startsWith('huggingface_hub') ?? false) ||
    (topic === 'ref' && content !== undefined && file !== undefined) ||
    (topic === 'local_dir' && files !== undefined),
  prepare: (folder) =>
    [folder, join(folder, '../dataset'), GOLDEN].find((one) => existsSync(join(one, 'raw/hub'))),
  check: async ({ value: row }, folder) => {
    if (row.topic === 'local_dir' || row.args?.local_dir) return { skipped: CACHE_ONLY }
    if (row.topic === 'ref') return refDiffers(row, folder)
    if (CALLS[row.topic] === undefined) return { skipped: NAMED }
    if (!HAS_FILES) return { skipped: 'files, which the WebAssembly module does not open' }
    return await called(row, folder)
  },
}

/** `refs/REVISION` is the commit alone. */
function refDiffers({ file, content }) {
  return same([/\/refs\/\w+$/.test(file), /^[0-9a-f]{40}$/.test(content)], [true, true])
}

async function called(row, folder) {
  const cache = await mkdtemp(join(tmpdir(), 'fulmar-conform-'))
  try {
    const isPart = /\bincomplete\b/.test(row.note ?? '')
    const repository = `datasets--${row.args.repo_id.replace('/', '--')}`
    const own = row.cache.filter(([name]) => name.startsWith(`${repository}/`))
    const commit = own
      .map(([name]) => /\/(?:snapshots|\.no_exist)\/([0-9a-f]{40})\//.exec(name)?.[1])
      .find(Boolean)
    const server = folderHub(join(folder, 'raw/hub'), { ...(commit && { commit }), isLarge })
    const fetching = { client: server.client, endpoint: server.endpoint, cache, kind: 'dataset', retries: 0 }
    // Rows follow one another on one cache: what stood there is fetched first.
    await filled(row, own, server, fetching, isPart)
    server.seen.length = 0
    const got = await attempted(() => CALLS[row.topic](row.args, fetching))
    const seen = server.seen.toSorted()
    const wanted = row.requests.map(({ method, path }) => `${method} ${path}`).toSorted()
    const left = own.filter(([name]) => !LISTING.test(name) && !name.endsWith('.incomplete'))
    const wrong =
      (row.error
        ? got.code
          ? undefined
          : 'must be refused'
        : same(got.value?.slice(cache.length + 1), row.ok.replace('<tmp>/hf/hub/', ''))) ??
      same(seen, wanted) ??
      same(
        contentOf(cache),
        left.toSorted(([one], [other]) => (one < other ? -1 : 1)),
      )
    const decisions = [...(isPart ? [RESUMED] : []), ...(left.length < own.length && !isPart ? [TREES] : [])]
    return wrong ?? (decisions.length > 0 ? decided(decisions.join('; ')) : undefined)
  } finally {
    await rm(cache, { recursive: true, force: true })
  }
}

/** Large files are those that another host has. */
const isLarge = (name) => /\.(?:h5|hdf5|npz|parquet|mp4|tar|gz|safetensors|gguf)$/.test(name)

/** Brings the cache to where the row began: the files of its repository that it did not ask for, and a part. */
async function filled({ args, requests, error }, own, server, fetching, isPart) {
  const fetched = new Set(requests.filter(({ method }) => method === 'GET').map(({ path }) => path))
  const begun = own
    .filter(([name]) => name.includes('/snapshots/'))
    .map(([name]) => name.split(/\/snapshots\/[0-9a-f]{40}\//)[1])
  const asked = (name) =>
    [...fetched].some((path) => path.endsWith(`/${name}`)) && args.force_download !== true
  for (const name of begun) if (!asked(name)) await fetchHubFile(args.repo_id, name, fetching)
  const missing = own.map(([name]) => name.split(/\/\.no_exist\/[0-9a-f]{40}\//)[1]).filter(Boolean)
  for (const name of missing)
    if (!(error && args.filename === name && requests.length > 0))
      await attempted(() => fetchHubFile(args.repo_id, name, fetching))
  if (!isPart) return
  const [blob] = own.find(([name]) => name.endsWith('.incomplete'))
  const link = own.find(
    ([name, to]) =>
      name.endsWith(`/${args.filename}`) &&
      String(to).endsWith(blob.split('/').at(-1).replace('.incomplete', '')),
  )
  const bytes = bytesOf(
    join(server.folder, 'datasets', args.repo_id, link[0].split(/\/snapshots\/[0-9a-f]{40}\//)[1]),
  )
  await mkdir(dirname(join(fetching.cache, blob)), { recursive: true })
  await writeFile(join(fetching.cache, blob), bytes.subarray(0, own.find(([name]) => name === blob)[1]))
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
