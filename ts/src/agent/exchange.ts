/** One request and its answers, until the client has them or has gone away. */

import type { Answer } from './answer.js'
import type { CallStop } from './call-stop.js'
import type { PlacedPrompt } from './conversation.js'

/** `open` until the client has the answers (`delivered`), has gone away (`dropped`), or the policy failed (`failed`). */
export type ExchangeState = 'open' | 'delivered' | 'dropped' | 'failed'

/** Parts of an {@link Exchange}. */
export interface ExchangeParts {
  /** Turn of the first answer. */
  readonly id: number
  readonly prompt: PlacedPrompt
  readonly answers: Promise<readonly Answer[]>
  /** Stops the policy. */
  readonly stop: CallStop
  readonly streams: boolean
}

/** One request, which several connections may wait for: a client that retries joins the first. */
export class Exchange {
  readonly id: number
  readonly prompt: PlacedPrompt
  readonly answers: Promise<readonly Answer[]>
  /** Called whenever the state changes. */
  onSettled: (state: ExchangeState) => void = () => {}
  readonly #stop: CallStop
  readonly #streams: boolean
  #state: ExchangeState = 'open'
  #numWaiting = 0

  constructor({ id, prompt, answers, stop, streams }: ExchangeParts) {
    this.id = id
    this.prompt = prompt
    this.answers = answers
    this.#stop = stop
    this.#streams = streams
    answers.catch(() => this.#set('failed'))
  }

  get state(): ExchangeState {
    return this.#state
  }

  /** True if the client went away without its answers. */
  get wasDropped(): boolean {
    return this.#state === 'dropped'
  }

  /** True if no other connection may wait for the answers: its stream was left, and has no end. */
  get isStopped(): boolean {
    return this.#stop.isAborted
  }

  /** One more connection waits for the answers. */
  watched(): void {
    this.#numWaiting += 1
  }

  /** The client has the answers. */
  delivered(): void {
    this.#set('delivered')
  }

  /**
   * A connection that waited went away. If it was the last, a stream stops, as its client has left it; other answers
   * are finished, as clients send such a request again when it takes them too long.
   */
  dropped(): void {
    this.#numWaiting -= 1
    if (this.#state === 'delivered' || this.#numWaiting > 0) return
    if (this.#streams) this.#stop.abort()
    this.#set('dropped')
  }

  #set(state: ExchangeState): void {
    if (this.#state === 'delivered' || this.#state === state) return
    this.#state = state
    this.onSettled(state)
  }
}
