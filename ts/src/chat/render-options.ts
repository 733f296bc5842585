/** Options of renderers on their way to the core. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { JsonList, RenderOptions, ToolSpec } from './renderer.js'
import { toolsText } from './tools-text.js'

/** No tools: one list, whose text is kept. */
export const NO_TOOLS: JsonList<ToolSpec> = Object.freeze([])

/** Options of one rendering; `tools` is JSON text. */
export interface CheckedOptions {
  readonly addGenerationPrompt: boolean
  readonly tools: string
}

/** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` for a value of another type. */
export function checkedOptions(options: RenderOptions): CheckedOptions {
  checkKnownKeys('options', options, ['addGenerationPrompt', 'tools'])
  return withDefaults(options)
}

/** As {@link checkedOptions}, of an object that may have other keys. */
export function withDefaults({
  addGenerationPrompt = false,
  tools = NO_TOOLS,
}: RenderOptions): CheckedOptions {
  if (typeof addGenerationPrompt === 'boolean') return { addGenerationPrompt, tools: toolsText(tools) }
  const rule = 'options.addGenerationPrompt must be true or false'
  throw new FulmarError('MALFORMED', `${rule}: got ${describeValue(addGenerationPrompt)}`)
}
