/** A hub on loopback that has a data set of LeRobot, and decoders of its videos. */

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { findVideoDecoder, type VideoDecode, type VideoPicture } from '../../src/dataset/video-decoder.js'
import { DueClock, LIMIT_MS } from '../fetch/due-clock.js'
import { startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { golden, rowsOf } from './golden-rows.js'

/** The files below a folder by their names. */
export function filesIn(folder: string): Record<string, Uint8Array> {
  const names = readdirSync(folder, { recursive: true }).map(String)
  const files = names.filter((name) => statSync(join(folder, name)).isFile())
  return Object.fromEntries(
    files.map((name) => [
      relative(folder, join(folder, name)).replaceAll('\\', '/'),
      readFileSync(join(folder, name)),
    ]),
  )
}

/** Options of a data set whose repository has the files. */
export async function hubOptions(repo: string, files: Readonly<Record<string, Uint8Array | string>>) {
  const hub = await startHub({ kind: 'dataset', repo, files })
  const fast = { clock: new DueClock(), stallTimeoutMs: LIMIT_MS, retries: 0 }
  const folders = { cache: await temporaryFolder(), root: await temporaryFolder() }
  return { hub, options: { endpoint: hub.endpoint, decodeVideo: false, ...folders, ...fast } }
}

/** Options of a golden data set. */
export async function goldenHub(id: string) {
  return await hubOptions(id, filesIn(golden(`raw/hub/datasets/${id}`)))
}

/** `node-av`, where it is installed. */
export const nodeAv: VideoDecode | undefined = await findVideoDecoder()
if (nodeAv === undefined)
  process.stderr.write('\nSKIPPED: node-av is not there, so no test decodes H.264 itself\n')

/** The golden hashes of the planes of a video, in the order of showing. */
export function hashesOf(file: string): readonly string[] {
  const row = rowsOf('datasets', 'video_frames').find((one) => Reflect.get(one, 'file') === file)
  const { frames } = row as unknown as { readonly frames: readonly { readonly yuv420p_sha256: string }[] }
  return frames.map((frame) => frame.yuv420p_sha256)
}

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** A decoder whose pictures are of the time that each frame is shown at, in units of 0.1 s. */
export const timeDecoder: VideoDecode = (track, frames) => {
  const times = frames.map(({ timestamp }) => Math.round(timestamp / 1e5)).sort((a, b) => a - b)
  return times.map((time): VideoPicture => {
    const { codedWidth: width, codedHeight: height } = track
    return { width, height, format: 'rgb24', data: new Uint8Array(3 * width * height).fill(time) }
  })
}
