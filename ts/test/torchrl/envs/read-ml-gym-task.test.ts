import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ML_GYM_BYTES_MAX, ML_GYM_FILES_MAX } from '../../../src/torchrl/envs/read-ml-gym-task.js'
import { readMLGymTask } from '../../../src/torchrl/index.js'
import { worksHere } from '../../tools/sandbox-here.js'
import { failing } from './chats.js'
import { block, play } from './ml-gym.js'

const isUsable = await worksHere()
const ABOUT = {
  name: 'mine',
  submission: ['sub/a.py'],
  trial: ['python3', 'sub/a.py'],
  scorer: ['python3', '-I', 's.py'],
}
let folder = ''

const put = (path: string, text: string) => writeFile(join(folder, path), text)

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
  for (const name of ['files', 'files/sub', 'trial', 'scorer']) await mkdir(join(folder, name))
  await put('task.json', JSON.stringify(ABOUT))
  await put('instructions.md', 'Print the length of word.txt.')
  await put('files/sub/a.py', 'print(0)')
  await put('trial/word.txt', 'fulmar')
  await put(
    'scorer/s.py',
    'import json, sys; print(json.dumps({"score": -abs(6 - float(sys.stdin.read()))}))',
  )
})

afterEach(() => rm(folder, { recursive: true }))

describe('readMLGymTask', () => {
  it('reads the parts of a folder', async () => {
    const task = await readMLGymTask(folder)
    expect(task).toMatchObject({
      name: 'mine',
      instructions: 'Print the length of word.txt.',
      submission: ['sub/a.py'],
    })
    expect(Object.keys(task.files)).toEqual(['sub/a.py'])
    expect(task.trial?.command).toEqual(['python3', 'sub/a.py'])
    expect(Buffer.from(task.trial?.files['word.txt'] ?? '').toString()).toBe('fulmar')
    expect(Object.keys(task.scorer.files)).toEqual(['s.py'])
  })

  it('has no trial where none is named', async () => {
    await put('task.json', JSON.stringify({ ...ABOUT, trial: undefined }))
    expect(Object.keys(await readMLGymTask(folder))).not.toContain('trial')
  })

  it('refuses links, what is missing, and a description that does not fit', async () => {
    await symlink('/etc/passwd', join(folder, 'files/passwd'))
    await expect(readMLGymTask(folder)).rejects.toThrow(failing('CORRUPT', /passwd must be a file/))
    await rm(join(folder, 'files/passwd'))
    for (const [text, code] of [
      ['{', 'MALFORMED'],
      ['[]', 'MALFORMED'],
      [JSON.stringify({ ...ABOUT, trail: [] }), 'UNKNOWN_NAME'],
      [JSON.stringify({ ...ABOUT, submission: [] }), 'EMPTY'],
      [JSON.stringify({ ...ABOUT, submission: ['../a'] }), 'MALFORMED'],
      [JSON.stringify({ ...ABOUT, scorer: 'python3' }), 'MALFORMED'],
    ] as const) {
      await put('task.json', text)
      await expect(readMLGymTask(folder)).rejects.toThrow(failing(code))
    }
    await rm(join(folder, 'task.json'))
    await expect(readMLGymTask(folder)).rejects.toThrow(failing('IO', /task\.json must be a file/))
  })

  it('reads as many files as the limit, and no more, and no more bytes', async () => {
    const others = 4 // task.json, instructions.md, word.txt and s.py
    for (let at = 1; at < ML_GYM_FILES_MAX - others; at++) await put(`files/${at}`, '')
    expect(Object.keys((await readMLGymTask(folder)).files).length).toBe(ML_GYM_FILES_MAX - others)
    await put('files/more', '')
    await expect(readMLGymTask(folder)).rejects.toThrow(failing('LIMIT_EXCEEDED', /256 files/))
    await rm(join(folder, 'files/more'))
    await writeFile(join(folder, 'files/1'), Buffer.alloc(ML_GYM_BYTES_MAX))
    await expect(readMLGymTask(folder)).rejects.toThrow(failing('LIMIT_EXCEEDED', /bytes/))
  })

  it.runIf(isUsable)('gives a task that an agent can work on', async () => {
    const reply = `${block('write sub/a.py', 'print(len(open("word.txt").read()))')}\n${block('submit')}`
    const { result } = await play(await readMLGymTask(folder), [reply])
    expect(result).toEqual({ status: 'scored', score: -0, baseline: -6, reward: 6 })
  })
})
