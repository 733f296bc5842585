/** Named chat templates, and which one a chat is rendered with. */

import { checkKnownKeys, describeValue, FulmarError, Handle } from '../core/index.js'
import { type RawTemplateRegistry, raw } from '../native/index.js'
import { Template } from './template.js'

/** Reads the messages back out of a rendered chat. */
export type InverseParser = (text: string) => readonly Readonly<Record<string, unknown>>[]

/** A template to register by {@link TemplateRegistry.add}. */
export interface TemplateEntry {
  /** Jinja source. It needs no `generation` block; without one it gives no assistant spans. */
  readonly template: string
  /** Reads messages out of a text that the template rendered. Absent: such a text cannot be parsed by this name. */
  readonly inverseParser?: InverseParser
  /**
   * With `selection: 'torchrl'`, parts of a tokenizer's name that choose this template, whatever their case.
   * @default []
   */
  readonly modelFamilyKeywords?: readonly string[]
  /**
   * If true, replaces a template of the same name.
   * @default false
   */
  readonly override?: boolean
}

/** Criteria for the template of a chat. */
export interface TemplateQuery {
  /** The source of a template. */
  readonly template?: string | undefined
  /** A registered name. */
  readonly name?: string | undefined
  /** The tokenizer's own template. */
  readonly tokenizerTemplate?: string | undefined
  /** The name or path that the tokenizer was loaded from; only `selection: 'torchrl'` reads it. */
  readonly nameOrPath?: string | undefined
  /**
   * `strict`: the template, the name, the tokenizer's template, or an error: nothing is guessed. `torchrl`: TorchRL's
   * guess by the tokenizer's name, and ChatML for an unknown name.
   * @default 'strict'
   */
  readonly selection?: 'strict' | 'torchrl' | undefined
}

/** Result of {@link TemplateRegistry.select}. */
export interface SelectedTemplate {
  /** Its name in the registry; absent for a source from elsewhere. */
  readonly name?: string
  readonly source: string
  /** The parser that was registered with it. */
  readonly inverseParser?: InverseParser
}

/**
 * Chat templates by name: the built-in ones and those added since. Two registries share nothing. Holds native memory:
 * dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { TemplateRegistry } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using registry = new TemplateRegistry()
 * registry.add('shout', {
 *   template: '{% for m in messages %}{{ m.content | upper }}!{% endfor %}',
 *   inverseParser: (text) => [{ role: 'user', content: text.slice(0, -1).toLowerCase() }],
 * })
 * using template = registry.get('shout')
 * const { text } = template.render({ messages: [{ role: 'user', content: 'hi' }] })
 * assert.equal(text, 'HI!')
 * assert.deepEqual(registry.inverseParser('shout')?.(text), [{ role: 'user', content: 'hi' }])
 * assert.ok(registry.names.includes('qwen3'))
 * assert.throws(() => registry.add('qwen3', { template: '' }), { code: 'INCOMPATIBLE' })
 * ```
 */
export class TemplateRegistry {
  static #builtin: TemplateRegistry | undefined
  readonly #native: Handle<RawTemplateRegistry>
  readonly #parsers = new Map<string, InverseParser>()
  #frozen = false

  /** A registry of its own that begins with the built-in templates. */
  constructor() {
    this.#native = new Handle('TemplateRegistry', () => new raw.TemplateRegistry())
  }

  /** The built-in templates, the default registry. It is read-only and cannot be disposed. */
  static get builtin(): TemplateRegistry {
    if (!TemplateRegistry.#builtin) {
      TemplateRegistry.#builtin = new TemplateRegistry()
      TemplateRegistry.#builtin.#frozen = true
    }
    return TemplateRegistry.#builtin
  }

  /** The names, built-in ones first, then in the order in which they were added. A new list. */
  get names(): string[] {
    return this.#native.call((native) => native.names())
  }

  /**
   * Adds a template under `name`. TorchRL's `add_chat_template`.
   * @throws {FulmarError} `INCOMPATIBLE` if the name is taken and `override` is not set, or for the built-in registry;
   * `MALFORMED` or `LIMIT_EXCEEDED` for a template that does not compile; `UNKNOWN_NAME` for an unknown option.
   */
  add(name: string, entry: TemplateEntry): this {
    if (this.#frozen) {
      throw new FulmarError(
        'INCOMPATIBLE',
        `registry must be one of your own: got the built-in one for "${name}"`,
      )
    }
    checkKnownKeys('entry', entry, ['template', 'inverseParser', 'modelFamilyKeywords', 'override'])
    const { inverseParser, ...rest } = entry
    if (inverseParser !== undefined && typeof inverseParser !== 'function') {
      const got = describeValue(inverseParser)
      throw new FulmarError('MALFORMED', `entry.inverseParser must be a function: got ${got}`)
    }
    this.#native.call((native) => native.register(name, JSON.stringify(rest)))
    if (inverseParser) this.#parsers.set(name, inverseParser)
    else this.#parsers.delete(name)
    return this
  }

  /**
   * Returns the template called `name`, a new object that the caller owns.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown name.
   */
  get(name: string): Template {
    return new Template(this.source(name))
  }

  /**
   * Returns the source of the template called `name`.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown name.
   */
  source(name: string): string {
    return this.#native.call((native) => native.source(name))
  }

  /** The parser that was added with `name`. */
  inverseParser(name: string): InverseParser | undefined {
    return this.#parsers.get(name)
  }

  /**
   * The template that `query` asks for. A tokenizer's own template that is a known model's stock text without
   * `generation` blocks is replaced by the built-in one that renders the same text with them.
   * @throws {FulmarError} `UNKNOWN_NAME` for a name that is not registered or an unknown option; `INCOMPATIBLE` if the
   * query names no template in a way that its selection admits; `MALFORMED` for a source that does not compile.
   */
  select(query: TemplateQuery): SelectedTemplate {
    const keys = ['template', 'name', 'tokenizerTemplate', 'nameOrPath', 'selection']
    checkKnownKeys('options', query, keys)
    const answer = this.#native.call((native) => native.select(JSON.stringify(query)))
    const { name, source }: { name: string | null; source: string } = JSON.parse(answer)
    if (name === null) return { source }
    const inverseParser = this.#parsers.get(name)
    return inverseParser ? { name, source, inverseParser } : { name, source }
  }

  /** Gives the native memory back; the built-in registry keeps it. */
  [Symbol.dispose](): void {
    if (!this.#frozen) this.#native.free()
  }
}
