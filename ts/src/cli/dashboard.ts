/** `fulmar dashboard RUN...`: the page of runs, until the user stops it. */

import { Dashboard } from '../dashboard/index.js'
import { CliError, type CliIo } from './io.js'

/** Flags of the command. */
export interface DashboardFlags {
  readonly port?: string
}

/** Port without `--port`. */
const PORT = '4747'

/** Serves the page of `runs` and prints its address. */
export async function dashboard(
  runs: readonly string[],
  { port = PORT }: DashboardFlags,
  io: CliIo,
): Promise<void> {
  if (!/^\d{1,5}$/.test(port))
    throw new CliError('OUT_OF_RANGE', `--port must be an integer from 0 to 65535: got ${port}`)
  await using page = await Dashboard.open({ runs, port: Number(port) })
  io.stdout.write(`${page.url}\n`)
  await new Promise<void>((resolve) => {
    if (io.signal.aborted) resolve()
    io.signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
