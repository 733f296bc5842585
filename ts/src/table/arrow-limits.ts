/** Checks the lengths in an Arrow file against its bytes before it is parsed. */

/** The most fields of a schema, nested ones among them. */
export const ARROW_FIELDS_MAX = 65_536
/** The deepest nesting of fields. */
export const ARROW_DEPTH_MAX = 64

/** Places of the entries of Arrow's tables, as its `.fbs` files number them. */
const HEADER_TYPE = 1
const HEADER = 2
const FIELDS = 1
const CHILDREN = 5
const NODES = 1
const BUFFERS = 2
const VARIADIC = 4
const DATA = 1
const FOOTER_SCHEMA = 1
const [SCHEMA, DICTIONARY, BATCH] = [1, 2, 3] as const

/**
 * Refuses the metadata of a message whose lists are longer than its bytes, or whose columns are longer than `cellsMax`.
 * @throws {Error} With what does not fit.
 */
export function checkMessage(bytes: Uint8Array, cellsMax: number): void {
  const tables = new Tables(bytes)
  const message = tables.root()
  const [type, header] = [tables.byte(message, HEADER_TYPE), tables.table(message, HEADER)]
  tables.list(message, 4, 4)
  if (type === SCHEMA) checkSchema(tables, header)
  if (type === BATCH) checkBatch(tables, header, cellsMax)
  if (type === DICTIONARY) checkBatch(tables, tables.table(header, DATA), cellsMax)
}

/** The same of the footer of a file. */
export function checkFooter(bytes: Uint8Array): void {
  const tables = new Tables(bytes)
  const footer = tables.root()
  checkSchema(tables, tables.table(footer, FOOTER_SCHEMA))
  for (const [place, size] of [
    [2, 24],
    [3, 24],
    [4, 4],
  ] as const) {
    tables.list(footer, place, size)
  }
}

function checkSchema(tables: Tables, schema: number): void {
  tables.list(schema, 2, 4)
  let total = 0
  // Breadth first: the same field may be in several places, so a small file can expand without limit.
  let level = [schema]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > ARROW_DEPTH_MAX) throw new Error(`fields nested deeper than ${ARROW_DEPTH_MAX}`)
    const next: number[] = []
    for (const table of level) {
      const { start, length } = tables.list(table, depth === 0 ? FIELDS : CHILDREN, 4)
      if (depth > 0) tables.list(table, 6, 4)
      total += length
      if (total > ARROW_FIELDS_MAX) throw new Error(`more than ${ARROW_FIELDS_MAX} fields`)
      for (let at = 0; at < length; at++) next.push(tables.follow(start + 4 * at))
    }
    level = next
  }
}

function checkBatch(tables: Tables, batch: number, cellsMax: number): void {
  if (batch === 0) return
  const nodes = tables.list(batch, NODES, 16)
  tables.list(batch, BUFFERS, 16)
  tables.list(batch, VARIADIC, 8)
  for (let at = 0; at < nodes.length; at++) {
    const [count, nulls] = [tables.long(nodes.start + 16 * at), tables.long(nodes.start + 16 * at + 8)]
    if (count < 0 || count > cellsMax || nulls < 0 || nulls > count)
      throw new Error(`a column of ${count} cells`)
  }
}

/** The tables of a flat buffer: each entry is found through a list of offsets, which are checked against the bounds. */
class Tables {
  readonly #view: DataView

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  root(): number {
    return this.follow(0)
  }

  /** Follows the offset at `at`. */
  follow(at: number): number {
    return at + this.#view.getUint32(at, true)
  }

  /** Returns the position of entry `place` of a table, 0 for a missing one. */
  #entry(table: number, place: number): number {
    if (table === 0) return 0
    const places = table - this.#view.getInt32(table, true)
    if (4 + 2 * place >= this.#view.getUint16(places, true)) return 0
    const offset = this.#view.getUint16(places + 4 + 2 * place, true)
    return offset === 0 ? 0 : table + offset
  }

  byte(table: number, place: number): number {
    const at = this.#entry(table, place)
    return at === 0 ? 0 : this.#view.getUint8(at)
  }

  long(at: number): number {
    return Number(this.#view.getBigInt64(at, true))
  }

  table(table: number, place: number): number {
    const at = this.#entry(table, place)
    return at === 0 ? 0 : this.follow(at)
  }

  /** A list of elements of `size` bytes. */
  list(table: number, place: number, size: number): { start: number; length: number } {
    const at = this.table(table, place)
    if (at === 0) return { start: 0, length: 0 }
    const length = this.#view.getUint32(at, true)
    if (at + 4 + length * size > this.#view.byteLength)
      throw new Error(`a list of ${length} that does not fit`)
    return { start: at + 4, length }
  }
}
