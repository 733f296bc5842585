/** The model of a command: a path, or a name on the hub, which is fetched with its progress shown. */

import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { ProgressLine } from '../telemetry/index.js'
import { loadModel, type Model } from '../train/index.js'
import type { CliIo } from './io.js'

/** Loads a model, for the folder of a run its policy; the user's wish to stop ends its download. @throws {FulmarError} As `loadModel`. */
export async function openModel(path: string, io: CliIo): Promise<Model> {
  const progress = new ProgressLine({ stream: io.stderr })
  try {
    return await loadModel(await policyIn(path), {
      fetch: { signal: io.signal, onProgress: (event) => progress.update(event) },
    })
  } finally {
    progress.end()
  }
}

async function policyIn(path: string): Promise<string> {
  const policy = join(path, 'policy')
  return await access(join(policy, 'config.json')).then(
    () => policy,
    () => path,
  )
}
