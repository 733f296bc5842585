/** Lists of tools as JSON text. Conversations share them, so a list is made text once, and again only after it was changed. */

import { call } from '../core/index.js'
import type { JsonList } from './renderer.js'

/** Most values of a list whose text is kept. */
const VALUES_MAX = 4096

/** Marks among the values of a list. JSON has no symbols, so they are not values. */
const [LIST, OBJECT, END] = [Symbol('list'), Symbol('object'), Symbol('end')]

/** A text, and all keys and values that it was made of. */
interface Kept {
  readonly text: string
  readonly values: readonly unknown[]
}

const KEPT = new WeakMap<object, Kept>()

/** Returns a list as JSON text; text is taken for such. */
export function toolsText(tools: JsonList<unknown>): string {
  if (typeof tools === 'string') return tools
  const kept = KEPT.get(tools)
  const values: unknown[] = []
  const isPlain = call(() => appendValues(values, tools))
  if (kept && isPlain && isSame(kept.values, values)) return kept.text
  const text = call(() => String(JSON.stringify(tools)))
  if (isPlain && Array.isArray(tools)) KEPT.set(tools, { text, values })
  return text
}

type Fields = { readonly [key: string]: unknown }

/** Types besides objects whose `toJSON` may be called, and symbols, which mark. */
const CUSTOM: readonly string[] = ['bigint', 'function', 'symbol']

/** Appends what JSON shows of `value`. Returns false if that is too much, or if `toJSON` may show something else. */
function appendValues(values: unknown[], value: unknown): boolean {
  if (values.length >= VALUES_MAX) return false
  if (typeof value !== 'object' || value === null) {
    values.push(value)
    return !CUSTOM.includes(typeof value)
  }
  if ('toJSON' in value) return false
  if (Array.isArray(value)) {
    values.push(LIST, value.length)
    for (const item of value) if (!appendValues(values, item)) return false
    return true
  }
  return isFields(value) && appendFields(values, value)
}

function isFields(value: object): value is Fields {
  return !Array.isArray(value)
}

function appendFields(values: unknown[], fields: Fields): boolean {
  values.push(OBJECT)
  for (const key in fields) {
    values.push(key)
    if (!appendValues(values, fields[key])) return false
  }
  values.push(END)
  return true
}

function isSame(some: readonly unknown[], others: readonly unknown[]): boolean {
  if (some.length !== others.length) return false
  for (let index = 0; index < some.length; index++) if (some[index] !== others[index]) return false
  return true
}
