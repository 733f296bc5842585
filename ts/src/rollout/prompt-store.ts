/** The prompts of a rollout's turns. Each begins with the last one, so they are views of one array that grows. */

/** Holds each token of a conversation that only grows at most a few times, however many prompts were taken of it. */
export class PromptStore {
  #tokens = new Uint32Array(0)
  #numFilled = 0

  /** Begins anew with a copy of `ids`, as they may be a view of more. Prompts that were given before stay as they are. */
  start(ids: Uint32Array): Uint32Array {
    this.#tokens = Uint32Array.from(ids)
    this.#numFilled = ids.length
    return this.#tokens
  }

  /** A view of the last prompt with `runs` behind it. Costs the tokens of `runs`. */
  extend(...runs: readonly Uint32Array[]): Uint32Array {
    const numTokens = runs.reduce((sum, { length }) => sum + length, this.#numFilled)
    if (numTokens > this.#tokens.length) {
      const tokens = new Uint32Array(2 * numTokens)
      tokens.set(this.#tokens.subarray(0, this.#numFilled))
      this.#tokens = tokens
    }
    for (const run of runs) {
      this.#tokens.set(run, this.#numFilled)
      this.#numFilled += run.length
    }
    return this.#tokens.subarray(0, numTokens)
  }
}
