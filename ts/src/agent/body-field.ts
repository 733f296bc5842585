/** Fields of a request's body: each has one reader, and every failure names the field. */

import { describeValue, nearestName } from '../core/index.js'
import { invalid, unsupported } from './provider-error.js'

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>

/** Returns a value that is an object. */
export function objectOf(param: string, value: unknown): Json {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json
  throw invalid(param, `must be an object: got ${describeValue(value)}`, 'invalid_type')
}

/** Returns a value that is a list of at most `max` items. */
export function listOf(param: string, value: unknown, max: number): readonly unknown[] {
  if (!Array.isArray(value))
    throw invalid(param, `must be a list: got ${describeValue(value)}`, 'invalid_type')
  if (value.length <= max) return value
  throw invalid(param, `must have at most ${max} items: got ${value.length}`, 'array_above_max_length')
}

/** Returns a value that is a text. */
export function textField(param: string, value: unknown): string {
  if (typeof value === 'string') return value
  throw invalid(param, `must be a text: got ${describeValue(value)}`, 'invalid_type')
}

/** Range of a number. */
export interface NumberRange {
  readonly min: number
  readonly max: number
  readonly isInteger?: boolean
}

/** Returns a number within its range; `undefined` if the field is absent or null. */
export function numberField(body: Json, param: string, range: NumberRange): number | undefined {
  const value = body[param]
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'number')
    throw invalid(param, `must be a number: got ${describeValue(value)}`, 'invalid_type')
  const { min, max, isInteger = false } = range
  if (value >= min && value <= max && (!isInteger || Number.isSafeInteger(value))) return value
  const kind = isInteger ? 'an integer' : 'a number'
  throw invalid(param, `must be ${kind} from ${min} to ${max}: got ${value}`)
}

/** Returns true or false; `undefined` if the field is absent or null. */
export function booleanField(body: Json, param: string): boolean | undefined {
  const value = body[param]
  if (value === undefined || value === null) return undefined
  if (typeof value === 'boolean') return value
  throw invalid(param, `must be true or false: got ${describeValue(value)}`, 'invalid_type')
}

/**
 * Rejects fields of a body that are neither read nor listed in `idle`, whose values change no answer, nor have one of
 * the values in `neutral`, which ask for nothing. `place` is the path of the object in the body.
 */
export function checkFields(
  body: Json,
  known: readonly string[],
  neutral: Readonly<Record<string, unknown[]>>,
  place = '',
): void {
  for (const [name, value] of Object.entries(body)) {
    if (value === null || value === undefined || known.includes(name)) continue
    const allowed = Object.hasOwn(neutral, name) ? neutral[name] : undefined
    if (allowed === undefined) {
      const near = nearestName(name, [...known, ...Object.keys(neutral)])
      const hint = near === undefined ? '' : `; did you mean '${near}'?`
      throw invalid(
        `${place}${name.slice(0, 64)}`,
        `must be a field of this endpoint: it is not${hint}`,
        'unknown_parameter',
      )
    }
    if (allowed.some((one) => JSON.stringify(one) === JSON.stringify(value))) continue
    const words = allowed.map((one) => JSON.stringify(one)).join(', ')
    const rule = words === '' ? 'is not supported' : `must be ${words}, as nothing else is supported`
    throw unsupported(`${place}${name}`, rule)
  }
}
