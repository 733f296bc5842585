/** A run folder, or the folder of an evaluation, as it grows: its events and a summary of each rollout. */

import { realpath, stat } from 'node:fs/promises'
import { basename, join, resolve, sep } from 'node:path'
import { FulmarError, messageOf, readRegular } from '../core/index.js'
import { isRunEvent, type RunEvent } from '../telemetry/run-event.js'
import { RUN_CONFIG_BYTES_MAX } from '../telemetry/run-log.js'
import { LineTail, TAIL_LINE_BYTES_MAX, type TailLine } from './line-tail.js'
import { type RolloutSummary, summaryOf } from './rollout-line.js'

/** Events of one run that are kept; later ones are left out, with a note. */
export const RUN_EVENTS_MAX = 100_000

/** Rollouts of one run that are kept; later ones are left out, with a note. */
export const RUN_ROLLOUTS_MAX = 100_000

/** Characters of all rollouts of one run that searches look at; later rollouts are found by their other fields alone. */
const RUN_SEARCH_LENGTH_MAX = 2 ** 28

/** Notes that are kept of one run: the first ones. */
export const RUN_NOTES_MAX = 20

/** A rollout and the place of its line. */
export interface IndexedRollout extends RolloutSummary {
  /** Name of the file. */
  readonly file: string
  readonly offset: number
  readonly length: number
}

/** One folder with its files. */
export class RunTail {
  /** The folder as an absolute path. */
  readonly folder: string
  /** Last part of the path. */
  readonly name: string
  /** Contents of `config.json`; `undefined` without a whole one. */
  config: unknown
  readonly events: RunEvent[] = []
  readonly rollouts: IndexedRollout[] = []
  /** Lines and files that could not be read, a sentence each. */
  readonly notes: string[] = []
  /** False once the folder has vanished; what was read stays. */
  isHere = true
  /** Grows whenever anything changed. */
  revision = 0
  readonly #files: readonly Followed[]
  #searchLength = 0
  #refreshing: Promise<void> | undefined

  private constructor(folder: string) {
    this.folder = resolve(folder)
    this.name = basename(this.folder)
    this.#files = [
      new Followed(
        this.folder,
        'log.jsonl',
        (line) => this.#takeEvent(line),
        () => this.#restart(this.events),
      ),
      ...['samples.jsonl', 'results.jsonl'].map(
        (name) =>
          new Followed(
            this.folder,
            name,
            (line, at) => this.#takeRollout(line, { ...at, file: name }),
            () => this.#restart(this.rollouts),
          ),
      ),
    ]
  }

  /**
   * Opens a folder and reads what is in it.
   * @throws {FulmarError} `IO` if it is not there; `MALFORMED` if it holds neither a run nor an evaluation.
   */
  static async open(folder: string): Promise<RunTail> {
    const about = await stat(folder).catch((cause: unknown) => {
      throw new FulmarError('IO', `run must be a folder: got ${folder} (${messageOf(cause)})`, { cause })
    })
    const run = new RunTail(folder)
    if (!about.isDirectory() || !(await run.#hasFiles())) {
      const detail = `run must be a folder with config.json, log.jsonl or results.jsonl: got ${folder}`
      throw new FulmarError('MALFORMED', detail)
    }
    await run.refresh()
    return run
  }

  /** Position of the run, such as `grpo step 3 of 400` or `finished`. */
  get state(): string {
    const last = this.events.findLast(({ event }) => event !== 'eval')
    if (last === undefined) return 'no step yet'
    return last.event === 'step' ? `${last.phase} step ${last.step} of ${last.numSteps}` : 'finished'
  }

  /** Reads what was appended; never throws: what fails is a note. Calls while one is under way wait for that one. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#refresh().finally(() => {
      this.#refreshing = undefined
    })
    return this.#refreshing
  }

  /** The whole line of a rollout. @throws {FulmarError} `IO` if its file was cut or has vanished; `CORRUPT` if it was replaced. */
  async rolloutLine(rollout: IndexedRollout): Promise<unknown> {
    if (await leavesFolder(this.folder, rollout.file)) throw new FulmarError('IO', outside(rollout.file))
    const text = await this.#files.find(({ name }) => name === rollout.file)?.tail.read(rollout)
    try {
      return JSON.parse(text ?? '')
    } catch (cause) {
      const detail = `the rollout must be where it was in ${this.folder}: the file was replaced`
      throw new FulmarError('CORRUPT', detail, { cause })
    }
  }

  async #hasFiles(): Promise<boolean> {
    const found = await Promise.all(
      ['config.json', 'log.jsonl', 'results.jsonl'].map((name) =>
        stat(join(this.folder, name)).catch(() => undefined),
      ),
    )
    return found.some((file) => file !== undefined)
  }

  async #refresh(): Promise<void> {
    await this.#readConfig()
    let isAnyHere = this.config !== undefined
    for (const file of this.#files) {
      try {
        if (await leavesFolder(this.folder, file.name)) this.#note(outside(file.name))
        else if (await file.refresh((note) => this.#note(note))) isAnyHere = true
      } catch (error) {
        isAnyHere = true
        this.#note(messageOf(error))
      }
    }
    const isHere = isAnyHere && (await stat(this.folder).catch(() => undefined)) !== undefined
    if (isHere !== this.isHere) this.revision += 1
    this.isHere = isHere
  }

  async #readConfig(): Promise<void> {
    try {
      if (await leavesFolder(this.folder, 'config.json')) return this.#note(outside('config.json'))
      const bytes = await readRegular(join(this.folder, 'config.json'), RUN_CONFIG_BYTES_MAX)
      if (bytes) this.config = JSON.parse(new TextDecoder().decode(bytes))
    } catch (error) {
      this.#note(`config.json cannot be read: ${messageOf(error)}`)
    }
  }

  #takeEvent(line: unknown): boolean {
    if (!isRunEvent(line)) return false
    if (this.events.length >= RUN_EVENTS_MAX)
      this.#note(`log.jsonl has more than ${RUN_EVENTS_MAX} events: later ones are left out`)
    else this.events.push(line)
    this.revision += 1
    return true
  }

  #takeRollout(line: unknown, { offset, length, file }: TailLine & { readonly file: string }): boolean {
    const summary = summaryOf(line)
    if (summary === undefined) return false
    if (this.rollouts.length >= RUN_ROLLOUTS_MAX) {
      this.#note(`there are more than ${RUN_ROLLOUTS_MAX} rollouts: later ones are left out`)
      return true
    }
    const isSearched = this.#searchLength + summary.text.length <= RUN_SEARCH_LENGTH_MAX
    if (!isSearched)
      this.#note(
        `texts have more than ${RUN_SEARCH_LENGTH_MAX} characters: searches do not look at later ones`,
      )
    this.#searchLength += isSearched ? summary.text.length : 0
    this.rollouts.push({ ...summary, ...(!isSearched && { text: '' }), file, offset, length })
    this.revision += 1
    return true
  }

  #restart(kept: unknown[]): void {
    if (kept === this.rollouts) this.#searchLength = 0
    kept.length = 0
    this.revision += 1
  }

  #note(text: string): void {
    if (this.notes.length >= RUN_NOTES_MAX || this.notes.includes(text)) return
    this.notes.push(text)
    this.revision += 1
  }
}

/** Returns true for a link that leads out of the folder: what is there is not of the run. */
async function leavesFolder(folder: string, name: string): Promise<boolean> {
  const [root, path] = await Promise.all(
    [folder, join(folder, name)].map((one) => realpath(one).catch(() => undefined)),
  )
  return root !== undefined && path !== undefined && !path.startsWith(root.endsWith(sep) ? root : root + sep)
}

const outside = (name: string): string => `${name} is a link that leads out of the folder, and is not read`

/** A name for each run, all different: the folder's, with a number where several are called so. */
export function labelsOf(runs: readonly RunTail[]): string[] {
  const taken = new Set<string>()
  return runs.map(({ name }) => {
    let label = name
    for (let number = 2; taken.has(label); number++) label = `${name} (${number})`
    taken.add(label)
    return label
  })
}

/** A file of JSON lines that is followed. */
class Followed {
  readonly name: string
  readonly tail: LineTail
  numLines = 0
  readonly #take: (line: unknown, at: TailLine) => boolean
  readonly #restart: () => void

  constructor(
    folder: string,
    name: string,
    take: (line: unknown, at: TailLine) => boolean,
    restart: () => void,
  ) {
    this.name = name
    this.tail = new LineTail(join(folder, name))
    this.#take = take
    this.#restart = restart
  }

  /** Takes new lines; `note` gets a sentence for each that cannot be used. */
  refresh(note: (text: string) => void): Promise<boolean> {
    return this.tail.refresh(
      (line) => {
        this.numLines += 1
        const refusal = this.#refusalOf(line)
        if (refusal) note(`line ${line.number} of ${this.name} ${refusal}`)
      },
      () => {
        // A file that was there before begins anew; a new one has nothing to forget.
        if (this.numLines > 0) this.#restart()
        this.numLines = 0
      },
    )
  }

  #refusalOf(line: TailLine): string | undefined {
    if (line.text === undefined) {
      return `has ${line.length} bytes, more than ${TAIL_LINE_BYTES_MAX}, and is skipped`
    }
    try {
      const json: unknown = JSON.parse(line.text)
      return this.#take(json, line) ? undefined : 'is of another form, and is skipped'
    } catch {
      return 'is not JSON, and is skipped'
    }
  }
}
