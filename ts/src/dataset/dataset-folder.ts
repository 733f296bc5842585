/** The folder of converted rows of one data set: made once, whole or not at all. */

import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describeValue, FulmarError, messageOf } from '../core/index.js'
import { withFileLock } from '../fetch/file-lock.js'
import { writing } from '../telemetry/disk.js'
import { systemClock } from '../telemetry/index.js'
import type { DatasetOptions } from './dataset-options.js'

/** Name of the conversion's options in the folder. */
const CONVERSION = 'conversion.json'

/** What a folder is made of. */
export interface DatasetSource {
  /** Folder of the rows. */
  readonly dataPath: string
  /** For messages, such as `d4rl:hopper-medium-v2`. */
  readonly label: string
  /** Options that the rows depend on. */
  readonly conversion: Readonly<Record<string, boolean>>
  /** Fetches the files and converts them to a new folder. */
  convert(folder: string): Promise<void>
}

/**
 * Makes the folder unless it is there. Several processes may ask for the same one: one converts, the others wait. A process that
 * dies meanwhile leaves a folder of another name, which the next conversion removes.
 * @throws {FulmarError} `UNAVAILABLE` if it is not there and `download` is false; `INCOMPATIBLE` if it was converted with other
 *   options; those of the conversion.
 */
export async function ensureFolder(source: DatasetSource, options: DatasetOptions): Promise<void> {
  const { dataPath, label } = source
  const { clock = systemClock, signal, download = true } = options
  if (download !== 'force' && (await isWhole(dataPath))) return await checkConversion(source)
  if (download === false) {
    const detail = `${label} must be in ${dataPath}, as download is false: it is not there`
    throw new FulmarError('UNAVAILABLE', detail)
  }
  await withFileLock(`${dataPath}.lock`, { clock, signal }, async () => {
    if (download !== 'force' && (await isWhole(dataPath))) return await checkConversion(source)
    const staged = `${dataPath}.incomplete`
    await writing('the folder of a data set', staged, async () => {
      await rm(staged, { recursive: true, force: true })
      await mkdir(dirname(staged), { recursive: true })
      await source.convert(staged)
      await writeFile(join(staged, CONVERSION), JSON.stringify(source.conversion))
      await rm(dataPath, { recursive: true, force: true })
      await rename(staged, dataPath)
    })
  })
}

/** Returns true for a folder that was renamed to its name. */
async function isWhole(dataPath: string): Promise<boolean> {
  return await stat(join(dataPath, 'meta.json')).then(
    (about) => about.isFile(),
    () => false,
  )
}

/** Refuses rows that were converted with other options. A folder of TorchRL does not tell. */
async function checkConversion({ dataPath, label, conversion }: DatasetSource): Promise<void> {
  const text = await readFile(join(dataPath, CONVERSION), 'utf8').catch(() => undefined)
  if (text === undefined) return
  const found = parsed(text, dataPath)
  for (const [name, value] of Object.entries(conversion)) {
    if (found[name] === value) continue
    const detail = `${label} in ${dataPath} must be converted with ${name} ${value}: it was with ${found[name]} (give another root, or download: 'force')`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
}

function parsed(text: string, dataPath: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return { ...value }
    throw new FulmarError('CORRUPT', `it is ${describeValue(value)}`)
  } catch (cause) {
    const detail = `${join(dataPath, CONVERSION)} must be an object of JSON: got ${messageOf(cause)}`
    throw new FulmarError('CORRUPT', detail, { cause })
  }
}
