/** Files of plain web servers and buckets: where they are kept. */

import { createHash } from 'node:crypto'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { describeValue, FulmarError } from '../core/index.js'
import { nameParts } from './file-name.js'

/** The folder of fetched files: `root`, else that of the variable `FULMAR_HOME`, else the platform's. @throws {FulmarError} `MALFORMED`. */
export function cacheRoot(root: string | undefined): string {
  if (root !== undefined) {
    if (typeof root === 'string' && root !== '') return root
    throw new FulmarError('MALFORMED', `options.root must be a folder: got ${describeValue(root)}`)
  }
  const { FULMAR_HOME, XDG_CACHE_HOME, LOCALAPPDATA } = process.env
  if (FULMAR_HOME) return FULMAR_HOME
  if (process.platform === 'darwin') return join(homedir(), 'Library', 'Caches', 'fulmar')
  if (process.platform === 'win32')
    return join(LOCALAPPDATA || join(homedir(), 'AppData', 'Local'), 'fulmar', 'cache')
  return join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'fulmar')
}

/**
 * The path of a URL's file: `web/HOST/PATH`, with a hash of the query if there is one.
 * @throws {FulmarError} `MALFORMED` for a path that leads out of the folder, or names no file.
 */
export function pathOfUrl(root: string, url: URL): string {
  const parts = url.pathname.split('/').slice(1).map(decoded)
  // A slash that was encoded would make two parts of one.
  const whole = parts.some((part) => part.includes('/')) ? '..' : parts.join('/')
  const safe = nameParts('the path of url', whole, 'MALFORMED')
  const query =
    url.search === '' ? '' : `@${createHash('sha256').update(url.search).digest('hex').slice(0, 16)}`
  const host = url.host.replaceAll(':', '+')
  return `${join(root, 'web', host, ...safe)}${query}`
}

/** The path of a bucket's object: `gs/BUCKET/OBJECT`. @throws {FulmarError} `code` for a name that leads out of the folder. */
export function pathOfObject(
  root: string,
  bucket: string,
  object: string,
  code: 'MALFORMED' | 'CORRUPT',
): string {
  return join(root, 'gs', bucket, ...nameParts('the object', object, code))
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
