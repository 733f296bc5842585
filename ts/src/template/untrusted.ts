/** Renders untrusted templates. */

import { callAsync, checkKnownKeys, describeValue, ERROR_CODES, FulmarError } from '../core/index.js'
import { renderInSandbox } from '../native/index.js'
import { checkSource, type RenderedTemplate, type TemplateInput, templateInputJson } from './template.js'

/** Limits of a rendering by {@link renderUntrusted}. */
export interface UntrustedOptions {
  /**
   * Most milliseconds from the start of the rendering, where there are worker threads: in Node. Waiting for a worker does
   * not count. Elsewhere `steps` bounds the time.
   * @default 100
   */
  readonly timeoutMs?: number
  /**
   * Most memory, from 8 MiB to 64 MiB, in whole pages of 64 KiB.
   * @default 67_108_864
   */
  readonly memoryBytes?: number
  /**
   * Most instructions of the engine, up to 200 million.
   * @default 20_000_000
   */
  readonly steps?: number
  /**
   * Longest text, in bytes of UTF-8, up to 256 MiB.
   * @default 16_777_216
   */
  readonly outputBytes?: number
}

const MIB = 2 ** 20
const PAGE_BYTES = 65536
const RANGES = {
  timeoutMs: { fallback: 100, min: 1, max: 3_600_000 },
  memoryBytes: { fallback: 64 * MIB, min: 8 * MIB, max: 64 * MIB },
  steps: { fallback: 20_000_000, min: 1, max: 200_000_000 },
  outputBytes: { fallback: 16 * MIB, min: 1, max: 256 * MIB },
}

/**
 * Renders a template that may be hostile: as {@link Template.render}, but in a WebAssembly instance of its own with a
 * cap on memory and steps, and in Node on a worker thread with a deadline. The instance is thrown away afterwards.
 * Costs some tens of milliseconds more. As many run at once as there are cores; up to 1,024 more wait for their turn.
 *
 * @throws {FulmarError} As {@link Template}; `LIMIT_EXCEEDED` for a template that needs more than `options` allow, or
 * where too many wait already,
 * `TIMEOUT` for one that takes longer, `UNAVAILABLE` where the sandbox module was not built, `OUT_OF_RANGE` for options
 * outside their ranges. Always as a rejection.
 *
 * @example
 * ```ts
 * import { renderUntrusted } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * const messages = [{ role: 'user', content: 'Hi' }]
 * const { text } = await renderUntrusted('{{ messages[0].content }}!', { messages }, { timeoutMs: 10_000 })
 * assert.equal(text, 'Hi!')
 * const bomb = '{% set ns = namespace(x="aaaaaaaa") %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}'
 * await assert.rejects(renderUntrusted(bomb, {}, { timeoutMs: 10_000 }), { code: 'LIMIT_EXCEEDED' })
 * ```
 */
export async function renderUntrusted(
  source: string,
  input: TemplateInput = {},
  options: UntrustedOptions = {},
): Promise<RenderedTemplate> {
  checkSource(source)
  checkKnownKeys('options', options, Object.keys(RANGES))
  const memoryBytes = within('memoryBytes', options)
  if (memoryBytes % PAGE_BYTES !== 0) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      `memoryBytes must be a multiple of ${PAGE_BYTES}: got ${memoryBytes}`,
    )
  }
  const request = {
    source,
    input: templateInputJson(input),
    memoryBytes,
    timeoutMs: within('timeoutMs', options),
    steps: within('steps', options),
    outputBytes: within('outputBytes', options),
  }
  const reply = await callAsync(() => renderInSandbox(request))
  if ('code' in reply) {
    const code = ERROR_CODES.find((known) => known === reply.code)
    throw new FulmarError(code ?? 'PANIC', reply.message)
  }
  return reply.spans ? { text: reply.text, assistantSpans: reply.spans } : { text: reply.text }
}

function within(name: keyof typeof RANGES, options: UntrustedOptions): number {
  const { fallback, min, max } = RANGES[name]
  const value = options[name] ?? fallback
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value
  throw new FulmarError(
    'OUT_OF_RANGE',
    `options.${name} must be an integer from ${min} to ${max}: got ${describeValue(value)}`,
  )
}
