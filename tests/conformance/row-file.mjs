/**
 * The paths of the files that rows name. They are in the folder of the rows; for the copies of rows in `tests/golden`,
 * tokenizers are shared, and templates of other projects are not in the repository but may be in a folder next to the checkout.
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

const ELSEWHERE = [
  { prefix: 'tokenizers/', folder: join(root, 'tests/golden/tokenizer') },
  { prefix: 'templates/', folder: join(root, '../shared/golden/llm/templates') },
]

/** The path of `name`, a path relative to `folder`; `undefined` if it is nowhere. */
export function rowFile(folder, name) {
  const paths = [join(folder, name)]
  for (const { prefix, folder: other } of ELSEWHERE) {
    if (name.startsWith(prefix)) paths.push(join(other, name.slice(prefix.length)))
  }
  return paths.find((path) => existsSync(path))
}
