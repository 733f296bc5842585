/** The entries of the package: the files of `ts/src` behind `exports` of package.json. */

import { readFileSync } from 'node:fs'

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>
}

const manifest = JSON.parse(
  readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'),
) as Manifest

/** Paths below `ts/src`; the main entry, which only repeats names, is the last. */
export const ENTRIES: readonly string[] = Object.values(manifest.exports)
  .flatMap((entry) =>
    typeof entry === 'string' ? [] : [entry.types.replace('./dist/', '').replace('.d.ts', '.ts')],
  )
  .reverse()

/** The exports of each entry, by its path. */
export const MODULES: Readonly<Record<string, object>> = Object.fromEntries(
  await Promise.all(ENTRIES.map(async (entry) => [entry, await moduleOf(entry)])),
)

async function moduleOf(entry: string): Promise<object> {
  return await import(`../../src/${entry.replace('.ts', '.js')}`)
}
