/** Rows of `tests/golden/dataset`, their comparison with dictionaries, and a server that has the files of D4RL. */

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { type Dtype, NonTensorData, NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { DueClock, LIMIT_MS } from '../fetch/due-clock.js'
import { portOf, started, startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'

/** Only the addon converts. */
export const isNative = process.env.FULMAR_TEST_BACKEND === 'native'

const GOLDEN = fileURLToPath(new URL('../../../tests/golden/dataset', import.meta.url))

export const golden = (path: string): string => join(GOLDEN, path)
export const goldenBytes = (path: string): Uint8Array => new Uint8Array(readFileSync(golden(path)))

/** The folder that Minari keeps its data sets in. */
export const MINARI_ROOT = golden('raw/minari')

/** A row of a golden file. */
export interface GoldenRow {
  readonly id: string
  readonly topic: string
  readonly dataset_id: string
  readonly options: Readonly<Record<string, unknown>>
  readonly source: string
  readonly case: string
  readonly must: string
  readonly files: readonly string[]
  readonly datasets: Readonly<Record<string, string>>
  readonly ids: readonly string[]
  readonly urls: Readonly<Record<string, string>>
  readonly nominal: Readonly<Record<string, number>>
  readonly note: string | null
  readonly cls: string
  readonly ok?: {
    readonly len: number
    readonly data_path: string
    readonly data_path_root: string
    readonly all: Wanted
    readonly metadata: Wanted
    readonly batches: readonly Wanted[]
  } & Wanted
}

/** A value in the notation of golden files. */
export interface Wanted {
  readonly [name: string]: unknown
}

export function rowsOf(file: 'datasets' | 'broken', topic: string): GoldenRow[] {
  const lines = readFileSync(golden(`${file}.jsonl`), 'utf8')
    .trim()
    .split('\n')
  return lines.map((line) => JSON.parse(line) as GoldenRow).filter((row) => row.topic === topic)
}

export function rowOf(file: 'datasets' | 'broken', id: string): GoldenRow & { readonly ok: object } {
  const lines = readFileSync(golden(`${file}.jsonl`), 'utf8')
    .trim()
    .split('\n')
  const row = lines.map((line) => JSON.parse(line) as GoldenRow).find((one) => one.id === id)
  if (row?.ok === undefined) throw new Error(`no row ${id} that loads`)
  return row as GoldenRow & { readonly ok: object }
}

/** Fails unless `dict` has exactly the keys, dtypes, shapes and values of `want`. */
export function expectRows(dict: TensorDict, want: unknown, at = 'rows'): void {
  const wanted = keysOf(want)
  expect(dict.keys().sort(), at).toEqual(Object.keys(wanted).sort())
  for (const [name, value] of Object.entries(wanted)) {
    const [found, place] = [dict.get(name), `${at}.${name}`]
    const video = videoOf(value)
    if (found instanceof TensorDict && video) expectVideo(found, video, place)
    else if (found instanceof TensorDict) expectRows(found, value, place)
    else if (found instanceof Tensor) expectTensor(found, value as Wanted, place)
    else if (found instanceof NonTensorData) expect(found.value, place).toEqual(textsOf(value))
    else if (found instanceof NonTensorStack) expect(found.values, place).toEqual(textsOf(value))
    else expect.fail(`${place} is ${String(found)}`)
  }
}

/** Addresses of frames: their files have other paths here. */
function expectVideo(found: TensorDict, want: Wanted, at: string): void {
  for (const key of ['frame_index', 'file_id'])
    expectTensor(found.tensor(key), want[key] as Wanted, `${at}.${key}`)
  expect(found.batchSize, at).toEqual(want.batch)
}

function videoOf(want: unknown): Wanted | undefined {
  return (want as { readonly $video?: Wanted }).$video
}

/** As {@link expectRows}, with images that may differ by 3; of long ones the first and last numbers are known. */
export function expectNearImages(dict: TensorDict, want: unknown): void {
  const { next, observation, ...rest } = keysOf(want)
  const { observation: nextObservation, ...nextRest } = keysOf(next)
  const others = dict.exclude([['next', 'observation'], 'observation'])
  expectRows(others, { k: { ...rest, next: { k: nextRest } } })
  for (const [found, wanted] of [
    [dict.dict('observation'), keysOf(observation)],
    [dict.dict(['next', 'observation']), keysOf(nextObservation)],
  ] as const) {
    const { image, ...others } = wanted as Readonly<Record<string, Wanted>>
    expectRows(found.exclude(['image']), { k: others })
    const pixels = [...found.tensor('image').data].map(Number)
    const { head, tail, s } = image as {
      readonly head: number[]
      readonly tail: number[]
      readonly s: number[]
    }
    expect(found.tensor('image').shape).toEqual(s)
    const near = [...pixels.slice(0, head.length), ...pixels.slice(-tail.length)]
    for (const [at, pixel] of near.entries())
      expect(Math.abs(pixel - ([...head, ...tail][at] ?? 0))).toBeLessThanOrEqual(3)
  }
}

function keysOf(want: unknown): Wanted {
  const { k = {} } = want as { readonly k?: Wanted }
  return k
}

function expectTensor(found: Tensor, want: Wanted, at: string): void {
  expect(found.dtype, at).toBe(dtypeOf(String(want.$t)))
  expect(found.shape, at).toEqual(want.s)
  if (want.sha256 !== undefined) {
    const { buffer, byteOffset, byteLength } = found.data
    const hash = createHash('sha256').update(new Uint8Array(buffer, byteOffset, byteLength))
    expect(hash.digest('hex'), at).toBe(want.sha256)
  } else expect(Array.from(found.data, Number), at).toEqual(numbersOf(found.dtype, want.d as unknown[]))
}

/** The numbers of JSON as the dtype holds them. */
function numbersOf(dtype: Dtype, numbers: readonly unknown[]): number[] {
  return numbers.map((number) => (dtype === 'f32' ? Math.fround(Number(number)) : Number(number)))
}

function dtypeOf(name: string): string {
  return name === 'bool' ? name : name.replace('uint', 'u').replace('int', 'i').replace('float', 'f')
}

/** The texts of `$nt` and `$nts`, whose bytes are in hexadecimal; one for all rows is there once. */
function textsOf(want: unknown): unknown {
  const { $nts, $nt } = want as { readonly $nts?: readonly unknown[]; readonly $nt?: unknown }
  return Array.isArray($nts) ? $nts.map(textOf) : textOf($nt)
}

function textOf(item: unknown): unknown {
  if (Array.isArray(item)) return item.map(textOf)
  const { $hex } = item as { readonly $hex?: string }
  return $hex === undefined ? item : Buffer.from($hex, 'hex').toString()
}

/** A server on loopback with the files of a folder, or with other bytes by the end of their path. */
async function fileServer(folder: string, others: Readonly<Record<string, Uint8Array>>) {
  const asked: string[] = []
  const files = golden(folder)
  const running = await started(
    createServer((request, response) => {
      const { url = '' } = request
      asked.push(url)
      const other = Object.entries(others).find(([end]) => url.endsWith(end))?.[1]
      if (other !== undefined) return void response.end(other)
      readFile(join(files, decodeURIComponent(url))).then(
        (bytes) => void response.end(bytes),
        () => void response.writeHead(404).end(),
      )
    }),
  )
  return { asked, mirror: `http://127.0.0.1:${portOf(running)}` }
}

/** Options of a data set in a folder of its own, from a server on loopback. */
export async function d4rlOptions(others: Readonly<Record<string, Uint8Array>> = {}) {
  return await webOptions('raw/web/rail.eecs.berkeley.edu/datasets/offline_rl', others)
}

/** Options of a table in a folder of its own, from a server on loopback. */
export async function openmlOptions(others: Readonly<Record<string, Uint8Array>> = {}) {
  return await webOptions('raw/web/www.openml.org', others)
}

async function webOptions(folder: string, others: Readonly<Record<string, Uint8Array>>) {
  const { asked, mirror } = await fileServer(folder, others)
  return { asked, options: { mirror, root: await temporaryFolder(), retries: 0 } }
}

/** The same of Gen-DGRL. */
export async function genDgrlOptions(others: Readonly<Record<string, Uint8Array>> = {}) {
  const folder = 'raw/web/dl.fbaipublicfiles.com/DGRL/Procgen/Datasets/Compressed'
  const { asked, mirror } = await fileServer(folder, others)
  return { asked, options: { mirror, root: await temporaryFolder(), retries: 0 } }
}

/** Options of data sets of Open X-Embodiment from a hub on loopback, with other bytes by the names of their files. */
export async function openXOptions(others: Readonly<Record<string, Uint8Array>> = {}) {
  const folder = golden('raw/hub/datasets/jxu124/OpenX-Embodiment')
  const names = readdirSync(folder, { recursive: true }).map((name) => String(name).split(sep).join('/'))
  const shards = names.filter((name) => name.endsWith('.tar'))
  const files = Object.fromEntries(shards.map((name) => [name, readFileSync(join(folder, name))]))
  for (const [name, bytes] of Object.entries(others)) files[name] = Buffer.from(bytes)
  const hub = await startHub({ kind: 'dataset', repo: 'jxu124/OpenX-Embodiment', files })
  const fast = { clock: new DueClock(), stallTimeoutMs: LIMIT_MS }
  const options = { endpoint: hub.endpoint, cache: await temporaryFolder(), ...fast }
  return { hub, options, root: await temporaryFolder() }
}

/** Options of a data set of Minari's folder. */
export async function minariOptions() {
  return { loadFromLocalMinari: true, minariRoot: MINARI_ROOT, root: await temporaryFolder() }
}
