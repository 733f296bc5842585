/** The dialect of `POST /v1/responses`. */

import type { AnswerPart } from './agent-turns.js'
import type { Answer } from './answer.js'
import { type AnswerContext, type Dialect, type EventWriter, eventOf } from './dialect.js'
import type { ProviderError } from './provider-error.js'
import { type ResponsesRequest, readResponsesRequest } from './responses-request.js'
import { tokenEntries } from './token-text.js'

type Context = AnswerContext<ResponsesRequest>

/** OpenAI's responses, without state on the server. */
export const responsesDialect: Dialect<ResponsesRequest> = {
  path: '/responses',
  read: readResponsesRequest,
  whole: (context, { prompt }, answers) => responseOf(context, answers, prompt.ids.length),
  events: (context) => new ResponseEvents(context),
}

/** Returns a whole response. */
function responseOf(context: Context, answers: readonly Answer[], numPromptTokens: number): object {
  const [answer] = answers
  const isCut = answer?.finishReason === 'length'
  const numSampled = answer?.completion.ids.length ?? 0
  return {
    ...frameOf(context),
    status: isCut ? 'incomplete' : 'completed',
    incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
    output: answer === undefined ? [] : itemsOf(context, answer),
    usage: {
      input_tokens: numPromptTokens,
      output_tokens: numSampled,
      total_tokens: numPromptTokens + numSampled,
    },
  }
}

/** Returns the fields that do not depend on the answer. */
function frameOf({ id, created, request: { body, model } }: Context) {
  const { instructions = null, tools = [], tool_choice = 'auto', temperature = null, top_p = null } = body
  const { max_output_tokens = null, metadata = {}, user = null } = body
  return {
    ...{ id: `resp_${id}`, object: 'response', created_at: created, model, error: null },
    ...{ instructions, tools, tool_choice, temperature, top_p, max_output_tokens, metadata, user },
    ...{ parallel_tool_calls: true, previous_response_id: null, store: false, truncation: 'disabled' },
    ...{ reasoning: { effort: null, summary: null }, text: { format: { type: 'text' } } },
  }
}

function reasoningItem(id: string, text: string, status: string): object {
  const content = status === 'completed' ? [{ type: 'reasoning_text', text }] : []
  return { id: `rs_${id}`, type: 'reasoning', summary: [], content, status }
}

function textPart(text: string, logprobs: readonly object[] = []): object {
  return { type: 'output_text', text, annotations: [], logprobs }
}

function messageItem(id: string, content: readonly object[], status: string): object {
  return { id: `msg_${id}`, type: 'message', role: 'assistant', content, status }
}

function callItem(id: string, index: number, call: Answer['calls'][number], status: string): object {
  const { name, arguments: text } = call.function
  const args = status === 'completed' ? text : ''
  return { id: `fc_${id}_${index}`, type: 'function_call', call_id: call.id, name, arguments: args, status }
}

/** Returns the items of an answer, in the order of a stream. */
function itemsOf({ id, request, textOf }: Context, answer: Answer): object[] {
  const { content, reasoning, calls, completion, top, finishReason } = answer
  const status = finishReason === 'length' ? 'incomplete' : 'completed'
  const logprobs = request.topLogProbs === null ? [] : tokenEntries(completion, top, textOf)
  return [
    ...(reasoning === null ? [] : [reasoningItem(id, reasoning, 'completed')]),
    ...(content === '' && calls.length > 0 ? [] : [messageItem(id, [textPart(content, logprobs)], status)]),
    ...calls.map((call, index) => callItem(id, index, call, 'completed')),
  ]
}

/** Events of one stream: items open, grow and close one after another. */
class ResponseEvents implements EventWriter {
  readonly #context: Context
  #number = 0
  #isOpen = false
  #reasoning: string | undefined
  #content: string | undefined

  constructor(context: Context) {
    this.#context = context
  }

  part({ reasoning, content }: AnswerPart): string[] {
    if (reasoning === '' && content === '') return []
    return [...this.#begin(), ...this.#grow(reasoning, content)]
  }

  end(answers: readonly Answer[], { prompt }: { readonly prompt: { readonly ids: Uint32Array } }): string[] {
    const response = responseOf(this.#context, answers, prompt.ids.length)
    const [answer] = answers
    if (answer === undefined) return []
    const { content, reasoning, calls, finishReason } = answer
    const events = this.#begin()
    const moreReasoning = (reasoning ?? '').slice(this.#reasoning?.length ?? 0)
    events.push(...this.#grow(moreReasoning, content.slice(this.#content?.length ?? 0)))
    const hasMessage = content !== '' || calls.length === 0
    if (hasMessage && this.#content === undefined) events.push(...this.#openMessage())
    if (this.#content === undefined) events.push(...this.#closeReasoning())
    if (this.#content !== undefined) events.push(...this.#closeMessage(answer))
    events.push(...calls.flatMap((call, index) => this.#call(call, index)))
    const name = finishReason === 'length' ? 'response.incomplete' : 'response.completed'
    return [...events, this.#event(name, { response })]
  }

  fail(error: ProviderError): string[] {
    const { code, message } = error
    const response = { ...frameOf(this.#context), status: 'failed', output: [], error: { code, message } }
    return [this.#event('response.failed', { response })]
  }

  #begin(): string[] {
    if (this.#isOpen) return []
    this.#isOpen = true
    const response = { ...frameOf(this.#context), status: 'in_progress', output: [], usage: null }
    return [this.#event('response.created', { response }), this.#event('response.in_progress', { response })]
  }

  #grow(reasoning: string, content: string): string[] {
    const events: string[] = []
    if (reasoning !== '' && this.#content === undefined) {
      if (this.#reasoning === undefined) {
        this.#reasoning = ''
        const item = reasoningItem(this.#context.id, '', 'in_progress')
        const part = { type: 'reasoning_text', text: '' }
        events.push(
          this.#event('response.output_item.added', { output_index: 0, item }),
          this.#event('response.content_part.added', { ...this.#reasoningPlace(), part }),
        )
      }
      this.#reasoning += reasoning
      events.push(
        this.#event('response.reasoning_text.delta', { ...this.#reasoningPlace(), delta: reasoning }),
      )
    }
    if (content === '') return events
    if (this.#content === undefined) events.push(...this.#openMessage())
    this.#content += content
    return [
      ...events,
      this.#event('response.output_text.delta', { ...this.#messagePlace(), delta: content, logprobs: [] }),
    ]
  }

  #closeReasoning(): string[] {
    if (this.#reasoning === undefined) return []
    const text = this.#reasoning
    const item = reasoningItem(this.#context.id, text, 'completed')
    return [
      this.#event('response.reasoning_text.done', { ...this.#reasoningPlace(), text }),
      this.#event('response.content_part.done', {
        ...this.#reasoningPlace(),
        part: { type: 'reasoning_text', text },
      }),
      this.#event('response.output_item.done', { output_index: 0, item }),
    ]
  }

  #openMessage(): string[] {
    const events = this.#closeReasoning()
    this.#content = ''
    const item = messageItem(this.#context.id, [], 'in_progress')
    const { item_id: _, content_index: __, ...place } = this.#messagePlace()
    return [
      ...events,
      this.#event('response.output_item.added', { ...place, item }),
      this.#event('response.content_part.added', { ...this.#messagePlace(), part: textPart('') }),
    ]
  }

  #closeMessage(answer: Answer): string[] {
    const { request, textOf, id } = this.#context
    const logprobs = request.topLogProbs === null ? [] : tokenEntries(answer.completion, answer.top, textOf)
    const text = answer.content
    const part = textPart(text, logprobs)
    const place = this.#messagePlace()
    const item = messageItem(id, [part], answer.finishReason === 'length' ? 'incomplete' : 'completed')
    return [
      this.#event('response.output_text.done', { ...place, text, logprobs }),
      this.#event('response.content_part.done', { ...place, part }),
      this.#event('response.output_item.done', { output_index: place.output_index, item }),
    ]
  }

  #call(call: Answer['calls'][number], index: number): string[] {
    const { id } = this.#context
    const before = Number(this.#reasoning !== undefined) + Number(this.#content !== undefined)
    const place = { output_index: before + index }
    const part = { ...place, item_id: `fc_${id}_${index}` }
    const text = call.function.arguments
    return [
      this.#event('response.output_item.added', { ...place, item: callItem(id, index, call, 'in_progress') }),
      this.#event('response.function_call_arguments.delta', { ...part, delta: text }),
      this.#event('response.function_call_arguments.done', {
        ...part,
        name: call.function.name,
        arguments: text,
      }),
      this.#event('response.output_item.done', { ...place, item: callItem(id, index, call, 'completed') }),
    ]
  }

  #reasoningPlace() {
    return { item_id: `rs_${this.#context.id}`, output_index: 0, content_index: 0 }
  }

  #messagePlace() {
    const index = Number(this.#reasoning !== undefined)
    return { item_id: `msg_${this.#context.id}`, output_index: index, content_index: 0 }
  }

  #event(type: string, fields: object): string {
    return eventOf({ type, sequence_number: this.#number++, ...fields }, type)
  }
}
