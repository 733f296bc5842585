/** Messages of a body as a history: checked, and in the renderer's form. */

import type { Message } from '../chat/index.js'
import { type Json, listOf, objectOf, textField } from './body-field.js'
import type { HistoryMessage } from './conversation.js'
import type { SentCall } from './message-key.js'
import { invalid, unsupported } from './provider-error.js'

/** Maximum number of messages of a request. */
export const MESSAGES_MAX = 20_000

/** Maximum number of parts of a message, and of calls. */
export const PARTS_MAX = 4_096

/** Ids that the endpoint made, which the model does not know. */
export type MadeIds = (id: string) => boolean

/** Collects the messages of one request. */
export class HistoryReader {
  readonly messages: HistoryMessage[] = []
  readonly #isMade: MadeIds
  /** Names of the tools that calls so far were of, by the ids of the calls. */
  readonly #calls = new Map<string, string>()

  constructor(isMade: MadeIds) {
    this.#isMade = isMade
  }

  /** Adds the instructions of a system or a developer, or words of a user. */
  addWords(role: 'system' | 'user', content: Message['content'], name?: string): void {
    const message = { role, content, ...(name !== undefined && { name }) }
    this.messages.push({ sent: message, rendered: message })
  }

  /** Adds a message of the assistant. */
  addAssistant(content: Message['content'], calls: readonly SentCall[], reasoning?: string): void {
    for (const { id, function: called } of calls) this.#calls.set(id, called.name)
    const thought = { ...(reasoning !== undefined && { reasoning_content: reasoning }) }
    const said = { role: 'assistant', content, ...thought }
    if (calls.length === 0) {
      this.messages.push({ sent: said, rendered: said })
      return
    }
    const known = calls.map(({ id, ...call }) => (this.#isMade(id) ? call : { id, ...call }))
    this.messages.push({
      sent: { ...said, tool_calls: calls },
      rendered: { ...said, tool_calls: known },
    })
  }

  /** Adds the result of a call. `place` names the field of its id. */
  addResult(place: string, id: string, content: Message['content']): void {
    const name = this.#calls.get(id)
    if (name === undefined) {
      const rule = `must be the id of a call in an earlier message of the assistant: got "${id.slice(0, 64)}"`
      throw invalid(place, rule)
    }
    const sent = { role: 'tool', content, tool_call_id: id }
    const said = { role: 'tool', content, name }
    this.messages.push({ sent, rendered: this.#isMade(id) ? said : { ...said, tool_call_id: id } })
  }

  /** Returns the history. @throws {ProviderError} If it is empty, or ends with the assistant. */
  end(param: string): readonly HistoryMessage[] {
    const last = this.messages.at(-1)
    if (last === undefined) throw invalid(param, 'must hold a message: it is empty', 'empty_array')
    if (last.sent.role !== 'assistant') return this.messages
    const rule = 'must not end with a message of the assistant, as the model begins its answers itself'
    throw unsupported(param, rule)
  }
}

/** Types of parts that are text. */
const TEXT_TYPES = ['text', 'input_text', 'output_text', 'refusal']

/** Returns the content of a message: a text, or a list of parts that are text. */
export function contentOf(place: string, value: unknown): string | readonly { type: 'text'; text: string }[] {
  if (typeof value === 'string') return value
  return listOf(place, value, PARTS_MAX).map((given, index) => {
    const part = objectOf(`${place}[${index}]`, given)
    const { type } = part
    if (typeof type !== 'string' || !TEXT_TYPES.includes(type))
      throw unsupported(`${place}[${index}].type`, `must be a text part: got ${JSON.stringify(type)}`)
    const text = textField(
      `${place}[${index}].${type === 'refusal' ? type : 'text'}`,
      part[type === 'refusal' ? type : 'text'],
    )
    return { type: 'text', text }
  })
}

/** Returns a call, whose arguments are a text. */
export function callOf(place: string, id: unknown, named: Json): SentCall {
  const called = {
    name: textField(`${place}.name`, named.name),
    arguments: textField(`${place}.arguments`, named.arguments),
  }
  return { id: textField(`${place}.id`, id), type: 'function', function: called }
}
