/** Tasks of machine learning: files to work on, a submission, and a program that scores it. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'

/** Files by relative path. */
export type MLGymFiles = Readonly<Record<string, string | Uint8Array>>

/** A program with files of its own, for one run in a fresh sandbox. */
export interface MLGymProgram {
  /** Program and arguments, such as `['python3', 'predict.py']`. */
  readonly command: readonly string[]
  /** Files that no other sandbox of the task has. */
  readonly files: MLGymFiles
}

/**
 * A task of an {@link MLGymEnv}.
 *
 * ```text
 * files ---> the agent works ---> submission ---> trial (its output) ---> scorer ---> score
 * ```
 *
 * Each arrow ends in another sandbox, and only the named files pass. So rows that the agent must not see are in the files
 * of `trial`, and the answers to them in those of `scorer`.
 */
export interface MLGymTask {
  /** Name, such as `fitTable`. */
  readonly name: string
  /** Text for the agent: the aim, the files, and what a submission is. */
  readonly instructions: string
  /** Files that the agent begins with. They hold a first submission: its score is the baseline. */
  readonly files: MLGymFiles
  /** Paths of the files that are scored. The first must be there at the end; the others may be. */
  readonly submission: readonly string[]
  /** Run of the submission, with these files added. Its standard output is the input of the scorer. @default none */
  readonly trial?: MLGymProgram
  /**
   * Scores a submission, which is in its folder `submission`; the output of the trial is its standard input. Prints
   * `{"score": NUMBER}`, or `{"invalid": REASON}` for what cannot be scored.
   */
  readonly scorer: MLGymProgram
}

/** @throws {FulmarError} `MALFORMED`, `EMPTY` or `UNKNOWN_NAME` for a part that does not fit. */
export function checkMLGymTask(task: MLGymTask): void {
  checkGiven('task', task)
  const required = ['name', 'instructions', 'files', 'submission', 'scorer']
  checkKnownKeys('task', task, [...required, 'trial'], required)
  const { name, instructions, files, submission, trial, scorer } = task
  for (const [key, value] of Object.entries({ name, instructions }))
    if (typeof value !== 'string' || value === '') throw wrong(`task.${key}`, 'a text', value)
  checkWords('task.submission', submission)
  for (const path of submission) checkFilePath('task.submission', path)
  checkFiles('task.files', files)
  for (const [key, program] of Object.entries({ trial, scorer }))
    if (program !== undefined) checkProgram(`task.${key}`, program)
}

function checkProgram(place: string, program: MLGymProgram): void {
  checkGiven(place, program)
  checkKnownKeys(place, program, ['command', 'files'], ['command', 'files'])
  checkWords(`${place}.command`, program.command)
  checkFiles(`${place}.files`, program.files)
}

function checkWords(place: string, words: readonly string[]): void {
  if (!Array.isArray(words) || !words.every((word) => typeof word === 'string'))
    throw wrong(place, 'a list of texts', words)
  if (words.length === 0) throw new FulmarError('EMPTY', `${place} must hold a text: it is empty`)
}

function checkFiles(place: string, files: MLGymFiles): void {
  checkGiven(place, files)
  for (const [path, data] of Object.entries(files)) {
    checkFilePath(place, path)
    if (typeof data !== 'string' && !(data instanceof Uint8Array))
      throw wrong(`${place}[${JSON.stringify(path)}]`, 'a text or bytes', data)
  }
}

function checkFilePath(place: string, path: string): void {
  const parts = path.split('/')
  if (!path.includes('\0') && parts.every((part) => part !== '' && part !== '.' && part !== '..')) return
  throw wrong(place, 'relative paths without ".."', path)
}

function wrong(place: string, rule: string, value: unknown): FulmarError {
  return new FulmarError('MALFORMED', `${place} must be ${rule}: got ${describeValue(value)}`)
}
