/** Names of files that servers give: parts of a path below one folder, or refused. */

import { type ErrorCode, FulmarError } from '../core/index.js'

/** Most bytes of a file's whole name. */
const FILE_NAME_BYTES_MAX = 1024

/** Most bytes of one part of it: the limit of file systems. */
const PART_BYTES_MAX = 255

/** Devices that Windows opens under any folder and with any suffix. */
const DEVICE = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?$/i

/**
 * Returns the parts of a relative name with forward slashes.
 * @throws {FulmarError} `code` for a name that is not one below a folder on every platform: empty, absolute, with `..`,
 * a drive, a backslash, a NUL or another control character, or too long.
 */
export function nameParts(what: string, name: unknown, code: ErrorCode): readonly string[] {
  const reason = typeof name === 'string' ? reasonAgainst(name) : 'it is not a text'
  if (typeof name === 'string' && reason === undefined) return name.split('/')
  const shown = typeof name === 'string' ? JSON.stringify(name.slice(0, 200)) : String(name)
  throw new FulmarError(code, `${what} must name a file below its folder: got ${shown} (${reason})`)
}

function reasonAgainst(name: string): string | undefined {
  if (name === '') return 'it is empty'
  if (name.startsWith('/')) return 'it is absolute'
  if (/^[a-z]:/i.test(name)) return 'it begins with a drive'
  if (name.includes('\\')) return 'it has a backslash'
  if (hasControl(name)) return 'it has a control character'
  if (Buffer.byteLength(name) > FILE_NAME_BYTES_MAX) return `it has more than ${FILE_NAME_BYTES_MAX} bytes`
  for (const part of name.split('/')) {
    if (part === '') return 'a part is empty'
    if (part === '.' || part === '..') return `a part is ${part}`
    if (Buffer.byteLength(part) > PART_BYTES_MAX) return `a part has more than ${PART_BYTES_MAX} bytes`
    if (process.platform === 'win32' && (DEVICE.test(part) || /[. ]$|[<>:"|?*]/.test(part)))
      return 'Windows cannot keep it'
  }
  return undefined
}

function hasControl(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) < 32) return true
  return false
}
