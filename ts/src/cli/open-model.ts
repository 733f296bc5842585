/** The model of a command: a path, or a name on the hub, which is fetched with its progress shown. */

import { ProgressLine } from '../telemetry/index.js'
import { loadModel, type Model } from '../train/index.js'
import type { CliIo } from './io.js'

/** Loads a model; the user's wish to stop ends its download. @throws {FulmarError} As `loadModel`. */
export async function openModel(path: string, io: CliIo): Promise<Model> {
  const progress = new ProgressLine({ stream: io.stderr })
  try {
    return await loadModel(path, {
      fetch: { signal: io.signal, onProgress: (event) => progress.update(event) },
    })
  } finally {
    progress.end()
  }
}
