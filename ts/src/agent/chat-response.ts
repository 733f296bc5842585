/** Answers of `POST /v1/chat/completions`: whole, or as chunks of a stream. */

import type { CompletionPart } from '../policy/index.js'
import type { AnswerPart } from './agent-turns.js'
import type { Answer } from './answer.js'
import type { ChatRequest } from './chat-request.js'
import type { Exchange } from './exchange.js'
import { type TokenText, tokenEntries } from './token-text.js'

/** Fields that all objects of one answer share. */
export interface ChatFrame {
  readonly id: string
  readonly created: number
  readonly model: string
}

/** Returns a whole answer. */
export function chatCompletion(
  frame: ChatFrame,
  request: ChatRequest,
  { prompt }: Pick<Exchange, 'prompt'>,
  answers: readonly Answer[],
  textOf: TokenText,
): object {
  return {
    ...{ id: frame.id, object: 'chat.completion', created: frame.created, model: frame.model },
    choices: answers.map((answer) => ({
      index: answer.index,
      message: messageOf(answer),
      logprobs: request.topLogProbs === null ? null : { content: logProbsOf(answer, textOf), refusal: null },
      finish_reason: answer.finishReason,
    })),
    usage: usageOf(prompt.ids.length, answers),
  }
}

/** Chunks of one stream, in order: text as it comes, then what was held back, calls, reasons and counts. */
export class ChatChunks {
  readonly #frame: ChatFrame
  readonly #request: ChatRequest
  readonly #textOf: TokenText
  readonly #sent = new Map<number, { content: string; reasoning: string; numTokens: number }>()

  constructor(frame: ChatFrame, request: ChatRequest, textOf: TokenText) {
    this.#frame = frame
    this.#request = request
    this.#textOf = textOf
  }

  /** Returns the chunks of new text. */
  part({ index, content, reasoning, tokens }: AnswerPart): object[] {
    if (content === '' && reasoning === '') return []
    const [opening, sent] = this.#open(index)
    sent.content += content
    sent.reasoning += reasoning
    return [...opening, this.#text(index, reasoning, content, this.#newTokens(sent, tokens))]
  }

  /** Returns the last chunks. */
  end(answers: readonly Answer[], numPromptTokens: number): object[] {
    const chunks = answers.flatMap((answer) => this.#rest(answer))
    if (!this.#request.includesUsage) return chunks
    return [...chunks, { ...this.#chunk([]), usage: usageOf(numPromptTokens, answers) }]
  }

  #rest(answer: Answer): object[] {
    const { index, calls, completion, finishReason } = answer
    const [opening, sent] = this.#open(index)
    const content = answer.content.slice(sent.content.length)
    const reasoning = (answer.reasoning ?? '').slice(sent.reasoning.length)
    const tokens = this.#newTokens(sent, completion, answer)
    const hasText = content !== '' || reasoning !== '' || tokens !== null
    return [
      ...opening,
      ...(hasText ? [this.#text(index, reasoning, content, tokens)] : []),
      ...calls.map((call, at) => this.#choice(index, { tool_calls: [{ index: at, ...call }] })),
      this.#choice(index, {}, finishReason),
    ]
  }

  /** Returns the chunk that opens an answer, once. */
  #open(index: number): [object[], { content: string; reasoning: string; numTokens: number }] {
    const known = this.#sent.get(index)
    if (known) return [[], known]
    const sent = { content: '', reasoning: '', numTokens: 0 }
    this.#sent.set(index, sent)
    return [[this.#choice(index, { role: 'assistant', content: '' })], sent]
  }

  #newTokens(
    sent: { numTokens: number },
    tokens: CompletionPart,
    answer?: Pick<Answer, 'top'>,
  ): object[] | null {
    if (this.#request.topLogProbs === null || sent.numTokens >= tokens.ids.length) return null
    const from = sent.numTokens
    sent.numTokens = tokens.ids.length
    return tokenEntries(tokens, answer?.top ?? null, this.#textOf).slice(from)
  }

  #text(index: number, reasoning: string, content: string, tokens: object[] | null): object {
    const delta = {
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(content !== '' && { content }),
    }
    return this.#choice(index, delta, null, tokens && { content: tokens, refusal: null })
  }

  #choice(
    index: number,
    delta: object,
    reason: string | null = null,
    logprobs: object | null = null,
  ): object {
    return this.#chunk([{ index, delta, logprobs, finish_reason: reason }])
  }

  #chunk(choices: readonly object[]): object {
    const { id, created, model } = this.#frame
    const usage = this.#request.includesUsage ? { usage: null } : {}
    return { id, object: 'chat.completion.chunk', created, model, choices, ...usage }
  }
}

/** Returns the counts of tokens. */
function usageOf(numPromptTokens: number, answers: readonly Answer[]) {
  const sampled = answers.reduce((sum, { completion }) => sum + completion.ids.length, 0)
  return {
    prompt_tokens: numPromptTokens,
    completion_tokens: sampled,
    total_tokens: numPromptTokens + sampled,
  }
}

function messageOf({ content, reasoning, calls }: Answer): object {
  return {
    role: 'assistant',
    content: content === '' && calls.length > 0 ? null : content,
    refusal: null,
    ...(reasoning !== null && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

function logProbsOf({ completion, top }: Answer, textOf: TokenText): object[] {
  return tokenEntries(completion, top, textOf)
}
