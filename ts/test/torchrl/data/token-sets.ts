/** Small sets of texts on this disk, for the tests of this folder. */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import { temporaryFolder } from '../../telemetry/folder.js'

const GOLDEN = fileURLToPath(new URL('../../../../tests/golden/rlhf/', import.meta.url))

export const golden = (path: string): string => join(GOLDEN, path)

/** Words `<end>`, `a`, `b`, `c` as ids from 0. */
export const words = HfTokenizer.fromJson(
  {
    version: '1.0',
    added_tokens: [{ id: 0, content: '<end>', special: true }],
    pre_tokenizer: { type: 'WhitespaceSplit' },
    model: { type: 'WordLevel', vocab: { '<end>': 0, a: 1, b: 2, c: 3 }, unk_token: '<end>' },
  },
  { eos_token: '<end>' },
)

/** Writes rows as `train.jsonl` into a new folder. */
export async function linesFolder(rows: readonly object[], split = 'train'): Promise<string> {
  const folder = await temporaryFolder()
  const lines = rows.map((row) => `${JSON.stringify(row)}\n`)
  await writeFile(join(folder, `${split}.jsonl`), lines.join(''))
  return folder
}
