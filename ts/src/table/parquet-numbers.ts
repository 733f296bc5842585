/**
 * Numbers of a Parquet column whose cells are all of one length, as one array. `hyparquet` gives an array for each cell, which takes several times
 * as long as to read them; its decoders of pages give the numbers of a page as one.
 */

import {
  type AsyncBuffer,
  type ColumnMetaData,
  type DecodedArray,
  type FileMetaData,
  type PageHeader,
  parquetSchema,
} from 'hyparquet'
import { convert, DEFAULT_PARSERS } from 'hyparquet/src/convert.js'
import { readDataPage, readDataPageV2 } from 'hyparquet/src/datapage.js'
import { readPlain } from 'hyparquet/src/plain.js'
import { getMaxDefinitionLevel, getMaxRepetitionLevel, getTreePath } from 'hyparquet/src/schema.js'
import {
  type Chunk,
  checkFirst,
  checkSecond,
  chunkOf,
  PARQUET_COMPRESSORS,
  pagesOf,
  unpacked,
} from './parquet-pages.js'

/** @internal The numbers of all cells, one cell after the other. */
export interface ColumnNumbers {
  readonly elements: Float32Array | BigInt64Array
  /** Numbers of a cell. */
  readonly width: number
}

/** The rows that are read, and the kind of array that they become. */
interface Wanted {
  readonly numRows: number
  /** Number of lists around a number. */
  readonly depth: number
  /** Singles of floats, or 64 bits of integers. */
  readonly dtype: 'f32' | 'i64'
}

/**
 * @internal Reads a column of numbers, or of lists of them, in a group of rows. Returns nothing for cells of several lengths, nulls, and whatever
 * else is not simple; they are read as cells then.
 * @throws {Error} for pages that are damaged.
 */
export async function readNumbers(
  file: AsyncBuffer,
  { schema }: FileMetaData,
  column: ColumnMetaData,
  { numRows, depth, dtype }: Wanted,
): Promise<ColumnNumbers | undefined> {
  const chunk = chunkOf(column, schema)
  const width = chunk.numValues / numRows
  if (!Number.isSafeInteger(width) || width < 1) return undefined
  const pages = new NumberPages(chunk, parquetSchema({ schema } as FileMetaData))
  if (pages.repetitionMax !== depth || (depth === 0 && width > 1)) return undefined
  const elements = dtype === 'f32' ? new Float32Array(chunk.numValues) : new BigInt64Array(chunk.numValues)
  const view = new DataView(await file.slice(chunk.start, chunk.end))
  let at = 0
  for (const { header, bytes } of pagesOf(view, chunk)) {
    const page = pages.read(header, bytes)
    if (page === undefined) continue
    if (page.hasNulls || !areCellsOf(width, at, page.repetitionLevels)) return undefined
    if (!put(page, elements, at)) return undefined
    at += page.values.length
  }
  return at === elements.length ? { elements, width } : undefined
}

/** The numbers of a data page, or their positions in a dictionary. */
interface NumberPage {
  readonly values: DecodedArray
  readonly dictionary: DecodedArray | undefined
  /** For each number, 0 where it begins a cell; empty where each is one. */
  readonly repetitionLevels: readonly number[]
  readonly hasNulls: boolean
}

/** Decodes pages one after the other. */
class NumberPages {
  readonly repetitionMax: number
  readonly #definitionMax: number
  readonly #chunk: Chunk
  readonly #decoder: Parameters<typeof readDataPage>[2]
  #dictionary: DecodedArray | undefined

  constructor(chunk: Chunk, schema: ReturnType<typeof parquetSchema>) {
    const schemaPath = getTreePath(schema, chunk.column.path_in_schema)
    const element = schemaPath.at(-1)?.element
    if (element === undefined) throw new Error('a column must be in the schema: it is not')
    const { path_in_schema: pathInSchema, type, codec } = chunk.column
    this.repetitionMax = getMaxRepetitionLevel(schemaPath)
    this.#definitionMax = getMaxDefinitionLevel(schemaPath)
    this.#chunk = chunk
    this.#decoder = {
      ...{ pathInSchema, type, codec, element, schemaPath, parsers: DEFAULT_PARSERS },
      ...{ compressors: PARQUET_COMPRESSORS, utf8: false },
    }
  }

  /** Reads a data page, or keeps a dictionary for the pages behind it. */
  read(header: PageHeader, bytes: Uint8Array): NumberPage | undefined {
    const { data_page_header: first, data_page_header_v2: second } = header
    if (header.type === 'DICTIONARY_PAGE') this.#keep(header, bytes)
    if (first && header.type === 'DATA_PAGE') {
      const page = unpacked(bytes, header, this.#chunk)
      checkFirst(() => page, header, this.#chunk)
      return this.#pageOf(first.encoding, readDataPage(page, first, this.#decoder))
    }
    if (second && header.type === 'DATA_PAGE_V2') {
      checkSecond(bytes, header, this.#chunk)
      return this.#pageOf(second.encoding, readDataPageV2(bytes, header, this.#decoder))
    }
    return undefined
  }

  #keep(header: PageHeader, bytes: Uint8Array): void {
    const page = unpacked(bytes, header, this.#chunk)
    const reader = { view: new DataView(page.buffer, page.byteOffset, page.byteLength), offset: 0 }
    const { type, element } = this.#decoder
    const count = header.dictionary_page_header?.num_values ?? 0
    this.#dictionary = convert(readPlain(reader, type, count, element.type_length), this.#decoder)
  }

  #pageOf(
    encoding: string,
    { definitionLevels = [], repetitionLevels, dataPage }: ReturnType<typeof readDataPage>,
  ): NumberPage {
    const hasNulls = definitionLevels.some((level) => level !== this.#definitionMax)
    const isOfDictionary = encoding.endsWith('_DICTIONARY')
    return {
      ...{ hasNulls, repetitionLevels, dictionary: isOfDictionary ? (this.#dictionary ?? []) : undefined },
      values: isOfDictionary ? dataPage : convert(dataPage, this.#decoder),
    }
  }
}

/** Checks that a cell begins at every `width`-th number, the first of which is number `at`. */
function areCellsOf(width: number, at: number, repetitionLevels: readonly number[]): boolean {
  for (let place = 0; place < repetitionLevels.length; place++)
    if (repetitionLevels[place] !== Number((at + place) % width !== 0)) return false
  return true
}

/** Writes the numbers of a page from position `at` on. Returns false for numbers of another kind. */
function put(page: NumberPage, elements: ColumnNumbers['elements'], at: number): boolean {
  const source = page.dictionary ?? page.values
  if (elements instanceof Float32Array) {
    const isFloat = source instanceof Float32Array || source instanceof Float64Array
    return isFloat && fill(elements, source, page, at)
  }
  const words = source instanceof Int32Array ? BigInt64Array.from(source, BigInt) : source
  return words instanceof BigInt64Array && fill(elements, words, page, at)
}

/** An array of numbers of one kind. */
interface Target<T> {
  [at: number]: T
  readonly length: number
  set(source: ArrayLike<T>, at: number): void
}

function fill<T>(
  elements: Target<T>,
  source: ArrayLike<T>,
  { values, dictionary }: NumberPage,
  at: number,
): boolean {
  if (at + values.length > elements.length) return false
  if (dictionary === undefined) {
    elements.set(source, at)
    return true
  }
  for (let place = 0; place < values.length; place++) {
    const number = source[Number(values[place])]
    if (number === undefined) return false
    elements[at + place] = number
  }
  return true
}
