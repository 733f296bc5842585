/** One open rollout, as the program that runs the agent sees it. */

import type { AgentRecord, AgentTurns } from './agent-turns.js'

/** Reward that an agent posted: a number, or the reason of a missing one. */
export type PostedReward = number | { readonly unscored: string }

/**
 * A rollout behind an `InterceptionServer`: an address and a key for one agent, and the turns that it took. See
 * `InterceptionServer.open`.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer } from 'fulmar'
 * import { InterceptionServer } from 'fulmar/agent'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * await using server = await InterceptionServer.listen()
 * const rollout = server.open({ policy: new ScriptedPolicy({ reply: () => [1] }), renderer })
 * assert.equal(rollout.baseURL, `${server.url}/v1`)
 * const headers = { authorization: `Bearer ${rollout.apiKey}` }
 * await fetch(`${rollout.baseURL}/fulmar/reward`, { method: 'POST', headers, body: '{"reward":0.5}' })
 * assert.equal(rollout.reward, 0.5)
 * const { turns, ledger } = await rollout.end()
 * assert.equal(turns.length, 0)
 * ledger[Symbol.dispose]()
 * ```
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
