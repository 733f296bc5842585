/** A folder of memory-mapped rows of ids that grows part by part. Node only. */

import { type FileHandle, mkdir, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { FulmarError } from '../../core/index.js'
import { writeFileAtomic } from '../../telemetry/index.js'
import type { TensorDict } from '../../tensor/index.js'

const DICT_TYPE = "<class 'tensordict._td.TensorDict'>"

/** The files of a new folder. Its leaves have a row of ids, or one number, for each element of the batch. */
export class TokenFolder {
  readonly #folder: string
  readonly #leaves = new Map<string, { readonly file: FileHandle; readonly shape: readonly number[] }>()
  #numRows = 0

  constructor(folder: string) {
    this.#folder = folder
  }

  /** Appends rows with the same keys and lengths as those before. */
  async append(rows: TensorDict, keys: readonly string[]): Promise<void> {
    for (const key of keys) {
      const { data, shape, dtype } = rows.tensor(key)
      if (dtype !== 'i64') throw new FulmarError('INCOMPATIBLE', `${key} must be i64: got ${dtype}`)
      const leaf = this.#leaves.get(key) ?? (await this.#open(key, shape.slice(1)))
      await leaf.file.appendFile(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    }
    this.#numRows += rows.tensor(keys[0] ?? '').shape[0] ?? 0
  }

  /** Number of rows so far. */
  get numRows(): number {
    return this.#numRows
  }

  /** Describes the leaves. */
  async finish(): Promise<void> {
    const leaves = [...this.#leaves].map(([key, { shape }]) => [key, leafOf([this.#numRows, ...shape])])
    const about = { ...Object.fromEntries(leaves), ...dictOf([this.#numRows]) }
    await writeFileAtomic(join(this.#folder, 'meta.json'), JSON.stringify(about))
  }

  async close(): Promise<void> {
    for (const { file } of this.#leaves.values()) await file.close()
    this.#leaves.clear()
  }

  async #open(key: string, shape: readonly number[]) {
    await mkdir(this.#folder, { recursive: true })
    const leaf = { file: await open(join(this.#folder, `${key}.memmap`), 'ax'), shape }
    this.#leaves.set(key, leaf)
    return leaf
  }
}

/** Describes a folder as the dictionary of the folders of rows in it, so that other programs open all of them at once. */
export async function noteInnerFolders(folder: string): Promise<void> {
  const entries: [string, object][] = []
  for (const name of (await readdir(folder)).sort()) {
    const isDict = await stat(join(folder, name, 'meta.json')).then(
      (about) => about.isFile() && !/\.(?:incomplete|removed)$/.test(name),
      () => false,
    )
    if (isDict) entries.push([name, { type: 'TensorDict' }])
  }
  const about = { ...Object.fromEntries(entries), ...dictOf([]) }
  await writeFileAtomic(join(folder, 'meta.json'), JSON.stringify(about))
}

function leafOf(shape: readonly number[]) {
  return { device: 'cpu', shape, dtype: 'torch.int64', is_nested: false }
}

function dictOf(shape: readonly number[]) {
  return { shape, device: 'cpu', _type: DICT_TYPE }
}
