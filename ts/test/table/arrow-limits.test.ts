import { type DataType, Field, Int8, List, Schema, Struct, Table, tableToIPC } from 'apache-arrow'
import { expect, it } from 'vitest'
import { ARROW_DEPTH_MAX, ARROW_FIELDS_MAX } from '../../src/table/arrow-limits.js'
import { fromArrow } from '../../src/table/index.js'

/** Returns the error code for a file without rows whose one column is of this type. */
function codeOf(type: DataType): string {
  const bytes = tableToIPC(new Table(new Schema([new Field('a', type, false)])), 'file')
  try {
    fromArrow(bytes)
    return 'none'
  } catch (error) {
    return `${(error as { code?: string }).code}`
  }
}

it('refuses fields that are nested too deep, and too many of them', () => {
  const nested = (depth: number): DataType =>
    depth === 1 ? new Int8() : new List(new Field('item', nested(depth - 1), false))
  expect([codeOf(nested(ARROW_DEPTH_MAX)), codeOf(nested(ARROW_DEPTH_MAX + 1))]).toEqual([
    'none',
    'MALFORMED',
  ])
  const wide = (count: number) =>
    new Struct(Array.from({ length: count }, () => new Field('b', new Int8(), false)))
  expect([codeOf(wide(ARROW_FIELDS_MAX - 1)), codeOf(wide(ARROW_FIELDS_MAX))]).toEqual(['none', 'MALFORMED'])
})
