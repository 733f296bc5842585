/** Golden rows that the Rust tests read too. */

import { readFileSync } from 'node:fs'
import { expect } from 'vitest'

/** One row; `tests/golden/objective/HOW.md` explains its fields. */
// biome-ignore lint/suspicious/noExplicitAny: each kind of row has its own fields
export type Row = Record<string, any>

/** The rows of a file that `keep` accepts; there must be some. */
export function readRows(name: string, keep: (row: Row) => boolean): Row[] {
  const file = new URL(`../../../tests/golden/objective/${name}.jsonl`, import.meta.url)
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean)
  const rows = lines.map((line) => JSON.parse(line) as Row).filter(keep)
  expect(rows.length).toBeGreaterThan(0)
  return rows
}

/** All numbers of nested lists, in order; names of non-finite numbers become those numbers. */
export function flat(value: unknown): number[] {
  return [value].flat(Number.POSITIVE_INFINITY).map(Number)
}

export function expectNear(got: ArrayLike<number>, expected: ArrayLike<number>, tolerance = 1e-5): void {
  expect(got.length).toBe(expected.length)
  for (const [index, value] of Array.from(expected).entries()) {
    const distance = Math.abs((got[index] ?? Number.NaN) - value)
    expect(distance, `[${index}]: got ${got[index]}, expected ${value}`).toBeLessThanOrEqual(
      tolerance * Math.max(1, Math.abs(value)),
    )
  }
}

/** FNV-1a over the bytes of arrays: equal on every backend, and in the Rust tests, or the bits differ. */
export function bitsOf(...arrays: readonly (Float32Array | Float64Array)[]): string {
  let hash = 0xcbf29ce484222325n
  for (const { buffer, byteOffset, byteLength } of arrays) {
    for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) {
      hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
    }
  }
  return hash.toString(16)
}
