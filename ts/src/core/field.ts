/**
 * Descriptions of plain JSON: one description validates a value, fills in its defaults, and is its JSON
 * Schema.
 */

import { FulmarError } from './error.js'
import { checkGiven, checkKnownKeys, describeValue, nearestName } from './options.js'

/** A JSON Schema (draft 2020-12): plain JSON. */
export type JsonSchema = Readonly<Record<string, unknown>>

/** Description of one value. */
export interface Field<Value> {
  /**
   * Returns the checked value with its defaults; `undefined` means absent. `place` is its path for messages.
   * @throws {FulmarError} `MALFORMED` for a value of another type, or an absent one without a default;
   * `OUT_OF_RANGE` for a number outside its range, and for an absent number with a smallest value and no
   * default; `UNKNOWN_NAME` for an unknown key or choice, with the nearest one.
   */
  read(place: string, value: unknown): Value
  /** The description as a JSON Schema. */
  readonly schema: JsonSchema
}

/** Type of the value that a {@link Field} reads. */
export type FieldValue<F> = F extends Field<infer Value> ? Value : never

/** Range and default of a number. */
export interface NumberRule {
  /** The smallest value allowed. */
  readonly min?: number
  /** The value must be greater than this. */
  readonly above?: number
  /** The largest value allowed. */
  readonly max?: number
  /** Default of an absent value. @default none: it must be given */
  readonly fallback?: number
}

/** Bounds of two integers, both inclusive, and their default. */
export interface RangeRule {
  /** The smallest value allowed. */
  readonly min: number
  /** The largest value allowed. */
  readonly max: number
  /** Default of an absent value. @default none: it must be given */
  readonly fallback?: readonly [number, number]
}

/**
 * Constructors of descriptions of numbers, texts, lists and objects with closed keys.
 */
export const field = {
  /** An integer that a double holds exactly. */
  integer: (rule: NumberRule = {}): Field<number> => {
    const number = numberField(rule, 'an integer')
    const read = (place: string, value: unknown) => {
      const found = number.read(place, value)
      return Number.isSafeInteger(found) ? found : refuse('MALFORMED', place, 'an integer', found)
    }
    return { read, schema: { ...number.schema, type: 'integer' } }
  },
  /** A finite number. */
  number: (rule: NumberRule = {}): Field<number> => numberField(rule, 'a finite number'),
  /** `true` or `false`. */
  boolean: (fallback?: boolean): Field<boolean> => {
    const read = (place: string, value: unknown = fallback) =>
      typeof value === 'boolean' ? value : refuse('MALFORMED', place, 'true or false', value)
    return { read, schema: { type: 'boolean', ...defaultOf(fallback) } }
  },
  /** A non-empty text. */
  text: (fallback?: string): Field<string> => {
    const read = (place: string, value: unknown = fallback) =>
      typeof value === 'string' && value !== '' ? value : refuse('MALFORMED', place, 'a text', value)
    return { read, schema: { type: 'string', minLength: 1, ...defaultOf(fallback) } }
  },
  /** One of a closed set of names. */
  oneOf: <const Choice extends string>(choices: readonly Choice[], fallback?: Choice): Field<Choice> => {
    const read = (place: string, value: unknown = fallback) =>
      choices.find((candidate) => candidate === value) ?? refuseChoice(place, choices, value)
    return { read, schema: { enum: choices, ...defaultOf(fallback) } }
  },
  /** Two integers, the smaller first. */
  range: (rule: RangeRule): Field<readonly [number, number]> => rangeField(rule),
  /** A list; empty if absent. */
  list: <Item>(item: Field<Item>): Field<readonly Item[]> => {
    checkGiven('item', item)
    const read = (place: string, value: unknown = []) =>
      Array.isArray(value)
        ? value.map((one: unknown, index) => item.read(`${place}[${index}]`, one))
        : refuse('MALFORMED', place, 'a list', value)
    return { read, schema: { type: 'array', items: item.schema, default: [] } }
  },
  /** An object whose keys the caller or the core checks; empty if absent. */
  record: (): Field<Readonly<Record<string, unknown>>> => ({
    read: (place, value = {}) => ({ ...objectAt(place, value) }),
    schema: { type: 'object', default: {} },
  }),
  /** Any JSON. */
  json: (): Field<unknown> => ({ read: (_, value) => value, schema: {} }),
  /** A value that may be absent, without a default. */
  optional: <Value>(of: Field<Value>): Field<Value | undefined> => {
    checkGiven('of', of)
    const read = (place: string, value: unknown) => (value === undefined ? undefined : of.read(place, value))
    return { read, schema: of.schema }
  },
  /** An object with exactly these keys; if absent, all defaults. */
  section: <Fields extends Readonly<Record<string, Field<unknown>>>>(fields: Fields) => sectionField(fields),
}

function sectionField<Fields extends Readonly<Record<string, Field<unknown>>>>(
  fields: Fields,
): Field<{ readonly [Key in keyof Fields]: FieldValue<Fields[Key]> }> {
  checkGiven('fields', fields)
  const read = (place: string, value: unknown = {}) => {
    checkKnownKeys(place, value, Object.keys(fields))
    const given = new Map(Object.entries(objectAt(place, value)))
    const entries = Object.entries(fields).flatMap(([key, one]) => {
      const found = one.read(`${place}.${key}`, given.get(key))
      return found === undefined ? [] : [[key, found]]
    })
    return Object.fromEntries(entries)
  }
  const properties = Object.fromEntries(Object.entries(fields).map(([key, { schema }]) => [key, schema]))
  return { read, schema: { type: 'object', properties, additionalProperties: false } }
}

function numberField(rule: NumberRule, what: string): Field<number> {
  checkKnownKeys('rule', rule, ['min', 'above', 'max', 'fallback'])
  const { min, above, max, fallback } = rule
  const read = (place: string, value: unknown = fallback) => {
    // Callers recognize a state without a count by this code, which a negative count has too.
    if (min !== undefined && value === undefined) return refuse('OUT_OF_RANGE', place, `>= ${min}`, value)
    if (typeof value !== 'number' || !Number.isFinite(value)) return refuse('MALFORMED', place, what, value)
    if (min !== undefined && value < min) return refuse('OUT_OF_RANGE', place, `>= ${min}`, value)
    if (above !== undefined && value <= above) return refuse('OUT_OF_RANGE', place, `> ${above}`, value)
    if (max !== undefined && value > max) return refuse('OUT_OF_RANGE', place, `<= ${max}`, value)
    return value
  }
  const bounds = {
    ...(min !== undefined && { minimum: min }),
    ...(above !== undefined && { exclusiveMinimum: above }),
    ...(max !== undefined && { maximum: max }),
  }
  return { read, schema: { type: 'number', ...bounds, ...defaultOf(fallback) } }
}

function rangeField(rule: RangeRule): Field<readonly [number, number]> {
  checkKnownKeys('rule', rule, ['min', 'max', 'fallback'], ['min', 'max'])
  const { min, max, fallback } = rule
  const read = (place: string, value: unknown = fallback): readonly [number, number] => {
    const items: unknown[] = Array.isArray(value) ? value : []
    const [low, high] = items
    if (typeof low !== 'number' || typeof high !== 'number' || items.length !== 2)
      return refuse('MALFORMED', place, 'a list of two integers', value)
    const got = `[${low}, ${high}]`
    if (!Number.isSafeInteger(low) || !Number.isSafeInteger(high))
      throw new FulmarError('MALFORMED', `${place} must be a list of two integers: got ${got}`)
    if (min <= low && low <= high && high <= max) return [low, high]
    const order = `two integers, ${min} <= low <= high <= ${max}`
    throw new FulmarError('OUT_OF_RANGE', `${place} must be ${order}: got ${got}`)
  }
  const items = { type: 'integer', minimum: min, maximum: max }
  return { read, schema: { type: 'array', items, minItems: 2, maxItems: 2, ...defaultOf(fallback) } }
}

function defaultOf(fallback: unknown): JsonSchema {
  return fallback === undefined ? {} : { default: fallback }
}

function objectAt(place: string, value: unknown): object {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  return isObject ? value : refuse('MALFORMED', place, 'an object', value)
}

function refuse(code: 'MALFORMED' | 'OUT_OF_RANGE', place: string, rule: string, value: unknown): never {
  throw new FulmarError(code, `${place} must be ${rule}: got ${describeValue(value)}`)
}

function refuseChoice(place: string, choices: readonly string[], value: unknown): never {
  const nearest = typeof value === 'string' ? nearestName(value, choices) : undefined
  const hint = nearest === undefined ? '' : `; did you mean '${nearest}'?`
  const got = `${describeValue(value)}${hint}`
  throw new FulmarError('UNKNOWN_NAME', `${place} must be one of ${choices.join(', ')}: got ${got}`)
}
