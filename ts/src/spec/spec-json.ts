/** The JSON text of a spec, in which integers of 64 bits keep all their digits. */

import { FulmarError } from '../core/index.js'
import { Tensor } from '../tensor/index.js'
import type { SpecTable } from './types.js'

/** `{"type": ...}` with the fields that there are; each is JSON text. */
export function specText(type: string, fields: Readonly<Record<string, string | undefined>>): string {
  const parts = Object.entries(fields).flatMap(([name, text]) =>
    text === undefined ? [] : [`,${JSON.stringify(name)}:${text}`],
  )
  return `{"type":${JSON.stringify(type)}${parts.join('')}}`
}

/** The JSON text of an option, if it is given. */
export function textOf(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value)
}

/** A table as nested arrays; infinities and NaN are texts. */
export function tableText(table: SpecTable | undefined): string | undefined {
  if (table === undefined) return undefined
  if (table instanceof Tensor) return nestedText(elementsOf(table), table.shape)
  if (Array.isArray(table)) return `[${table.map(tableText).join(',')}]`
  return elementText(table as number | boolean | bigint)
}

/** Plain JSON in which numbers that JSON has not are texts. */
export function plainText(plain: unknown): string {
  const text = JSON.stringify(plain, (_, value: unknown) =>
    typeof value === 'number' && !Number.isFinite(value) ? String(value) : value,
  ) as string | undefined
  if (text !== undefined) return text
  throw new FulmarError('MALFORMED', `value must be a JSON value: got ${typeof plain}`)
}

function elementText(element: number | boolean | bigint): string {
  if (typeof element === 'number' && !Number.isFinite(element)) return JSON.stringify(String(element))
  return String(element)
}

function elementsOf(table: Tensor): ArrayLike<number | bigint> {
  return table.dtype === 'f16' || table.dtype === 'bf16' ? table.toFloat32() : table.data
}

function nestedText(elements: ArrayLike<number | bigint>, shape: readonly number[]): string {
  let texts = Array.from(elements, elementText)
  for (const length of shape.toReversed()) {
    const count = length === 0 ? 0 : texts.length / length
    const row = (at: number) => `[${texts.slice(at * length, (at + 1) * length).join(',')}]`
    texts = Array.from({ length: count }, (_, at) => row(at))
  }
  return texts[0] ?? '[]'
}
