/** The interface of dialects: how the bodies and answers of one route look. */

import type { AgentRequest } from './agent-request.js'
import type { AnswerPart } from './agent-turns.js'
import type { Answer } from './answer.js'
import type { Json } from './body-field.js'
import type { Exchange } from './exchange.js'
import type { MadeIds } from './history.js'
import type { ProviderError } from './provider-error.js'
import type { TokenText } from './token-text.js'

/** Context of the answers to one request. */
export interface AnswerContext<Request extends AgentRequest> {
  readonly request: Request
  /** Number of the request, for ids. */
  readonly id: string
  /** Seconds since 1970. */
  readonly created: number
  readonly textOf: TokenText
}

/** Server-sent events of one answer. */
export interface EventWriter {
  /** Events of new text. */
  part(part: AnswerPart): readonly string[]
  /** Last events. */
  end(answers: readonly Answer[], exchange: Pick<Exchange, 'prompt'>): readonly string[]
  /** Last events of a stream that fails. */
  fail(error: ProviderError): readonly string[]
}

/** One route that agents post to. */
export interface Dialect<Request extends AgentRequest = AgentRequest> {
  /** Path below `/v1`. */
  readonly path: string
  /** Reads a body. @throws {ProviderError} That names the field. */
  read(body: Json, isMade: MadeIds): Request
  /** Returns a whole answer. */
  whole(
    context: AnswerContext<Request>,
    exchange: Pick<Exchange, 'prompt'>,
    answers: readonly Answer[],
  ): object
  /** Makes the events of a stream. */
  events(context: AnswerContext<Request>): EventWriter
}

/** Returns an event with data, and a name if it has one. */
export function eventOf(data: object | string, name?: string): string {
  const text = typeof data === 'string' ? data : JSON.stringify(data)
  return `${name === undefined ? '' : `event: ${name}\n`}data: ${text}\n\n`
}
