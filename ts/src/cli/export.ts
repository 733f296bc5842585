/** `fulmar export tensorboard RUN`: the log of a run in another program's form. */

import { writeTensorBoard } from '../dashboard/index.js'
import { type CliIo, printJson } from './io.js'

/** Flags of the command. */
export interface ExportFlags {
  readonly out?: string
  readonly json?: boolean
}

/** Writes an event file of TensorBoard and prints its path. */
export async function exportTensorBoard(
  run: string,
  { out: folder, json = false }: ExportFlags,
  io: CliIo,
): Promise<void> {
  const path = await writeTensorBoard({ run, ...(folder !== undefined && { folder }) })
  if (json) printJson({ path }, io)
  else io.stdout.write(`${path}\n`)
}
