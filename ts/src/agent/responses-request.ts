/** Bodies of `POST /v1/responses`, without state on the server: each brings its whole history as items. */

import { describeValue } from '../core/index.js'
import type { AgentRequest } from './agent-request.js'
import {
  booleanField,
  checkFields,
  type Json,
  listOf,
  numberField,
  objectOf,
  textField,
} from './body-field.js'
import { readFormat, readSampling, readToolChoice, readTools, TOP_LOG_PROBS_MAX } from './chat-request.js'
import type { HistoryMessage } from './conversation.js'
import { callOf, contentOf, HistoryReader, type MadeIds, MESSAGES_MAX, PARTS_MAX } from './history.js'
import type { SentCall } from './message-key.js'
import { invalid, unsupported } from './provider-error.js'

const READ = [
  ...['model', 'input', 'instructions', 'tools', 'tool_choice', 'max_output_tokens', 'temperature', 'top_p'],
  ...['stream', 'text', 'top_logprobs', 'include'],
  // Labels of the caller's own: no answer depends on them.
  ...['user', 'metadata', 'safety_identifier', 'prompt_cache_key', 'prompt_cache_retention'],
]

/** Fields that are accepted with these values alone, which ask for nothing. */
const NEUTRAL = {
  parallel_tool_calls: [true],
  store: [false],
  background: [false],
  truncation: ['disabled'],
  service_tier: ['auto', 'default'],
  reasoning: [{}],
  ...{ previous_response_id: [], conversation: [], prompt: [], max_tool_calls: [], stream_options: [] },
}

/** Parts of an answer that a request may ask for besides. */
const INCLUDES = ['message.output_text.logprobs']

/** A request, with its body, whose fields the answer repeats. */
export interface ResponsesRequest extends AgentRequest {
  readonly body: Json
}

/** Reads a body. @throws {ProviderError} That names the field. */
export function readResponsesRequest(body: Json, isMade: MadeIds): ResponsesRequest {
  checkFields(body, READ, NEUTRAL)
  const { text } = body
  if (text !== undefined && text !== null) {
    const { format } = objectOf('text', text)
    checkFields(objectOf('text', text), ['format'], {}, 'text.')
    if (format !== undefined && format !== null) readFormat('text.format', format)
  }
  const wantsLogProbs = readInclude(body.include)
  const top = numberField(body, 'top_logprobs', { min: 0, max: TOP_LOG_PROBS_MAX, isInteger: true })
  if (top !== undefined && top > 0 && !wantsLogProbs)
    throw invalid('top_logprobs', `must come with include: ["${INCLUDES[0]}"]`)
  return {
    body,
    model: textField('model', body.model),
    history: readInput(body, isMade),
    tools: readTools(body.tools, { at: '', functionOf: ({ type: _, ...named }) => named }),
    allowsCalls: readToolChoice(body.tool_choice),
    numAnswers: 1,
    stop: [],
    ...readSampling(body, ['max_output_tokens']),
    topLogProbs: wantsLogProbs ? (top ?? 0) : null,
    streams: booleanField(body, 'stream') ?? false,
  }
}

/** Returns true if log-probs are asked for. */
function readInclude(value: unknown): boolean {
  if (value === undefined || value === null) return false
  const names = listOf('include', value, PARTS_MAX)
  const other = names.find((name) => typeof name !== 'string' || !INCLUDES.includes(name))
  if (other !== undefined)
    throw unsupported('include', `must be ${INCLUDES.join(', ')}: got ${describeValue(other)}`)
  return names.length > 0
}

function readInput(body: Json, isMade: MadeIds): readonly HistoryMessage[] {
  const reader = new HistoryReader(isMade)
  const { input, instructions } = body
  if (instructions !== undefined && instructions !== null)
    reader.addWords('system', textField('instructions', instructions))
  if (typeof input === 'string') {
    reader.addWords('user', input)
    return reader.end('input')
  }
  const said = new AssistantItems(reader)
  for (const [index, item] of listOf('input', input, MESSAGES_MAX).entries())
    readItem(reader, said, `input[${index}]`, objectOf(`input[${index}]`, item))
  said.flush()
  return reader.end('input')
}

function readItem(reader: HistoryReader, said: AssistantItems, place: string, item: Json): void {
  const { type = 'message', role } = item
  if (type === 'reasoning') said.addReasoning(reasoningOf(place, item))
  else if (type === 'function_call') said.addCall(callOf(place, item.call_id, item))
  else if (type === 'message' && role === 'assistant')
    said.addContent(contentOf(`${place}.content`, item.content))
  else {
    said.flush()
    readOther(reader, place, item)
  }
}

/** Reads an item that is not the assistant's. */
function readOther(reader: HistoryReader, place: string, item: Json): void {
  const { type = 'message', role } = item
  if (type === 'function_call_output') {
    const id = textField(`${place}.call_id`, item.call_id)
    reader.addResult(`${place}.call_id`, id, contentOf(`${place}.output`, item.output))
    return
  }
  if (type !== 'message') {
    const rule = `must be message, function_call, function_call_output or reasoning: got ${describeValue(type)}`
    throw unsupported(`${place}.type`, rule)
  }
  if (role !== 'user' && role !== 'system' && role !== 'developer')
    throw invalid(`${place}.role`, `must be user, system, developer or assistant: got ${describeValue(role)}`)
  reader.addWords(role === 'user' ? 'user' : 'system', contentOf(`${place}.content`, item.content))
}

/** Returns the text of a reasoning item; `undefined` if the client has dropped it. */
function reasoningOf(place: string, { content }: Json): string | undefined {
  if (content === undefined || content === null) return undefined
  const parts = listOf(`${place}.content`, content, PARTS_MAX)
  if (parts.length === 0) return undefined
  return parts
    .map((part, index) => textField(`${place}.content[${index}].text`, objectOf(place, part).text))
    .join('')
}

/** Items of the assistant that are one message: its reasoning, its text, its calls. */
class AssistantItems {
  readonly #reader: HistoryReader
  #reasoning: string | undefined
  #content: ReturnType<typeof contentOf> | undefined
  #calls: SentCall[] = []
  #isOpen = false

  constructor(reader: HistoryReader) {
    this.#reader = reader
  }

  addReasoning(text: string | undefined): void {
    if (this.#content !== undefined || this.#calls.length > 0) this.flush()
    this.#isOpen = true
    this.#reasoning = text
  }

  addContent(content: ReturnType<typeof contentOf>): void {
    if (this.#content !== undefined || this.#calls.length > 0) this.flush()
    this.#isOpen = true
    this.#content = content
  }

  addCall(call: SentCall): void {
    this.#isOpen = true
    this.#calls.push(call)
  }

  /** Adds the message, if there is one. */
  flush(): void {
    if (this.#isOpen) this.#reader.addAssistant(this.#content ?? '', this.#calls, this.#reasoning)
    this.#reasoning = undefined
    this.#content = undefined
    this.#calls = []
    this.#isOpen = false
  }
}
