/** A folder of memory-mapped leaves that is written column by column, as rows come. */

import { type FileHandle, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { FulmarError } from '../core/index.js'
import {
  type Dtype,
  type Json,
  NonTensorStack,
  saveMemmap,
  TensorDict,
  type TypedArrays,
} from '../tensor/index.js'

/** PyTorch's name of each dtype that a column may have. */
const TORCH = { f32: 'float32', i64: 'int64', bool: 'bool', u8: 'uint8' } as const

/** Dtype of a column of tensors. */
export type ColumnDtype = keyof typeof TORCH

interface Leaf {
  readonly key: readonly string[]
  readonly dtype: ColumnDtype
  /** Shape of a row. */
  readonly shape: readonly number[]
  readonly path: string
  readonly file: FileHandle
}

/** Words of the format, which cannot be keys. */
const WORDS = ['shape', 'device', '_type']

/** Writes rows of columns; {@link MemmapColumns.finish} makes the folder of them. */
export class MemmapColumns {
  readonly #folder: string
  readonly #leaves = new Map<string, Leaf>()
  readonly #values = new Map<string, { readonly key: readonly string[]; readonly values: Json[] }>()

  /** @param folder Folder that must not be there; leaves are written to another one until it is made. */
  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * Appends rows of a tensor: `elements` are whole rows of `shape`.
   * @throws {FulmarError} `INCOMPATIBLE` for a key that the format cannot hold; those of the system.
   */
  async append(
    key: readonly string[],
    { dtype, shape }: Pick<Leaf, 'dtype' | 'shape'>,
    elements: TypedArrays[Dtype],
  ): Promise<void> {
    const name = JSON.stringify(key)
    const leaf = this.#leaves.get(name) ?? (await this.#open(key, dtype, shape))
    this.#leaves.set(name, leaf)
    const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength)
    for (let at = 0; at < bytes.length; ) at += (await leaf.file.write(bytes, at)).bytesWritten
  }

  /** Appends JSON values, one a row. @throws {FulmarError} `INCOMPATIBLE` for a key that the format cannot hold. */
  appendValues(key: readonly string[], values: readonly Json[]): void {
    checkKey(key)
    const name = JSON.stringify(key)
    const column = this.#values.get(name) ?? { key, values: [] }
    this.#values.set(name, column)
    for (const value of values) column.values.push(value)
  }

  /** Makes the folder, of `numRows` rows in each column. */
  async finish(numRows: number): Promise<void> {
    const batch = { batchSize: [numRows] }
    const dict = TensorDict.from({}, batch)
    for (const { key, values } of this.#values.values()) dict.set(key, new NonTensorStack(values))
    for (const { key } of this.#leaves.values())
      for (let depth = 1; depth < key.length; depth++)
        if (!dict.has(key.slice(0, depth))) dict.set(key.slice(0, depth), TensorDict.from({}, batch))
    saveMemmap(this.#folder, dict)
    for (const leaf of this.#leaves.values()) {
      await leaf.file.close()
      await this.#place(leaf, numRows)
    }
    await this.close()
  }

  /** Removes what was written, unless it is in the folder. */
  async close(): Promise<void> {
    for (const { file } of this.#leaves.values()) await file.close().catch(() => undefined)
    await rm(this.#staged, { recursive: true, force: true })
  }

  get #staged(): string {
    return `${this.#folder}.columns`
  }

  async #open(key: readonly string[], dtype: ColumnDtype, shape: readonly number[]): Promise<Leaf> {
    checkKey(key)
    if (this.#leaves.size === 0) await rm(this.#staged, { recursive: true, force: true })
    await mkdir(this.#staged, { recursive: true })
    const path = join(this.#staged, String(this.#leaves.size))
    return { key, dtype, shape, path, file: await open(path, 'wx') }
  }

  /** Moves a leaf to its place, and describes it in the dictionary's `meta.json`. */
  async #place({ key, dtype, shape, path }: Leaf, numRows: number): Promise<void> {
    const parents = key.slice(0, -1).map(fileName)
    const name = key.at(-1) ?? ''
    const folder = join(this.#folder, ...parents)
    const meta = JSON.parse(await readFile(join(folder, 'meta.json'), 'utf8')) as object
    const form = {
      device: 'cpu',
      shape: [numRows, ...shape],
      dtype: `torch.${TORCH[dtype]}`,
      is_nested: false,
    }
    await writeFile(join(folder, 'meta.json'), JSON.stringify({ [name]: form, ...meta }))
    if (shape.includes(0)) return
    await rename(path, join(folder, `${fileName(name)}.memmap`))
  }
}

function checkKey(key: readonly string[]): void {
  const word = key.find((name) => WORDS.includes(name))
  if (word === undefined) return
  const detail = `key must not have ${WORDS.join(', ')}, words of the format: got ${JSON.stringify(key)}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** The name of a key in a folder, as tensordict escapes it. */
function fileName(key: string): string {
  if (key === '') return '%'
  if (key === '.' || key === '..') return key.replaceAll('.', '%2E')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: file systems refuse them.
  return key.replace(/[\u0000-\u0020%/<>:"|?*\\\u007f]/g, (character) => {
    const code = character.charCodeAt(0).toString(16).toUpperCase()
    return `%${code.padStart(2, '0')}`
  })
}
