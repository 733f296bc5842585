/** Transforms of buffers, one after the other. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { TensorDict } from '../tensor/tensor-dict.js'

/** Transform of items on write, or of batches on read. */
export interface BufferTransform {
  /** Transforms a drawn batch; returning nothing keeps it. Another value than a dictionary is `USER_CODE`. */
  forward?(batch: TensorDict): TensorDict
  /** Transforms items before they are written; `undefined` writes none. */
  inverse?(items: TensorDict): TensorDict | undefined
  /** Returns items that were held back, at the end of writing; `undefined` for none. */
  flush?(): TensorDict | undefined
  /** Forgets what was held back, as the buffer is emptied. */
  clear?(): void
}

/** The transforms of one buffer, which batches pass from the first to the last and written items the other way. */
export class TransformChain {
  readonly #transforms: BufferTransform[]

  constructor(transforms: Iterable<BufferTransform>) {
    this.#transforms = [...transforms]
  }

  /** Number of transforms. */
  get length(): number {
    return this.#transforms.length
  }

  /** Applies all transforms to a drawn batch. */
  forward(batch: TensorDict): TensorDict {
    return this.#transforms.reduce((items, transform, place) => {
      return checkedItems(transform.forward?.(items) ?? items, 'forward', place)
    }, batch)
  }

  /** Applies the first `count` transforms to written items; all of them by default. */
  inverted(items: TensorDict, count = this.#transforms.length): TensorDict | undefined {
    let written: TensorDict | undefined = items
    for (let place = count - 1; place >= 0; place--) {
      const transform = this.#transforms[place]
      if (!written || !transform?.inverse) continue
      written = transform.inverse(written)
      if (written !== undefined) checkedItems(written, 'inverse', place)
    }
    return written
  }

  /** Yields what each transform held back, the last one first, after the transforms before it. */
  *flushed(): Generator<TensorDict, void, undefined> {
    for (let place = this.#transforms.length - 1; place >= 0; place--) {
      const held = this.#transforms[place]?.flush?.()
      const written = held && this.inverted(held, place)
      if (written) yield written
    }
  }

  /**
   * Adds a transform at a place; with `invert` its `forward` runs when items are written.
   * @throws {FulmarError} `OUT_OF_RANGE` past the last; `MALFORMED` for what is no transform.
   */
  insert(
    place: number,
    transform: BufferTransform | ((batch: TensorDict) => TensorDict),
    options: { invert?: boolean },
  ): void {
    checkKnownKeys('options', options, ['invert'])
    if (!Number.isInteger(place) || place < 0 || place > this.length)
      throw new FulmarError('OUT_OF_RANGE', `place must be an integer in 0..${this.length}: got ${place}`)
    if (
      (typeof transform !== 'object' && typeof transform !== 'function') ||
      transform === null ||
      Array.isArray(transform)
    ) {
      const detail = `transform must be a function or an object with forward: got ${describeValue(transform)}`
      throw new FulmarError('MALFORMED', detail)
    }
    const given: BufferTransform = typeof transform === 'function' ? { forward: transform } : transform
    const inverse = given.forward?.bind(given)
    this.#transforms.splice(place, 0, options.invert && inverse ? { inverse } : given)
  }

  /** Forgets what transforms held back. */
  clear(): void {
    for (const transform of this.#transforms) transform.clear?.()
  }
}

/** Checks the result of a transform. @throws {FulmarError} `USER_CODE` if it is not a dictionary. */
function checkedItems(given: TensorDict, method: string, place: number): TensorDict {
  if (given instanceof TensorDict) return given
  const detail = `what ${method} of transform ${place} gives must be a TensorDict: got ${describeValue(given)}`
  throw new FulmarError('USER_CODE', detail)
}
