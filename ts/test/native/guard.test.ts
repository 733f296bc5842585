// Tests the sources of bindings/node: no exported body may be outside the guards.

import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'

const folder = new URL('../../../bindings/node/src/', import.meta.url)

/** Each exported function of a binding file with its body, as text. `impl` blocks and structs have none. */
function exportedFunctions(source: string): { name: string; body: string }[] {
  const starts = source.matchAll(/#\[napi(?:\([^\]]*\))?\]\s*(?:#\[[^\]]*\]\s*)*pub (?:async )?fn (\w+)/g)
  return Array.from(starts, ({ index, 1: name = '' }) => {
    const rest = source.slice(index)
    const end = /^( {4})?\}$/m.exec(rest)
    return { name, body: rest.slice(0, end?.index ?? rest.length) }
  })
}

describe('bindings/node', () => {
  const files = readdirSync(folder).filter((file) => file.endsWith('.rs'))

  it('is read by this test', () => {
    const names = exportedFunctions(readFileSync(new URL('core.rs', folder), 'utf8')).map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['describe', 'new', 'panic_later', 'next_u32', 'free']))
  })

  it.each(files)('%s runs every exported body where a panic is caught', (file) => {
    const functions = exportedFunctions(readFileSync(new URL(file, folder), 'utf8'))
    const open = functions.filter(({ body }) => !/\b(guard|task|catch)\(/.test(body)).map(({ name }) => name)
    expect(open).toEqual([])
  })
})
