/**
 * Prompts of a rollout's turns. Each begins with the previous one, so they are views of one growing array.
 */

/** Stores each token of a growing conversation only a few times, for any number of prompts. */
export class PromptStore {
  #tokens = new Uint32Array(0)
  #numFilled = 0

  /**
   * Starts anew with a copy of `ids`, which may be a view of a larger array. Earlier prompts are unchanged.
   */
  start(ids: Uint32Array): Uint32Array {
    this.#tokens = Uint32Array.from(ids)
    this.#numFilled = ids.length
    return this.#tokens
  }

  /** Returns true if `prompt` is the last prompt, which `extend` continues. */
  isAtEnd(prompt: Uint32Array): boolean {
    return prompt.buffer === this.#tokens.buffer && prompt.length === this.#numFilled
  }

  /** Appends `runs` to the last prompt and returns a view of it. Costs the tokens of `runs`. */
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
