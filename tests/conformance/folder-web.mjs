/**
 * Servers that have the files of a folder, in place of connections: web hosts below `web/HOST`, buckets below `gs/BUCKET`, and the hub's
 * repositories below `hub`.
 */

import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { fetchClient } from 'fulmar'
import { bytesOf, filesBelow, folderHub } from './folder-hub.mjs'

const BUCKETS = 'storage.googleapis.com'

/**
 * Returns a client, and the files that it was asked for: `URL` of a web host, `gs://BUCKET/OBJECT`, or `REPO/FILE` of the hub.
 */
export function folderWeb(raw) {
  const seen = new Set()
  const hub = folderHub(join(raw, 'hub'))
  const answer = async (url, init) => {
    const { host, pathname } = new URL(url)
    if (host === new URL(hub.endpoint).host) {
      const [, , name] = /^\/(datasets\/)?(.+)$/.exec(decodeURIComponent(pathname)) ?? []
      if (!pathname.startsWith('/api/')) seen.add(name.replace(/\/resolve\/[^/]+\//, '/'))
      return await hub.answer(url, init)
    }
    if (host === BUCKETS) return bucket(raw, new URL(url), seen)
    seen.add(url)
    const bytes = bytesOf(join(raw, 'web', host, decodeURIComponent(pathname)))
    return bytes === undefined ? new Response('', { status: 404 }) : new Response(bytes)
  }
  return { client: fetchClient(answer), endpoint: hub.endpoint, seen }
}

/** An answer of a bucket's JSON API: its objects, or one of them. */
function bucket(raw, { pathname, searchParams }, seen) {
  const [, name, object] = /^\/storage\/v1\/b\/([^/]+)\/o(?:\/(.+))?$/.exec(pathname)
  const folder = join(raw, 'gs', name)
  if (object === undefined) {
    const prefix = searchParams.get('prefix') ?? ''
    const names = filesBelow(folder).filter((one) => one.startsWith(prefix))
    const about = (one) => {
      const bytes = bytesOf(join(folder, one))
      const md5Hash = createHash('md5').update(bytes).digest('base64')
      return { name: one, size: String(bytes.length), md5Hash }
    }
    return Response.json({ items: names.map(about) })
  }
  seen.add(`gs://${name}/${decodeURIComponent(object)}`)
  const bytes = bytesOf(join(folder, decodeURIComponent(object)))
  return bytes === undefined ? new Response('', { status: 404 }) : new Response(bytes)
}
