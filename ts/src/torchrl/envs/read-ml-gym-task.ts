/** Tasks of machine learning from folders. */

import {
  checkGiven,
  describeValue,
  FulmarError,
  field,
  messageOf,
  parseJson,
  readRegular,
} from '../../core/index.js'
import { checkMLGymTask, type MLGymTask } from './ml-gym-task.js'

/** Maximum number of files of a task's folder. */
export const ML_GYM_FILES_MAX = 256

/** Maximum number of bytes of all files of a task's folder together. */
export const ML_GYM_BYTES_MAX = 33_554_432

const WORDS = field.list(field.text())
const ABOUT = field.section({
  name: field.text(),
  submission: WORDS,
  trial: field.optional(WORDS),
  scorer: WORDS,
})

/**
 * Reads a task of yours from a folder.
 *
 * ```text
 * task.json         { "name", "submission": [PATH...], "trial"?: [PROGRAM, ARGUMENT...], "scorer": [PROGRAM, ARGUMENT...] }
 * instructions.md   the text for the agent
 * files/            what the agent begins with, with a first submission
 * trial/            files for the run of the submission alone, such as rows without answers
 * scorer/           the scorer and the answers
 * ```
 *
 * At most 256 files of 32 MiB together; links are refused. Node only.
 *
 * @throws {FulmarError} `IO` for a folder or file that cannot be read; `CORRUPT` for a link or what is no file; `LIMIT_EXCEEDED` for
 * too much; `MALFORMED`, `UNKNOWN_NAME` or `EMPTY` for a `task.json` that does not fit.
 *
 * @example
 * ```ts
 * import { readMLGymTask } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 * import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'task-'))
 * for (const name of ['files', 'scorer']) await mkdir(join(folder, name))
 * const about = { name: 'guess', submission: ['guess.txt'], scorer: ['python3', '-I', 'score.py'] }
 * await writeFile(join(folder, 'task.json'), JSON.stringify(about))
 * await writeFile(join(folder, 'instructions.md'), 'Write a number near pi into guess.txt.')
 * await writeFile(join(folder, 'files', 'guess.txt'), '3')
 * const score = 'print(f\'{{"score": {-abs(float(open("submission/guess.txt").read()) - 3.14159)}}}\')'
 * await writeFile(join(folder, 'scorer', 'score.py'), score)
 * const task = await readMLGymTask(folder)
 * assert.deepEqual(Object.keys(task.files), ['guess.txt'])
 * await rm(folder, { recursive: true })
 * ```
 */
export async function readMLGymTask(folder: string): Promise<MLGymTask> {
  checkGiven('folder', folder)
  const budget = { numFiles: ML_GYM_FILES_MAX, bytes: ML_GYM_BYTES_MAX }
  const about = ABOUT.read('task.json', jsonOf(await required(`${folder}/task.json`, budget)))
  const instructions = textOf(await required(`${folder}/instructions.md`, budget))
  const files = await filesOf(`${folder}/files`, budget)
  const trial = about.trial && { command: about.trial, files: await filesOf(`${folder}/trial`, budget) }
  const scorer = { command: about.scorer, files: await filesOf(`${folder}/scorer`, budget) }
  const { name, submission } = about
  const task: MLGymTask = { name, instructions, files, submission, scorer, ...(trial && { trial }) }
  checkMLGymTask(task)
  return task
}

/** Files and bytes that may still be read. */
interface Budget {
  numFiles: number
  bytes: number
}

/** All regular files below a folder; none if it does not exist. */
async function filesOf(folder: string, budget: Budget): Promise<Record<string, Uint8Array>> {
  const { readdir } = await import('node:fs/promises')
  const files: Record<string, Uint8Array> = {}
  const walk = async (below: string): Promise<void> => {
    const entries = await readdir(`${folder}${below}`, { withFileTypes: true }).catch((cause) => {
      if (below === '' && cause.code === 'ENOENT') return []
      throw new FulmarError('IO', `${folder}${below} must be a readable folder: got ${messageOf(cause)}`, {
        cause,
      })
    })
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = `${below}/${entry.name}`
      if (entry.isDirectory()) await walk(path)
      else if (entry.isFile()) files[path.slice(1)] = await required(`${folder}${path}`, budget)
      else
        throw new FulmarError(
          'CORRUPT',
          `${folder}${path} must be a file or a folder: got a link or a device`,
        )
    }
  }
  await walk('')
  return files
}

async function required(path: string, budget: Budget): Promise<Uint8Array> {
  budget.numFiles -= 1
  if (budget.numFiles < 0)
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `a task must have at most ${ML_GYM_FILES_MAX} files: ${path} is one more`,
    )
  const bytes = await readRegular(path, budget.bytes)
  if (bytes === undefined)
    throw new FulmarError('IO', `${path} must be a file of the task: it does not exist`)
  budget.bytes -= bytes.length
  return bytes
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return parseJson(textOf(bytes))
  } catch (cause) {
    throw new FulmarError('MALFORMED', `task.json must be JSON: got ${describeValue(textOf(bytes))}`, {
      cause,
    })
  }
}
