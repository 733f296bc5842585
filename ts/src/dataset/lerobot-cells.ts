/** Cells of numbers of a table as the elements of a tensor. */

import { FulmarError } from '../core/index.js'

/** A row of a column: its dtype, `json` for other values, and its shape. */
export interface RowForm {
  readonly dtype: 'f32' | 'i64' | 'bool' | 'u8' | 'json'
  readonly shape: readonly number[]
}

/** The place of the first cell. */
interface Place {
  readonly file: string
  readonly column: string
  readonly row: number
}

/** Longest list of a cell. */
const CELL_LENGTH_MAX = 2 ** 24

/**
 * The lengths of a cell's lists, `depth` of them, as their first items have them.
 * @throws {FulmarError} `MALFORMED`, with file, column and row, for a null or another depth.
 */
export function shapeOfCell(cell: unknown, depth: number, place: Place): readonly number[] {
  if (depth === 0) return []
  const list = listIn(cell, place)
  return [list.length, ...shapeOfCell(list.length === 0 && depth > 1 ? [] : list[0], depth - 1, place)]
}

/**
 * The elements of cells, one after the other: floats become singles, integers 64 bits.
 * @throws {FulmarError} With file, column and row: `MALFORMED` for a null, `SHAPE_MISMATCH` for another length of a list,
 *   `OUT_OF_RANGE` for an integer from 2^63.
 */
export function elementsOf(
  cells: ArrayLike<unknown>,
  { dtype, shape }: { readonly dtype: 'f32' | 'i64' | 'bool'; readonly shape: readonly number[] },
  { file, column, row }: Place,
): Float32Array | BigInt64Array | Uint8Array {
  const width = shape.reduce((product, length) => product * length, 1)
  if (cells.length * width > 2 ** 31) {
    const detail = `${file}: column '${column}' must have at most 2^31 elements in a row group: got ${cells.length * width}`
    throw new FulmarError('LIMIT_EXCEEDED', detail)
  }
  const write = writerOf(dtype, cells.length * width)
  let at = 0
  const put = (cell: unknown, depth: number, place: Place): void => {
    if (depth === shape.length) {
      write.put(at, cell, place)
      at += 1
      return
    }
    const list = listIn(cell, place)
    if (list.length !== shape[depth]) {
      const detail = `${file} must have lists of ${shape[depth]} at ${column}, row ${place.row}: got ${list.length}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    for (let item = 0; item < list.length; item++) put(list[item], depth + 1, place)
  }
  for (let cell = 0; cell < cells.length; cell++) put(cells[cell], 0, { file, column, row: row + cell })
  return write.elements
}

function writerOf(dtype: 'f32' | 'i64' | 'bool', length: number) {
  if (dtype === 'f32') {
    const elements = new Float32Array(length)
    const put = (at: number, cell: unknown, place: Place): void => {
      if (typeof cell !== 'number') throw notOne(cell, 'a number', place)
      elements[at] = cell
    }
    return { elements, put }
  }
  if (dtype === 'bool') {
    const elements = new Uint8Array(length)
    const put = (at: number, cell: unknown, place: Place): void => {
      if (typeof cell !== 'boolean') throw notOne(cell, 'a boolean', place)
      elements[at] = Number(cell)
    }
    return { elements, put }
  }
  const elements = new BigInt64Array(length)
  const put = (at: number, cell: unknown, place: Place): void => {
    if (typeof cell !== 'bigint' && !Number.isSafeInteger(cell)) throw notOne(cell, 'an integer', place)
    const word = BigInt(cell as number | bigint)
    if (BigInt.asIntN(64, word) !== word)
      throw new FulmarError('OUT_OF_RANGE', `${placeText(place)} must hold integers below 2^63: got ${word}`)
    elements[at] = word
  }
  return { elements, put }
}

function listIn(cell: unknown, place: Place): ArrayLike<unknown> {
  const isList = Array.isArray(cell) || (ArrayBuffer.isView(cell) && !(cell instanceof DataView))
  if (!isList) throw notOne(cell, 'a list', place)
  const list = cell as ArrayLike<unknown>
  if (list.length <= CELL_LENGTH_MAX) return list
  const detail = `${placeText(place)} must hold at most ${CELL_LENGTH_MAX} values: got ${list.length}`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
}

function notOne(cell: unknown, rule: string, place: Place): FulmarError {
  const got = cell === null || cell === undefined ? 'null' : typeof cell
  return new FulmarError('MALFORMED', `${placeText(place)} must hold ${rule}: got ${got}`)
}

function placeText({ file, column, row }: Place): string {
  return `${file}: column '${column}' at row ${row}`
}
