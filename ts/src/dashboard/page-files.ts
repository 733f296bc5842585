/** The files of the page: a closed list, so no request can name another file. */

import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

/** A file as it is answered. */
export interface PageFile {
  readonly type: string
  readonly bytes: Uint8Array
}

const TYPES = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
} as const

/** Path of a request -> module name of the file. */
const FILES: Readonly<Record<string, string>> = {
  '/': '#page/index.html',
  '/uplot.js': 'uplot/dist/uPlot.iife.min.js',
  '/uplot.css': 'uplot/dist/uPlot.min.css',
  ...Object.fromEntries(
    ['style.css', 'icon.svg', 'app.js', 'charts.js', 'rollouts.js', 'reader.js', 'tokens.js', 'dom.js'].map(
      (name) => [`/${name}`, `#page/${name}`],
    ),
  ),
}

/** Paths of all files of the page. */
export const PAGE_PATHS: readonly string[] = Object.keys(FILES)

const require = createRequire(import.meta.url)
const read = new Map<string, Promise<PageFile>>()

/** The file at a path; `undefined` for another path. Files are read once. */
export function pageFile(path: string): Promise<PageFile> | undefined {
  const name = Object.hasOwn(FILES, path) ? FILES[path] : undefined
  if (name === undefined) return undefined
  const file = read.get(path) ?? readPageFile(name)
  read.set(path, file)
  return file
}

async function readPageFile(name: string): Promise<PageFile> {
  const extension = name.slice(name.lastIndexOf('.') + 1)
  const type = TYPES[extension as keyof typeof TYPES] ?? 'application/octet-stream'
  return { type, bytes: await readFile(require.resolve(name)) }
}
