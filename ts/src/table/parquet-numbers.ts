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
import { areAllLevel, beginEvery, endOf } from './parquet-runs.js'

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
  const pages = new NumberPages(chunk, width, parquetSchema({ schema } as FileMetaData))
  if (pages.repetitionMax !== depth || (depth === 0 && width > 1)) return undefined
  const elements = dtype === 'f32' ? new Float32Array(chunk.numValues) : new BigInt64Array(chunk.numValues)
  const view = new DataView(await file.slice(chunk.start, chunk.end))
  let at = 0
  for (const { header, bytes } of pagesOf(view, chunk)) {
    if (header.type === 'DICTIONARY_PAGE') pages.keep(header, bytes)
    if (header.type !== 'DATA_PAGE' && header.type !== 'DATA_PAGE_V2') continue
    const page = pages.read(header, bytes, at)
    if (page === undefined || !put(page, elements, at)) return undefined
    at += page.values.length
  }
  return at === elements.length ? { elements, width } : undefined
}

/** The numbers of a data page, or their positions in a dictionary. */
interface NumberPage {
  readonly values: DecodedArray
  readonly dictionary: DecodedArray | undefined
}

/** Decodes pages one after the other. */
class NumberPages {
  readonly repetitionMax: number
  readonly #definitionMax: number
  readonly #chunk: Chunk
  readonly #width: number
  readonly #decoder: Parameters<typeof readDataPage>[2]
  #dictionary: DecodedArray | undefined

  constructor(chunk: Chunk, width: number, schema: ReturnType<typeof parquetSchema>) {
    const schemaPath = getTreePath(schema, chunk.column.path_in_schema)
    const element = schemaPath.at(-1)?.element
    if (element === undefined) throw new Error('a column must be in the schema: it is not')
    const { path_in_schema: pathInSchema, type, codec } = chunk.column
    this.repetitionMax = getMaxRepetitionLevel(schemaPath)
    this.#definitionMax = getMaxDefinitionLevel(schemaPath)
    this.#chunk = chunk
    this.#width = width
    // Levels are read here, so the decoder gets a column that has none.
    this.#decoder = {
      ...{ pathInSchema, type, codec, element, schemaPath: [], parsers: DEFAULT_PARSERS },
      ...{ compressors: PARQUET_COMPRESSORS, utf8: false },
    }
  }

  /** Keeps the dictionary for the pages behind it. */
  keep(header: PageHeader, bytes: Uint8Array): void {
    const page = unpacked(bytes, header, this.#chunk)
    const reader = { view: new DataView(page.buffer, page.byteOffset, page.byteLength), offset: 0 }
    const { type, element } = this.#decoder
    const count = header.dictionary_page_header?.num_values ?? 0
    this.#dictionary = convert(readPlain(reader, type, count, element.type_length), this.#decoder)
  }

  /** Reads a data page whose first number is number `at`; nothing for nulls, and cells of another length. */
  read(header: PageHeader, bytes: Uint8Array, at: number): NumberPage | undefined {
    const { data_page_header: first, data_page_header_v2: second } = header
    if (first !== undefined) {
      const page = unpacked(bytes, header, this.#chunk)
      checkFirst(() => page, header, this.#chunk)
      const levels: Uint8Array[] = []
      let start = 0
      for (const bits of this.#chunk.levelBits) {
        const end = bits > 0 ? endOf(page, start) : start
        levels.push(bits > 0 ? page.subarray(start + 4, end) : page.subarray(start, end))
        start = end
      }
      if (!this.#areEven(levels, first.num_values, at)) return undefined
      return this.#pageOf(first.encoding, readDataPage(page.subarray(start), first, this.#decoder))
    }
    if (second === undefined) throw new Error('a page of numbers must have a header of one: it has not')
    checkSecond(bytes, header, this.#chunk)
    const begin = second.repetition_levels_byte_length
    const end = begin + second.definition_levels_byte_length
    const levels = [bytes.subarray(0, begin), bytes.subarray(begin, end)]
    if (second.num_nulls > 0 || !this.#areEven(levels, second.num_values, at)) return undefined
    const rest = {
      ...{ ...header, uncompressed_page_size: header.uncompressed_page_size - end },
      data_page_header_v2: { ...second, repetition_levels_byte_length: 0, definition_levels_byte_length: 0 },
    }
    return this.#pageOf(second.encoding, readDataPageV2(bytes.subarray(end), rest, this.#decoder))
  }

  /** Returns true if a cell begins at every `width`-th number, and none is null. */
  #areEven(
    [repetition = NONE, definition = NONE]: readonly Uint8Array[],
    count: number,
    at: number,
  ): boolean {
    const [repetitionBits = 0, definitionBits = 0] = this.#chunk.levelBits
    if (repetitionBits > 0 && !beginEvery(repetition, count, this.#width, at)) return false
    return definitionBits === 0 || areAllLevel(definition, count, definitionBits, this.#definitionMax)
  }

  #pageOf(encoding: string, { dataPage }: { readonly dataPage: DecodedArray }): NumberPage {
    if (!encoding.endsWith('_DICTIONARY'))
      return { values: convert(dataPage, this.#decoder), dictionary: undefined }
    return { values: dataPage, dictionary: this.#dictionary ?? [] }
  }
}

const NONE = new Uint8Array()

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
