/** `fulmar fetch NAME`: a model of the hub, into its cache. */

import { fetchModel } from '../fetch/index.js'
import { ProgressLine } from '../telemetry/index.js'
import { type CliIo, printJson } from './io.js'

/** Flags of the command. */
export interface FetchFlags {
  readonly revision?: string
  readonly cache?: string
  readonly endpoint?: string
  readonly offline?: boolean
  readonly force?: boolean
  readonly json?: boolean
}

/** Fetches a model, shows the progress, and prints its folder or file. */
export async function fetch(
  name: string,
  { json = false, ...options }: FetchFlags,
  io: CliIo,
): Promise<void> {
  const progress = new ProgressLine({ stream: io.stderr })
  try {
    const path = await fetchModel(name, {
      ...options,
      signal: io.signal,
      onProgress: (event) => progress.update(event),
    })
    if (json) printJson({ path }, io)
    else io.stdout.write(`${path}\n`)
  } finally {
    progress.end()
  }
}
