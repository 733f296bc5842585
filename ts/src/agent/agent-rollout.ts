/** One open rollout, as the program that runs the agent sees it. */

import type { AgentRecord, AgentTurns } from './agent-turns.js'

/** Reward that an agent posted: a number, or why there is none. */
export type PostedReward = number | { readonly unscored: string }

/**
 * A rollout behind an `InterceptionServer`: an address and a key for one agent, and what the agent did. See
 * `InterceptionServer.open`.
 */
export class AgentRollout {
  /** Address for `OPENAI_BASE_URL`, such as `http://127.0.0.1:41234/v1`. */
  readonly baseURL: string
  /** Key for `OPENAI_API_KEY`, of this rollout alone. */
  readonly apiKey: string
  /** @internal */
  readonly turns: AgentTurns
  /** Reward that the agent posted last; `null` if it posted none. */
  reward: PostedReward | null = null
  readonly #onEnd: () => void
  #record: Promise<AgentRecord> | undefined

  /** @internal */
  constructor(baseURL: string, apiKey: string, turns: AgentTurns, onEnd: () => void) {
    this.baseURL = baseURL
    this.apiKey = apiKey
    this.turns = turns
    this.#onEnd = onEnd
  }

  /**
   * Ends the rollout: stops its requests, revokes its key, and returns its turns with their ledger, which the caller
   * disposes. Later calls return the same record.
   */
  async end(): Promise<AgentRecord> {
    this.#onEnd()
    this.#record ??= this.turns.end()
    return await this.#record
  }
}
