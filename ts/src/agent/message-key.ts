/** Equality of messages as clients send them back: without reasoning, with keys and JSON written anew. */

import type { Message } from '../chat/index.js'
import { parseJson } from '../core/index.js'

/** A call of a tool in a message of an assistant, as clients send it. */
export interface SentCall {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

/** Between two parts of a key; it cannot be in JSON, and text before it is followed by its length. */
const GAP = '\u0000'

/**
 * Returns a text that is equal for messages that say the same: role, text, name and ids; for an assistant its text and
 * its calls, whose arguments are compared as JSON.
 */
export function messageKey(message: Message): string {
  const { role } = message
  const text = textOf(message)
  if (role !== 'assistant') {
    const { name, tool_call_id: id } = message as { readonly name?: unknown; readonly tool_call_id?: unknown }
    const suffix = name === undefined && id === undefined ? '' : JSON.stringify([name ?? null, id ?? null])
    return `${role}${GAP}${text.length}${GAP}${text}${suffix}`
  }
  const calls = callsOf(message)
  const said = calls.map(({ function: { name, arguments: args } }) => [name, canonicalJson(args)])
  return `${role}${GAP}${text.length}${GAP}${text}${said.length === 0 ? '' : JSON.stringify(said)}`
}

/** Returns the text of a message: a text, or its parts one after another. */
function textOf({ content }: Message): string {
  if (typeof content === 'string') return content
  return (content ?? []).map(({ text }) => (typeof text === 'string' ? text : '')).join('')
}

/** Returns the calls of a message. */
export function callsOf({ tool_calls: calls }: Message): readonly SentCall[] {
  return Array.isArray(calls) ? calls : []
}

/** Returns JSON with sorted keys; text that is not JSON as it is. */
function canonicalJson(text: string): string {
  try {
    return JSON.stringify(sorted(parseJson(text)))
  } catch {
    return text
  }
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, inner]) => [key, sorted(inner)] as const)
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)))
}
