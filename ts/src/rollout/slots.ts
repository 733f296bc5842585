/** A bound on how much runs at once. */

/** `count` places; whoever finds none waits in line. */
export class Slots {
  #numFree: number
  readonly #waiting: (() => void)[] = []

  constructor(count: number) {
    this.#numFree = count
  }

  /** Runs `body` as soon as there is a place, in the order of the calls. */
  async run<T>(body: () => Promise<T>): Promise<T> {
    await this.#take()
    try {
      return await body()
    } finally {
      this.#give()
    }
  }

  #take(): Promise<void> {
    if (this.#numFree > 0) {
      this.#numFree -= 1
      return Promise.resolve()
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #give(): void {
    const next = this.#waiting.shift()
    if (next) next()
    else this.#numFree += 1
  }
}
