/** Messages with the results of calls. */

import type { ContentPart, Message } from '../chat/index.js'
import type { ToolCall } from './tool-call.js'
import { type ToolResult, wellFormedText } from './tool-runner.js'

/** Number of characters of a policy's name or tag that messages repeat. */
const TOOL_NAME_SHOWN_MAX = 64

/** Returns a name or tag, shortened for messages. */
export function shown(name: string): string {
  return wellFormedText(name.slice(0, TOOL_NAME_SHOWN_MAX))
}

/**
 * Returns the message with the result of a call, in well-formed text; it repeats the id of the call, if any.
 */
export function toolMessage(result: ToolResult, role: string): Message {
  if (result.ok && result.isContent) {
    const head = { type: 'text', text: `Tool ${shown(result.call.tool)} executed successfully:` }
    const parts = result.value as unknown as readonly ContentPart[]
    return { role, content: [head, ...parts.map(wellFormedPart)], ...referenceTo(result.call) }
  }
  return { role, content: wellFormedText(contentOf(result)), ...referenceTo(result.call) }
}

function wellFormedPart(part: ContentPart): ContentPart {
  return typeof part.text === 'string' ? { ...part, text: wellFormedText(part.text) } : part
}

function referenceTo({ tool, id }: ToolCall): Partial<Message> {
  return id === undefined ? {} : { name: shown(tool), tool_call_id: wellFormedText(id) }
}

function contentOf(result: ToolResult): string {
  const name = shown(result.call.tool)
  if (!result.ok) return `Tool ${name} failed:\n${reasonOf(result)}`
  const { value } = result
  return `Tool ${name} executed successfully:\n${typeof value === 'string' ? value : JSON.stringify(value)}`
}

function reasonOf({ call, error }: ToolResult & { readonly ok: false }): string {
  if (call.problem !== undefined) return `Failed to parse tool arguments: ${error.message}`
  if (error.code === 'UNKNOWN_NAME') return `Tool ${shown(call.tool)} not found`
  return `Tool execution failed: ${error.message}`
}
