/** A compiled chat template. */

import { checkKnownKeys, describeValue, FulmarError, Handle } from '../core/index.js'
import { type RawTemplate, raw } from '../native/index.js'

/** JSON that a template sees: the value, or its text, where numbers such as `1.0` keep their form. */
export type TemplateJson = string | Readonly<Record<string, unknown>> | readonly unknown[]

/** Limits of one rendering. The defaults are far above the needs of real templates. */
export interface TemplateOptions {
  /**
   * Most instructions of the engine, and most elements that operators, filters, tests and methods go over, where 16 bytes
   * of a text count as one. Up to 2,000,000,000.
   * @default 100_000_000
   */
  readonly steps?: number
  /**
   * Longest text, in bytes of UTF-8, up to 256 MiB.
   * @default 67_108_864
   */
  readonly outputBytes?: number
  /**
   * Most bytes of all texts and lists together that are made on the way, freed or not, up to 64 GiB.
   * @default 536_870_912
   */
  readonly madeBytes?: number
}

/** Input of {@link Template.render}. */
export interface TemplateInput {
  /**
   * The conversation: a list of messages, or its JSON text. Keys whose value is `null` count as absent.
   * @default []
   */
  readonly messages?: TemplateJson
  /** JSON schemas of the tools, or the JSON text of their list. Absent: `none`. */
  readonly tools?: TemplateJson
  /** Documents for templates that cite, or the JSON text of their list. Absent: `none`. */
  readonly documents?: TemplateJson
  /**
   * If true, the text ends with the start of an assistant's turn.
   * @default false
   */
  readonly addGenerationPrompt?: boolean
  /**
   * If true, the text ends inside the final message, so that a model continues it; a name: inside that field.
   * @default false
   */
  readonly continueFinalMessage?: boolean | string
  /** Variables such as `bos_token`. Those that are absent are undefined. */
  readonly specialTokens?: TemplateJson
  /** Any other variables, or the JSON text of an object. They hide variables of the same name. */
  readonly kwargs?: TemplateJson
  /** Time of `strftime_now`, in UTC. Without it a template that asks for the time fails. */
  readonly now?: Date
}

/** Result of {@link Template.render}. */
export interface RenderedTemplate {
  readonly text: string
  /**
   * Start and end of the text in `generation` blocks, in UTF-16 code units of `text`, so that `text.slice(start, end)`
   * is it. Shape `[S, 2]`, row-major, in order and apart. Absent if the template has no such block, or with
   * `continueFinalMessage`.
   */
  readonly assistantSpans?: Uint32Array
}

/**
 * A chat template in Jinja, compiled. It renders what transformers' `apply_chat_template` renders with the same source,
 * and fails where that fails. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { Template } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using template = new Template(
 *   '{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %}{% endfor %}',
 * )
 * const messages = [{ role: 'assistant', content: 'Hello' }]
 * const { text, assistantSpans = new Uint32Array() } = template.render({ messages })
 * const [start, end] = assistantSpans
 * assert.equal(text, 'assistant: Hello')
 * assert.equal(text.slice(start, end), 'Hello')
 * ```
 */
export class Template {
  readonly #native: Handle<RawTemplate>

  /**
   * @throws {FulmarError} `MALFORMED` if `source` breaks Jinja's grammar; `LIMIT_EXCEEDED` past 1 MiB of source, or
   * for brackets, blocks or expressions that nest too deep; `INCOMPATIBLE` for `autoescape` that is not false;
   * `OUT_OF_RANGE` for a limit outside its range; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(source: string, options: TemplateOptions = {}) {
    checkSource(source)
    const limits = limitsJson(options)
    this.#native = new Handle('Template', () => new raw.Template(source, limits))
  }

  /** True if the source has a `generation` block, in any form. */
  get hasGeneration(): boolean {
    return this.#native.call((native) => native.hasGeneration())
  }

  /**
   * Renders a conversation.
   * @throws {FulmarError} `TEMPLATE_RAISED` with the text that the template gave to `raise_exception`; `UNKNOWN_NAME`
   * where it uses what is undefined; `INCOMPATIBLE` where it does not fit the data; `FORBIDDEN` where it leaves its
   * sandbox; `OUT_OF_RANGE` for what Python calls a ValueError; `LIMIT_EXCEEDED` past a limit; `MALFORMED` for JSON of
   * another form.
   */
  render(input: TemplateInput = {}): RenderedTemplate {
    const json = templateInputJson(input)
    const { text, spans } = this.#native.call((native) => native.render(json))
    return spans ? { text, assistantSpans: spans } : { text }
  }

  /** @internal Lets a history reach the native object. */
  withNative<R>(body: (native: RawTemplate) => R): R {
    return this.#native.call(body)
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

const LIMIT_NAMES = ['steps', 'outputBytes', 'madeBytes'] as const

/** The JSON text of the limits that are given. */
function limitsJson(options: TemplateOptions): string {
  checkKnownKeys('options', options, LIMIT_NAMES)
  for (const name of LIMIT_NAMES) {
    const value = options[name]
    if (value === undefined || (Number.isSafeInteger(value) && value > 0)) continue
    const detail = `options.${name} must be a positive integer: got ${describeValue(value)}`
    throw new FulmarError('OUT_OF_RANGE', detail)
  }
  return JSON.stringify(options)
}

/** @internal Refuses a source that is not text. */
export function checkSource(source: unknown): asserts source is string {
  if (typeof source !== 'string')
    throw new FulmarError('MALFORMED', `source must be text: got ${describeValue(source)}`)
  checkWellFormed('source', source)
}

/** Half of a surrogate pair would silently become U+FFFD on its way to UTF-8. */
function checkWellFormed(name: string, text: string): void {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return
  const code = text.charCodeAt(index).toString(16).toUpperCase()
  const detail = `${name} must be well-formed: got half a pair, U+${code}, at index ${index}`
  throw new FulmarError('MALFORMED', detail)
}

const JSON_FIELDS = ['messages', 'tools', 'documents', 'specialTokens', 'kwargs'] as const

/** @internal The JSON text of an input; what is JSON text already goes into it as it is. */
export function templateInputJson(input: TemplateInput): string {
  checkKnownKeys('input', input, [...JSON_FIELDS, 'addGenerationPrompt', 'continueFinalMessage', 'now'])
  const { addGenerationPrompt, continueFinalMessage, now } = input
  const fields: string[] = []
  for (const name of JSON_FIELDS) {
    const value = input[name]
    if (value !== undefined) fields.push(`"${name}":${jsonText(name, value)}`)
  }
  for (const [name, value] of Object.entries({ addGenerationPrompt, continueFinalMessage })) {
    if (value !== undefined) fields.push(`"${name}":${jsonText(name, [value]).slice(1, -1)}`)
  }
  if (now !== undefined) fields.push(`"now":"${civilTime(now)}"`)
  return `{${fields.join(',')}}`
}

/** The JSON text of a value. A text must be JSON by itself, or it could close the object around it. */
function jsonText(name: string, value: TemplateJson): string {
  if (typeof value === 'string') checkWellFormed(`input.${name}`, value)
  try {
    if (typeof value !== 'string') return JSON.stringify(value)
    JSON.parse(value)
    return value
  } catch (cause) {
    throw new FulmarError('MALFORMED', `input.${name} must be JSON: got ${describeValue(value)}`, { cause })
  }
}

function civilTime(now: Date): string {
  if (!(now instanceof Date) || Number.isNaN(now.getTime())) {
    throw new FulmarError('MALFORMED', `input.now must be a valid Date: got ${describeValue(now)}`)
  }
  return now.toISOString().slice(0, -1)
}
