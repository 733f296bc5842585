/** A model that is replaced in two phases while it is used. */

import { FulmarError } from '../core/index.js'

/** A model with the number of its users: it is closed after it was dropped and its last user has left. */
class Held<Model> {
  readonly model: Model
  /** Version that it was staged as; `undefined` of the first model. */
  readonly version: number | undefined
  readonly #close: (model: Model) => void
  #numUsers = 0
  #isDropped = false

  constructor(model: Model, version: number | undefined, close: (model: Model) => void) {
    this.model = model
    this.version = version
    this.#close = close
  }

  async use<R>(body: (model: Model) => Promise<R>): Promise<R> {
    this.#numUsers += 1
    try {
      return await body(this.model)
    } finally {
      this.#numUsers -= 1
      this.#closeIfUnused()
    }
  }

  drop(): void {
    if (this.#isDropped) return
    this.#isDropped = true
    this.#closeIfUnused()
  }

  #closeIfUnused(): void {
    if (this.#isDropped && this.#numUsers === 0) this.#close(this.model)
  }
}

/**
 * A model with its successor and its predecessor, in the phases of a {@link WeightReceiver}. Users of a model keep
 * it until they are done.
 */
export class Replaceable<Model extends object> {
  readonly #close: (model: Model) => void
  #staged: Held<Model> | undefined
  #served: Held<Model> | undefined
  #previous: Held<Model> | undefined
  /** Counts calls of `stage` and `rollback`: a load that ends after a later one is discarded. */
  #numChanges = 0

  /** `close` frees a model; it is called once for each that was replaced or discarded, after its last use. */
  constructor(close: (model: Model) => void, first?: Model) {
    this.#close = close
    if (first !== undefined) this.#served = new Held<Model>(first, undefined, close)
  }

  /** The model in use; `undefined` before the first commit. */
  get served(): Model | undefined {
    return this.#served?.model
  }

  /** Runs `body` with the model in use. @throws {FulmarError} `CLOSED` before the first commit. */
  async use<R>(body: (model: Model) => Promise<R>): Promise<R> {
    if (this.#served === undefined) throw new FulmarError('CLOSED', 'a model must be loaded: there is none')
    return await this.#served.use(body)
  }

  /**
   * Loads the next model.
   * @throws {FulmarError} Errors of `load`, which leave an earlier staged model; `ABORTED` if `stage` or `rollback` was
   * called during the load.
   */
  async stage(version: number, load: () => Model | Promise<Model>): Promise<void> {
    this.#numChanges += 1
    const change = this.#numChanges
    const model: Model = await load()
    const held = new Held(model, version, this.#close)
    if (change !== this.#numChanges) {
      held.drop()
      throw new FulmarError(
        'ABORTED',
        'weights must be loaded before the next are staged: they were discarded',
      )
    }
    this.#staged?.drop()
    this.#staged = held
  }

  /**
   * Uses the staged model from now on, and keeps the one before. Does nothing if that is done already.
   * @throws {FulmarError} `CLOSED` if nothing of this version is staged.
   */
  commit(version: number): void {
    if (this.#staged === undefined && this.#served?.version === version) return
    if (this.#staged?.version !== version) {
      const got = this.#staged === undefined ? 'none' : `version ${this.#staged.version}`
      throw new FulmarError('CLOSED', `weights of version ${version} must be staged: got ${got}`)
    }
    this.settle()
    this.#previous = this.#served
    this.#served = this.#staged
    this.#staged = undefined
  }

  /** Discards the staged model, and uses the previous one again if it was not settled. */
  rollback(): void {
    this.#numChanges += 1
    this.#staged?.drop()
    this.#staged = undefined
    if (this.#previous === undefined) return
    this.#served?.drop()
    this.#served = this.#previous
    this.#previous = undefined
  }

  /** Drops the previous model. */
  settle(): void {
    this.#previous?.drop()
    this.#previous = undefined
  }
}
