/** The answer to one HTTP request: whole, as events, or a refusal; and whether the client got it. */

import type { ServerResponse } from 'node:http'
import type { Exchange } from './exchange.js'
import type { ProviderError } from './provider-error.js'

/** An answer as a route uses it. */
export type ClientAnswer = Pick<RequestAnswer, 'whole' | 'events' | 'endEvents' | 'watch' | 'hasBegun'>

/** Writes one answer. */
export class RequestAnswer {
  readonly #response: ServerResponse
  #hasBegun = false

  constructor(response: ServerResponse) {
    this.#response = response
    // A client that goes away is seen by `close`.
    response.on('error', () => {})
  }

  /** True once a part of a stream was written: an error can then only be an event. */
  get hasBegun(): boolean {
    return this.#hasBegun
  }

  /** Tells an exchange when the client has its answer, or has gone away. */
  watch(exchange: Exchange): void {
    const response = this.#response
    exchange.watched()
    if (response.destroyed) {
      exchange.dropped()
      return
    }
    response.on('finish', () => exchange.delivered())
    response.on('close', () => {
      if (!response.writableFinished) exchange.dropped()
    })
  }

  /** Writes a whole answer. */
  whole(body: object): void {
    this.#json(200, body, {})
  }

  /** Writes a refusal; nothing if the answer has begun, which is then cut off. */
  refuse(error: ProviderError): void {
    if (this.#hasBegun) {
      this.#response.destroy()
      return
    }
    // Official clients retry by status, unless this header tells them otherwise.
    this.#json(error.status, error.toJSON(), { 'x-should-retry': String(error.canRetry) })
  }

  /** Writes events. */
  events(next: readonly string[]): void {
    if (next.length === 0 || this.#response.destroyed) return
    if (!this.#hasBegun) {
      this.#hasBegun = true
      this.#response.writeHead(200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache',
      })
    }
    this.#response.write(next.join(''))
  }

  /** Ends a stream. */
  endEvents(): void {
    this.#response.end()
  }

  #json(status: number, body: object, headers: Readonly<Record<string, string>>): void {
    if (this.#response.destroyed) return
    const text = Buffer.from(JSON.stringify(body))
    const head = { 'content-type': 'application/json', 'content-length': text.length, ...headers }
    this.#response.writeHead(status, head).end(text)
  }
}
