/** Reads unknown JSON field by field, with a typed error for each thing that is wrong and for keys nobody asked for. */

import { FulmarError } from './error.js'
import { checkKnownKeys, describeValue } from './options.js'

/** The range of a number and what stands for it when it is absent. */
export interface NumberRule {
  /** The smallest value allowed. */
  readonly min?: number
  /** The value must be greater than this. */
  readonly above?: number
  /** The largest value allowed. */
  readonly max?: number
  /** Taken when the key is absent. */
  readonly fallback: number
}

/**
 * One JSON object being read. Ask for each field once, then call {@link ConfigReader.end}.
 *
 * @example
 * ```ts
 * import { ConfigReader } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const reader = new ConfigReader('config', { steps: 3, setps: 4 })
 * assert.equal(reader.integer('steps', { min: 1, fallback: 10 }), 3)
 * assert.throws(() => reader.end(), { code: 'UNKNOWN_NAME' })
 * ```
 */
export class ConfigReader {
  readonly #place: string
  readonly #fields: ReadonlyMap<string, unknown>
  readonly #json: unknown
  readonly #asked: string[] = []

  /** @throws {FulmarError} `MALFORMED` if `json` is not a plain object. */
  constructor(place: string, json: unknown) {
    this.#place = place
    this.#json = json
    if (typeof json !== 'object' || json === null || Array.isArray(json)) {
      throw new FulmarError('MALFORMED', `${place} must be an object: got ${describeValue(json)}`)
    }
    this.#fields = new Map(Object.entries(json))
  }

  /** @throws {FulmarError} `MALFORMED` if it is not an integer, `OUT_OF_RANGE` if it is outside `rule`. */
  integer(name: string, rule: NumberRule): number {
    const value = this.number(name, rule)
    if (!Number.isSafeInteger(value)) this.#refuse('MALFORMED', name, 'an integer', value)
    return value
  }

  /** @throws {FulmarError} `MALFORMED` if it is not a finite number, `OUT_OF_RANGE` if it is outside `rule`. */
  number(name: string, { min, above, max, fallback }: NumberRule): number {
    const value = this.#take(name, fallback)
    if (typeof value !== 'number' || !Number.isFinite(value)) {
      return this.#refuse('MALFORMED', name, 'a finite number', value)
    }
    if (min !== undefined && value < min) this.#refuse('OUT_OF_RANGE', name, `>= ${min}`, value)
    if (above !== undefined && value <= above) this.#refuse('OUT_OF_RANGE', name, `> ${above}`, value)
    if (max !== undefined && value > max) this.#refuse('OUT_OF_RANGE', name, `<= ${max}`, value)
    return value
  }

  /** Two integers, the smaller first. @throws {FulmarError} `MALFORMED` or `OUT_OF_RANGE`. */
  range(
    name: string,
    {
      min,
      max,
      fallback,
    }: { readonly min: number; readonly max: number; readonly fallback: readonly [number, number] },
  ): readonly [number, number] {
    const value = this.#take(name, fallback)
    const [low, high, ...rest]: unknown[] = Array.isArray(value) ? value : []
    if (typeof low !== 'number' || typeof high !== 'number' || rest.length > 0) {
      return this.#refuse('MALFORMED', name, 'a list of two integers', value)
    }
    if (!Number.isSafeInteger(low) || !Number.isSafeInteger(high)) {
      return this.#refuse('MALFORMED', name, 'a list of two integers', `[${low}, ${high}]`)
    }
    const inside = min <= low && low <= high && high <= max
    if (!inside)
      this.#refuse('OUT_OF_RANGE', name, `two integers, ${min} <= low <= high <= ${max}`, `[${low}, ${high}]`)
    return [low, high]
  }

  /** @throws {FulmarError} `MALFORMED` if it is neither `true` nor `false`. */
  boolean(name: string, fallback: boolean): boolean {
    const value = this.#take(name, fallback)
    return typeof value === 'boolean' ? value : this.#refuse('MALFORMED', name, 'true or false', value)
  }

  /** @throws {FulmarError} `MALFORMED` if it is not a string, or is empty. */
  text(name: string, fallback: string): string {
    const value = this.#take(name, fallback)
    return typeof value === 'string' && value !== ''
      ? value
      : this.#refuse('MALFORMED', name, 'a text', value)
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` if it is not one of `choices`. */
  oneOf<Choice extends string>(name: string, choices: readonly Choice[], fallback: Choice): Choice {
    const value = this.#take(name, fallback)
    const choice = choices.find((candidate) => candidate === value)
    return choice ?? this.#refuse('UNKNOWN_NAME', name, `one of ${choices.join(', ')}`, value)
  }

  /** A reader of the object at `name`; of an empty one if it is absent. @throws {FulmarError} `MALFORMED`. */
  section(name: string): ConfigReader {
    return new ConfigReader(`${this.#place}.${name}`, this.#take(name, {}))
  }

  /** The object at `name` as it is; an empty one if it is absent. @throws {FulmarError} `MALFORMED`. */
  object(name: string): Readonly<Record<string, unknown>> {
    const section = this.section(name)
    return Object.fromEntries(section.#fields)
  }

  /** The list at `name` as it is; an empty one if it is absent. @throws {FulmarError} `MALFORMED`. */
  list(name: string): readonly unknown[] {
    const value = this.#take(name, [])
    return Array.isArray(value) ? value : this.#refuse('MALFORMED', name, 'a list', value)
  }

  /** Refuses every key that was not asked for. @throws {FulmarError} `UNKNOWN_NAME` with the nearest known key. */
  end(): void {
    checkKnownKeys(this.#place, this.#json, this.#asked)
  }

  /** The field, `null` included; `fallback` only where the key is absent. */
  #take(name: string, fallback: unknown): unknown {
    this.#asked.push(name)
    return this.#fields.has(name) ? this.#fields.get(name) : fallback
  }

  #refuse(
    code: 'MALFORMED' | 'OUT_OF_RANGE' | 'UNKNOWN_NAME',
    name: string,
    rule: string,
    value: unknown,
  ): never {
    const got = typeof value === 'string' && value.startsWith('[') ? value : describeValue(value)
    throw new FulmarError(code, `${this.#place}.${name} must be ${rule}: got ${got}`)
  }
}
