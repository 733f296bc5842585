/** The prompts of a rollout's turns. Each begins with the last one, so they are views of one array that grows. */

/** Holds each token of a conversation that only grows at most a few times, however many prompts were taken of it. */
export class PromptStore {
  #tokens = new Uint32Array(0)
  #numFilled = 0

  /** A view that equals `ids`. With `extendsLast`, `ids` begins with what was placed last, and the rest alone is copied. */
  place(ids: Uint32Array, { extendsLast }: { readonly extendsLast: boolean }): Uint32Array {
    const numKept = extendsLast ? this.#numFilled : 0
    if (numKept === 0 || ids.length > this.#tokens.length) {
      const tokens = new Uint32Array(numKept === 0 ? ids.length : 2 * ids.length)
      tokens.set(this.#tokens.subarray(0, numKept))
      this.#tokens = tokens
    }
    this.#tokens.set(ids.subarray(numKept), numKept)
    this.#numFilled = ids.length
    return this.#tokens.subarray(0, ids.length)
  }
}
