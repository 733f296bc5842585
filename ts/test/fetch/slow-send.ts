/** A server that is never far ahead of its client's disk, so that a kill at a byte loses little. */

import { readdirSync, statSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'

const PIECE = 64 << 10

/** The most bytes that are sent before they are on the client's disk: what a kill loses is in the buffers of the system. */
const AHEAD = 512 << 10

/** Sends the bytes of `body` from `start` on; `onSent` is called after each piece, with its end and its length. */
export async function sendSlowly(
  response: ServerResponse,
  body: Uint8Array,
  { start, root, onSent }: { start: number; root: string; onSent: (end: number, length: number) => void },
): Promise<void> {
  for (let at = start; at < body.length && !response.destroyed; at += PIECE) {
    const piece = body.subarray(at, at + PIECE)
    await new Promise((resolve) => response.write(piece, resolve))
    while (!response.destroyed && at - numWritten(root, body.length) > AHEAD)
      await new Promise((resolve) => setImmediate(resolve))
    onSent(at + piece.length, piece.length)
  }
  response.end()
}

/** Bytes of the part that is fetched; all of them once it has its name. */
function numWritten(root: string, otherwise: number): number {
  const part = readdirSync(root, { recursive: true, encoding: 'utf8' }).find((name) =>
    name.endsWith('.incomplete'),
  )
  if (part === undefined) return 0
  return statSync(join(root, part), { throwIfNoEntry: false })?.size ?? otherwise
}
