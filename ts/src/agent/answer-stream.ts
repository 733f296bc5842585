/**
 * Text of an answer while it is sampled. The end of the text is held back: it may be the beginning of a marker, of a
 * stop text, or blanks that the parser trims. So a part that was sent is the beginning of the final text.
 */

import type { AnswerText } from './answer.js'

/** No marker of a family is longer. */
const MARKER_CHARS_MAX = 32

/** New text since the last part. */
export interface TextPart {
  readonly reasoning: string
  readonly content: string
}

/** Cuts growing texts into parts. */
export class AnswerStream {
  readonly #numHeld: number
  #reasoning = ''
  #content = ''

  readonly #mayCall: boolean

  /** `mayCall`: text that begins as JSON is held back whole, as some families write calls so. */
  constructor({ stop, mayCall }: { readonly stop: readonly string[]; readonly mayCall: boolean }) {
    this.#numHeld = Math.max(MARKER_CHARS_MAX, ...stop.map(({ length }) => length))
    this.#mayCall = mayCall
  }

  /** Text that was sent as content. */
  get content(): string {
    return this.#content
  }

  /** Text that was sent as reasoning. */
  get reasoning(): string {
    return this.#reasoning
  }

  /** Returns what can be sent of an answer that is not complete. */
  part({ reasoning, content, calls }: AnswerText): TextPart {
    // Reasoning is closed once content or a call follows it.
    const isClosed = content !== '' || calls.length > 0
    const sure = isClosed ? reasoning : held(reasoning, this.#numHeld)
    const isCall = this.#mayCall && content.startsWith('{')
    return this.#send(sure, isCall ? '' : held(content, this.#numHeld))
  }

  /** Returns the rest of a complete answer. */
  rest({ reasoning, content }: Pick<AnswerText, 'reasoning' | 'content'>): TextPart {
    return this.#send(reasoning, content)
  }

  #send(reasoning: string, content: string): TextPart {
    const part = { reasoning: added(this.#reasoning, reasoning), content: added(this.#content, content) }
    this.#reasoning += part.reasoning
    this.#content += part.content
    return part
  }
}

/** Returns the text without its last `count` units, without blanks at its end, and without half a surrogate pair. */
function held(text: string, count: number): string {
  const kept = text.slice(0, Math.max(0, text.length - count)).trimEnd()
  return /[\uD800-\uDBFF]$/.test(kept) ? kept.slice(0, -1) : kept
}

/** Returns what `now` adds; nothing if it is not longer, or reads otherwise than what was sent. */
function added(sent: string, now: string): string {
  return now.length > sent.length && now.startsWith(sent) ? now.slice(sent.length) : ''
}
