/** What is said about a call. */

import type { Message } from '../chat/index.js'
import type { ToolCall } from './tool-call.js'
import { type ToolResult, wellFormedText } from './tool-runner.js'

/** How much of a name or tag that a policy wrote is said back to it. */
const TOOL_NAME_SHOWN_MAX = 64

/** A name or tag as it is said back. */
export function shown(name: string): string {
  return wellFormedText(name.slice(0, TOOL_NAME_SHOWN_MAX))
}

/** The answer to one call, in text that templates take; it names the call where the call has an id. */
export function toolMessage(result: ToolResult, role: string): Message {
  return { role, content: wellFormedText(contentOf(result)), ...referenceTo(result.call) }
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
