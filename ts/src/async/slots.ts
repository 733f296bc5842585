/** A bound on how much runs at once. */

/** `count` places; whoever finds none waits in line. */
export class Slots {
  #numFree: number
  readonly #waiting: (() => void)[] = []

  constructor(count: number) {
    this.#numFree = count
  }

  /** Runs `body` as soon as there is a place, in the order of the calls: at once where there is one. */
  run<T>(body: () => Promise<T>): Promise<T> {
    if (this.#numFree > 0) {
      this.#numFree -= 1
      return this.#held(body)
    }
    return new Promise<void>((resolve) => this.#waiting.push(resolve)).then(() => this.#held(body))
  }

  async #held<T>(body: () => Promise<T>): Promise<T> {
    try {
      return await body()
    } finally {
      this.#give()
    }
  }

  #give(): void {
    const next = this.#waiting.shift()
    if (next) next()
    else this.#numFree += 1
  }
}
