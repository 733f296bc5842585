/** A hub that has the repositories of a folder, `datasets/OWNER/NAME` and `models/NAME`, in place of connections. */

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fetchClient } from 'fulmar'

/** Returns the client, its endpoint and the requests that it has seen, such as `HEAD /gpt2/resolve/main/config.json`. */
export function folderHub(folder, commit = '0'.repeat(40)) {
  const seen = []
  const answer = async (url, { method = 'GET' } = {}) => {
    const { pathname } = new URL(url)
    const path = decodeURIComponent(pathname)
    seen.push(`${method} ${path}`)
    const api = /^\/api\/(datasets|models)\/(.+?)\/(revision|tree)\/[^/]+$/.exec(path)
    if (api?.[3] === 'revision') return Response.json({ sha: commit })
    if (api) return Response.json(listed(join(folder, api[1], api[2])))
    const [, set = '', name, file] = /^\/(datasets\/)?(.+)\/resolve\/[^/]+\/(.+)$/.exec(path) ?? []
    if (file === undefined) return new Response('', { status: 404 })
    const bytes = readFileSync(join(folder, set || 'models', name, file))
    const etag = createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
    const headers = { etag: `"${etag}"`, 'x-repo-commit': commit, 'content-length': String(bytes.length) }
    return new Response(method === 'HEAD' ? null : bytes, { headers })
  }
  return { client: fetchClient(answer), endpoint: 'http://hub.invalid', seen }
}

function listed(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
  return entries.map(({ parentPath, name }) => {
    const path = join(parentPath, name)
    return { type: 'file', path: path.slice(folder.length + 1), size: readFileSync(path).length }
  })
}
