/** Options of renderers on their way to the core. */

import { call, checkKnownKeys } from '../core/index.js'
import type { JsonList, RenderOptions } from './renderer.js'

/** A list as JSON text; text is taken for such. */
export function toText(list: JsonList<unknown>): string {
  return typeof list === 'string' ? list : call(() => String(JSON.stringify(list)))
}

/** Options as JSON text. */
export function optionsText(options: RenderOptions): string {
  checkKnownKeys('options', options, ['addGenerationPrompt', 'tools'])
  const { addGenerationPrompt = false, tools = [] } = options
  return `{"addGenerationPrompt":${JSON.stringify(addGenerationPrompt)},"tools":${toText(tools)}}`
}
