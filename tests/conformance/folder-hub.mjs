/** A hub that has the repositories of a folder, `datasets/OWNER/NAME` and `models/NAME`, in place of connections. */

import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fetchClient } from 'fulmar'

/** The host of large files. */
const FILES = 'http://files.invalid'

/**
 * Returns the client, its answers, its endpoint and the requests that it has seen, such as `HEAD /gpt2/resolve/main/config.json`. `commitOf` gives
 * that of a repository; files that `isLarge` names come from another host.
 */
export function folderHub(folder, { commitOf = () => '0'.repeat(40), isLarge = () => false } = {}) {
  const seen = []
  const answer = async (url, { method = 'GET', headers } = {}) => {
    const { origin, pathname, search } = new URL(url)
    const path = decodeURIComponent(pathname)
    const isApi = path.startsWith('/api/')
    seen.push(`${method} ${path}${isApi ? search : ''}`)
    if (origin === FILES) return ranged(bytesOf(join(folder, path.slice('/cdn/'.length))), headers)
    if (isApi) return listing(folder, path, commitOf) ?? lost('RepoNotFound')
    const [, set = 'models/', name, revision, file] =
      /^\/(datasets\/)?(.+)\/resolve\/([^/]+)\/(.+)$/.exec(path) ?? []
    if (file === undefined || !existsSync(join(folder, set, name))) return lost('RepoNotFound')
    const commit = commitOf(name)
    if (revision !== 'main' && revision !== commit) return lost('RevisionNotFound')
    const bytes = bytesOf(join(folder, set, name, file))
    if (bytes === undefined) return lost('EntryNotFound', { 'x-repo-commit': commit })
    if (!isLarge(file)) {
      const etag = createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
      const about = { etag: `"${etag}"`, 'x-repo-commit': commit, 'content-length': String(bytes.length) }
      return new Response(method === 'HEAD' ? null : bytes, { headers: about })
    }
    const location = `${FILES}/cdn/${set}${name}/${file.split('/').map(encodeURIComponent).join('/')}`
    const linked = { 'x-linked-etag': `"${sha256(bytes)}"`, 'x-linked-size': String(bytes.length) }
    const about = { location, 'x-repo-commit': commit, ...linked }
    return new Response(null, { status: 302, headers: about })
  }
  return { client: fetchClient(answer), answer, endpoint: 'http://hub.invalid', seen }
}

/** The bytes of a file; `undefined` if it is not there. */
export function bytesOf(path) {
  return existsSync(path) && statSync(path).isFile() ? readFileSync(path) : undefined
}

/** The names of all files below a folder. */
export function filesBelow(folder) {
  if (!existsSync(folder)) return []
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
  return entries.map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1))
}

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex')

/** The commit of a revision, the files of a repository with their sizes, or the ids of its files. */
function listing(folder, path, commitOf) {
  const [, kind, name, what] =
    /^\/api\/(datasets|models)\/(.+?)(?:\/(revision|tree)\/[^/]+)?$/.exec(path) ?? []
  const repository = join(folder, String(kind), String(name))
  if (kind === undefined || !existsSync(repository)) return undefined
  const commit = commitOf(name)
  if (what === 'revision') return Response.json({ sha: commit })
  const names = filesBelow(repository)
  if (what === undefined)
    return Response.json({ sha: commit, siblings: names.map((rfilename) => ({ rfilename })) })
  const sized = (one) => ({ type: 'file', path: one, size: statSync(join(repository, one)).size })
  return Response.json(names.map(sized))
}

/** The bytes from where a range begins. */
function ranged(bytes, headers) {
  const start = Number(/^bytes=(\d+)-$/.exec(new Headers(headers).get('range') ?? '')?.[1] ?? 0)
  const etag = `"${sha256(bytes)}"`
  if (start === 0) return new Response(bytes, { headers: { etag } })
  const range = `bytes ${start}-${bytes.length - 1}/${bytes.length}`
  return new Response(bytes.subarray(start), { status: 206, headers: { etag, 'content-range': range } })
}

const lost = (code, more) => new Response('', { status: 404, headers: { 'x-error-code': code, ...more } })
