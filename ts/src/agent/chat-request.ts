/** Bodies of `POST /v1/chat/completions`. */

import type { Message, ToolSpec } from '../chat/index.js'
import { describeValue } from '../core/index.js'
import { STOP_STRING_LENGTH_MAX } from '../model/stop-strings.js'
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
import type { HistoryMessage } from './conversation.js'
import { callOf, contentOf, HistoryReader, type MadeIds, MESSAGES_MAX, PARTS_MAX } from './history.js'
import { invalid, unsupported } from './provider-error.js'

/** Maximum number of tools of a request. */
const TOOLS_MAX = 1_024

/** Maximum number of answers to a request. */
const ANSWERS_MAX = 128

/** Maximum number of alternatives of a token. */
export const TOP_LOG_PROBS_MAX = 20

/** Maximum number of stop texts, as OpenAI has it. */
const STOPS_MAX = 4

const READ = [
  ...[
    'model',
    'messages',
    'tools',
    'tool_choice',
    'n',
    'stop',
    'seed',
    'max_completion_tokens',
    'max_tokens',
  ],
  ...[
    'temperature',
    'top_p',
    'top_k',
    'min_p',
    'frequency_penalty',
    'presence_penalty',
    'repetition_penalty',
  ],
  ...['logprobs', 'top_logprobs', 'stream', 'stream_options', 'response_format'],
  // Labels of the caller's own: no answer depends on them.
  ...['user', 'metadata', 'safety_identifier', 'prompt_cache_key', 'prompt_cache_retention'],
]

/** Fields that are accepted with these values alone, which ask for nothing. */
const NEUTRAL = {
  parallel_tool_calls: [true],
  store: [false],
  modalities: [['text']],
  service_tier: ['auto', 'default'],
  logit_bias: [{}],
  ...{ audio: [], prediction: [], reasoning_effort: [], verbosity: [], web_search_options: [] },
  ...{ functions: [], function_call: [] },
}

/** A request, and whether its stream ends with the counts of tokens. */
export interface ChatRequest extends AgentRequest {
  readonly includesUsage: boolean
}

/** Reads a body. @throws {ProviderError} That names the field. */
export function readChatRequest(body: Json, isMade: MadeIds): ChatRequest {
  checkFields(body, READ, NEUTRAL)
  const { response_format: format } = body
  if (format !== undefined && format !== null) readFormat('response_format', format)
  const streams = booleanField(body, 'stream') ?? false
  return {
    model: textField('model', body.model),
    history: readMessages(body.messages, isMade),
    tools: readTools(body.tools, {
      at: '.function',
      functionOf: (tool, place) => objectOf(place, tool.function),
    }),
    allowsCalls: readToolChoice(body.tool_choice),
    numAnswers: numberField(body, 'n', { min: 1, max: ANSWERS_MAX, isInteger: true }) ?? 1,
    stop: readStop(body.stop),
    ...readSampling(body, ['max_completion_tokens', 'max_tokens']),
    topLogProbs: readLogProbs(body),
    streams,
    includesUsage: readStreamOptions(body.stream_options, streams),
  }
}

/** Reads the format of an answer, which can only be text. */
export function readFormat(param: string, format: unknown): void {
  const { type } = objectOf(param, format)
  if (type !== 'text')
    throw unsupported(
      param,
      `must be of type text, as answers are not bound to a form: got ${describeValue(type)}`,
    )
}

/** Reads the fields of sampling. `names` are those of the maximum number of tokens, the first of which counts. */
export function readSampling(
  body: Json,
  names: readonly string[],
): Pick<AgentRequest, 'sampling' | 'penalties'> {
  const count = { min: 1, max: Number.MAX_SAFE_INTEGER, isInteger: true }
  const penalty = { min: -2, max: 2 }
  const read = (name: string, range: { min: number; max: number; isInteger?: boolean }) =>
    numberField(body, name, range)
  const maxTokens = names.map((name) => read(name, count)).find((value) => value !== undefined)
  return {
    sampling: given({
      maxTokens,
      temperature: read('temperature', { min: 0, max: 2 }),
      topP: read('top_p', { min: Number.MIN_VALUE, max: 1 }),
      topK: read('top_k', { ...count, min: 0 }),
      seed: readSeed(
        read('seed', { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, isInteger: true }),
      ),
    }),
    penalties: given({
      minP: read('min_p', { min: 0, max: 1 }),
      frequencyPenalty: read('frequency_penalty', penalty),
      presencePenalty: read('presence_penalty', penalty),
      repetitionPenalty: read('repetition_penalty', { min: Number.MIN_VALUE, max: 1_000 }),
    }),
  }
}

/** Seeds may be negative here; draws have others. */
function readSeed(seed: number | undefined): number | undefined {
  return seed === undefined || seed >= 0 ? seed : Number.MAX_SAFE_INTEGER + seed
}

function given<T extends object>(values: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T
}

/** Reads tools: a list of functions, each of which `functionOf` finds at the path `at` of its tool. */
export function readTools(
  value: unknown,
  { at, functionOf }: { readonly at: string; readonly functionOf: (tool: Json, place: string) => Json },
): readonly ToolSpec[] {
  if (value === undefined || value === null) return []
  return listOf('tools', value, TOOLS_MAX).map((item, index) => {
    const tool = objectOf(`tools[${index}]`, item)
    if (tool.type !== 'function')
      throw unsupported(`tools[${index}].type`, `must be function: got ${describeValue(tool.type)}`)
    const place = `tools[${index}]${at}`
    const { strict, ...named } = functionOf(tool, place)
    textField(`${place}.name`, named.name)
    // Nothing binds the arguments to the schema; `strict` is what several clients send for every tool.
    void strict
    return { type: 'function', function: named }
  })
}

/** Returns false if the answer must not have calls. */
export function readToolChoice(choice: unknown): boolean {
  if (choice === undefined || choice === null || choice === 'auto') return true
  if (choice === 'none') return false
  throw unsupported(
    'tool_choice',
    `must be auto or none, as no call can be forced: got ${describeValue(choice)}`,
  )
}

function readStop(value: unknown): readonly string[] {
  if (value === undefined || value === null) return []
  const stops = typeof value === 'string' ? [value] : listOf('stop', value, STOPS_MAX)
  return stops.map((stop, index) => {
    const text = textField(`stop[${index}]`, stop)
    if (text === '') throw invalid(`stop[${index}]`, 'must be a text: it is empty')
    if (/\p{Cs}/u.test(text))
      throw invalid(`stop[${index}]`, 'must be well-formed: it has half a surrogate pair')
    if (text.length > STOP_STRING_LENGTH_MAX) {
      const rule = `must be at most ${STOP_STRING_LENGTH_MAX} long: got ${text.length}`
      throw invalid(`stop[${index}]`, rule, 'string_above_max_length')
    }
    return text
  })
}

function readLogProbs(body: Json): number | null {
  const top = numberField(body, 'top_logprobs', { min: 0, max: TOP_LOG_PROBS_MAX, isInteger: true })
  if (booleanField(body, 'logprobs') === true) return top ?? 0
  if (top === undefined) return null
  throw invalid('top_logprobs', 'must come with logprobs: true')
}

function readStreamOptions(value: unknown, streams: boolean): boolean {
  if (value === undefined || value === null) return false
  if (!streams) throw invalid('stream_options', 'must come with stream: true')
  const options = objectOf('stream_options', value)
  checkFields(options, ['include_usage', 'include_obfuscation'], {}, 'stream_options.')
  return booleanField(options, 'include_usage') ?? false
}

function readMessages(value: unknown, isMade: MadeIds): readonly HistoryMessage[] {
  const reader = new HistoryReader(isMade)
  for (const [index, item] of listOf('messages', value, MESSAGES_MAX).entries())
    readMessage(reader, `messages[${index}]`, objectOf(`messages[${index}]`, item))
  return reader.end('messages')
}

function readMessage(reader: HistoryReader, place: string, message: Json): void {
  const { role } = message
  if (role === 'assistant') {
    const content = message.content ?? message.refusal ?? null
    const said: Message['content'] = content === null ? '' : contentOf(`${place}.content`, content)
    const reasoning = message.reasoning_content ?? message.reasoning
    reader.addAssistant(
      said,
      readCalls(place, message),
      typeof reasoning === 'string' ? reasoning : undefined,
    )
    return
  }
  if (role === 'tool') {
    checkKeys(place, message, ['role', 'content', 'tool_call_id', 'name'])
    const id = textField(`${place}.tool_call_id`, message.tool_call_id)
    reader.addResult(`${place}.tool_call_id`, id, contentOf(`${place}.content`, message.content))
    return
  }
  if (role !== 'system' && role !== 'developer' && role !== 'user')
    throw invalid(
      `${place}.role`,
      `must be system, developer, user, assistant or tool: got ${describeValue(role)}`,
    )
  checkKeys(place, message, ['role', 'content', 'name'])
  const { name } = message
  const named = name === undefined || name === null ? undefined : textField(`${place}.name`, name)
  // A developer's message is the system message of newer models.
  reader.addWords(role === 'user' ? 'user' : 'system', contentOf(`${place}.content`, message.content), named)
}

function readCalls(place: string, { tool_calls: calls, function_call: old }: Json) {
  if (old !== undefined && old !== null) throw unsupported(`${place}.function_call`, 'must be in tool_calls')
  if (calls === undefined || calls === null) return []
  return listOf(`${place}.tool_calls`, calls, PARTS_MAX).map((item, index) => {
    const at = `${place}.tool_calls[${index}]`
    const call = objectOf(at, item)
    if (call.type !== undefined && call.type !== 'function')
      throw unsupported(`${at}.type`, `must be function: got ${describeValue(call.type)}`)
    return callOf(at, call.id, objectOf(`${at}.function`, call.function))
  })
}

function checkKeys(place: string, message: Json, known: readonly string[]): void {
  const other = Object.keys(message).find((key) => message[key] !== null && !known.includes(key))
  if (other !== undefined)
    throw invalid(
      `${place}.${other.slice(0, 64)}`,
      'must be a field of such a message: it is not',
      'unknown_parameter',
    )
}
