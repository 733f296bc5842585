import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { readStream } from '../../src/cli/io.js'
import { describeBuild } from '../../src/core/index.js'
import { readRows } from '../../src/task/index.js'
import { HfTokenizer } from '../../src/tokenizer/index.js'
import { checkTrainConfig, runTraining } from '../../src/train/index.js'
import { fulmar } from '../cli/fake-io.js'

const folder = await mkdtemp(join(tmpdir(), 'fulmar-pipes-'))
afterAll(() => rm(folder, { recursive: true }))

/** A folder whose `name` is a pipe without a writer, which waits for one if it is opened to be read. */
async function withPipe(name: string): Promise<string> {
  const made = await mkdtemp(join(folder, 'a-'))
  execFileSync('mkfifo', [join(made, name)])
  return made
}

describe.skipIf(process.platform === 'win32')('files that a user names', () => {
  it('are refused where they are pipes: rows, tokenizers, templates, configurations', async () => {
    const refused = expect.objectContaining({ name: 'FulmarError', code: 'CORRUPT' })
    await expect(readRows(join(await withPipe('rows.jsonl'), 'rows.jsonl'))).rejects.toEqual(refused)
    await expect(HfTokenizer.fromFolder(await withPipe('tokenizer.json'))).rejects.toEqual(refused)
    for (const name of ['tokenizer_config.json', 'special_tokens_map.json', 'chat_template.jinja']) {
      const made = await withPipe(name)
      await writeFile(join(made, 'tokenizer.json'), '{}')
      await expect(HfTokenizer.fromFolder(made), name).rejects.toEqual(refused)
    }
    const pipe = join(await withPipe('pipe'), 'pipe')
    const commands = [
      ['train', pipe],
      ['render', '--messages', pipe],
      ['render', '--messages', '-', '--tools', pipe],
      ['render', '--messages', '-', '--template', await withPipe('tokenizer.json')],
      ['parse', pipe, '--family', 'chatml'],
      ['tokenize', 'x', '--tokenizer', await withPipe('tokenizer.json')],
    ]
    for (const command of commands) {
      const { code, stderr } = await fulmar(command, { stdin: '[{"role": "user", "content": "Hi"}]' })
      expect([code === 0, stderr], command.join(' ')).toEqual([false, expect.stringContaining('(CORRUPT)')])
    }
    const { backend } = describeBuild()
    const config = { backend, runDir: join(folder, 'run'), sft: { steps: 0 } }
    const rows = checkTrainConfig({ ...config, task: { name: 'gsm8k', rows: pipe } })
    await expect(runTraining(rows)).rejects.toEqual(refused)
    const model = checkTrainConfig({ ...config, model: { path: pipe } })
    await expect(runTraining(model)).rejects.toEqual(refused)
  })

  it('are refused where they are devices or larger than their limit', async () => {
    const path = join(folder, 'large')
    await writeFile(path, '')
    await truncate(path, 2 ** 40)
    await expect(readRows(path)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    expect((await fulmar(['render', '--messages', path])).stderr).toContain('(LIMIT_EXCEEDED)')
    await symlink('/dev/zero', join(folder, 'zero'))
    await expect(readRows(join(folder, 'zero'))).rejects.toMatchObject({ code: 'CORRUPT' })
    const made = join(folder, 'model')
    await mkdir(made)
    await symlink(path, join(made, 'tokenizer.json'))
    await expect(HfTokenizer.fromFolder(made)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
  })
})

describe('readStream', () => {
  it('ends at its limit, and joins characters that two chunks share', async () => {
    async function* endless() {
      for (;;) yield new Uint8Array(1000)
    }
    await expect(readStream(endless(), 10_000)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    async function* halves() {
      yield Uint8Array.of(0xc3)
      yield Uint8Array.of(0xa9)
      yield '!'
    }
    expect(await readStream(halves(), 3)).toBe('é!')
    await expect(readStream(halves(), 2)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
  })
})
