/** Containers of sequences, ragged or padded with known lengths: the class that {@link Tokens} and its siblings extend. */

import { checkGiven, checkKnownKeys, FulmarError } from '../../core/index.js'
import { type Dtype, Ragged, Tensor, TensorDict } from '../../tensor/index.js'
import type { PaddingOptions } from '../../tokenizer/index.js'
import { toPadded, toRagged } from './apply-chat-template.js'
import { checkBatch, nestedLike, sizeOf } from './batch.js'
import type { Nested } from './nested.js'

/** One sequence `[L]`, ragged rows, or padded rows `[...batch, L]`. */
export type TokenField = Tensor | Ragged

/** Layout of the fields of {@link Tokens}, {@link LogProbs} and {@link Masks}. */
export interface SequencesOptions {
  /**
   * The batch: ragged rows are its elements, the last dimension changing fastest.
   * @default `[S]` of S ragged rows, `[]` of one sequence, all dimensions but the last of padded tensors
   */
  readonly batchSize?: readonly number[]
  /**
   * If true, the tensors hold padding.
   * @default false
   */
  readonly padded?: boolean
  /** Side of the padding; needed to remove it. */
  readonly side?: 'left' | 'right'
  /** The lengths of the rows of each padded field, flat; needed to take padding away, for they are never guessed. */
  readonly lengths?: Readonly<Record<string, Uint32Array>>
}

/** Specification of a container of sequences as a plain description. */
export interface SequenceSpec<C> {
  /** The batch; -1 is any length. */
  readonly shape: readonly number[]
  /** The fields that are there. */
  readonly keys: readonly string[]
  /** A container of this batch whose sequences have one element, zero; dimensions of any length have length 1. */
  zero(): C
  /** Returns true if `value` is such a container. */
  contains(value: unknown): boolean
}

/** Definition of a class of containers. */
export interface SequenceKind<D extends Dtype> {
  /** Dtype of each field. */
  readonly dtype: D
  /** Key of each possible field in dictionaries. */
  readonly keys: Readonly<Record<string, string>>
}

/** Constructor of a class of containers. */
type SequencesClass<C> = new (fields: Parts['fields'], options: SequencesOptions) => C

/** Fields of sequences of one batch. A class of containers adds its kind, a getter for each field, and `toPadded`. */
export abstract class Sequences<Name extends string, D extends Dtype> {
  /** The batch dimensions; `[]` for one sequence. */
  readonly batchSize: readonly number[]
  /** True if the fields are padded tensors. */
  readonly padded: boolean
  /** The given fields by name. @internal */
  protected readonly fields: Parts['fields']
  /** @internal */
  protected readonly kind: SequenceKind<D>
  readonly #options: SequencesOptions

  protected constructor(
    kind: SequenceKind<D>,
    fields: Readonly<Record<string, TokenField | undefined>>,
    options: SequencesOptions,
  ) {
    checkKnownKeys('fields', fields, Object.keys(kind.keys))
    checkKnownKeys('options', options, ['batchSize', 'padded', 'side', 'lengths'])
    const given = Object.entries(fields).filter(
      (entry): entry is [string, TokenField] => entry[1] !== undefined,
    )
    this.kind = kind
    this.fields = Object.freeze(Object.fromEntries(given))
    this.padded = options.padded ?? false
    const [first] = given
    const inferred = first === undefined ? [] : batchOf(first[0], first[1], this.padded)
    this.batchSize = Object.freeze([...(options.batchSize ?? inferred)])
    this.#options = { ...options, batchSize: this.batchSize }
    for (const [name, field] of given) this.#check(name, field)
  }

  /** Joins containers of one class into one batch. @internal */
  protected static stackOf<C extends Sequences<string, Dtype>>(
    containers: SequencesClass<C>,
    all: readonly C[],
  ): C {
    checkGiven('all', all)
    const [first] = all
    if (first === undefined) throw new FulmarError('EMPTY', 'containers must be at least 1: got 0')
    const names = Object.keys(first.fields).sort().join()
    for (const one of all) {
      checkBatch('each container', one.batchSize, first.batchSize)
      if (one.padded)
        throw new FulmarError('INCOMPATIBLE', 'containers must be ragged to be stacked: got a padded one')
      const got = Object.keys(one.fields).sort().join()
      if (got !== names)
        throw new FulmarError('INCOMPATIBLE', `containers must have the fields ${names} all: got ${got}`)
    }
    const fields = first.#each((name) => Ragged.fromRows(all.flatMap((one) => one.#rowsOf(name))))
    return new containers(fields, { batchSize: [all.length, ...first.batchSize] })
  }

  /** Describes the containers of one class. @internal */
  protected static specOf<C extends Sequences<string, Dtype>>(
    containers: SequencesClass<C>,
    { dtype, keys: known }: SequenceKind<Dtype>,
    options: { readonly shape?: readonly number[]; readonly keys?: readonly string[] },
  ): SequenceSpec<C> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = Object.keys(known) } = options
    const zero = () => {
      const parts = zeroParts(dtype, shape, keys)
      return new containers(parts.fields, parts.options)
    }
    const contains = (value: unknown) => value instanceof containers && value.#isOf(shape, keys)
    return { shape, keys, zero, contains }
  }

  /** The rows of a field in order, the last batch dimension changing fastest; none if it is not there. */
  rows(name: Name): Tensor[] {
    return this.#rowsOf(name)
  }

  /** The rows of a field in lists nested as the batch is; padded rows with their padding. */
  toList(name: Name): Nested<Tensor> | undefined {
    return this.fields[name] === undefined ? undefined : nestedLike(this.#rowsOf(name), this.batchSize)
  }

  /** Rows of one length. @internal */
  protected paddedWith({ value, ...options }: PaddingOptions & { readonly value: number }): this {
    if (this.padded)
      throw new FulmarError('INCOMPATIBLE', 'sequences must be ragged to be padded: got padded ones')
    const lengths: Record<string, Uint32Array> = {}
    const fields = this.#each((name, field) => {
      const padded = toPadded(field instanceof Ragged ? field : [field], { ...options, value })
      lengths[name] = padded.lengths
      return padded.tensor.reshape([...this.batchSize, padded.tensor.shape[1] ?? 0])
    })
    return this.#like({
      fields,
      options: { padded: true, side: options.side, lengths, batchSize: this.batchSize },
    })
  }

  /** Rows without padding. @throws {FulmarError} `INCOMPATIBLE` if their lengths are not known. */
  toRagged(): this {
    if (!this.padded) return this.#like({ fields: this.fields, options: this.#options })
    const { side, lengths = {} } = this.#options
    const fields = this.#each((name, field) => {
      const known = lengths[name]
      if (side === undefined || known === undefined) {
        const rule = `side and lengths.${name} must be known to take padding away`
        throw new FulmarError('INCOMPATIBLE', `${rule}: there is none`)
      }
      const flat = (field as Tensor).reshape([
        sizeOf(this.batchSize),
        field instanceof Ragged ? 0 : (field.shape.at(-1) ?? 0),
      ])
      const ragged = toRagged(flat, known, { side })
      return this.batchSize.length === 0 ? ragged.row(0) : ragged
    })
    return this.#like({ fields, options: { batchSize: this.batchSize } })
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): this {
    const [length = 0, ...inner] = this.batchSize
    const at = index < 0 ? index + length : index
    if (!Number.isInteger(at) || at < 0 || at >= length)
      throw new FulmarError(
        'OUT_OF_RANGE',
        `index must lie within the ${length} that there are: got ${index}`,
      )
    const size = sizeOf(inner)
    const { lengths = {}, ...options } = this.#options
    const fields = this.#each((_, field) => {
      if (!(field instanceof Ragged)) return field.select(0, at)
      const rows = field.slice(at * size, (at + 1) * size)
      return inner.length === 0 ? rows.row(0) : rows
    })
    const part = (all: Uint32Array) => all.slice(at * size, (at + 1) * size)
    const parts = Object.entries(lengths).map(([name, all]) => [name, part(all)])
    return this.#like({
      fields,
      options: { ...options, batchSize: inner, lengths: Object.fromEntries(parts) },
    })
  }

  /**
   * Returns the fields in a dictionary, under TorchRL's names.
   * @throws {FulmarError} `SHAPE_MISMATCH` for ragged rows of a batch of many dimensions.
   */
  toTensorDict(): TensorDict {
    const entries = Object.entries(this.fields).map(([name, field]) => [this.kind.keys[name] ?? name, field])
    return TensorDict.from(Object.fromEntries(entries), { batchSize: this.batchSize })
  }

  #check(name: string, field: TokenField): void {
    const { dtype } = field instanceof Ragged ? field.values : field
    if (dtype !== this.kind.dtype)
      throw new FulmarError('INCOMPATIBLE', `${name} must be ${this.kind.dtype}: got ${dtype}`)
    const batch = batchOf(name, field, this.padded)
    const numRows = sizeOf(this.batchSize)
    if (!(field instanceof Ragged)) checkBatch(name, batch, this.batchSize)
    else if (this.batchSize.length === 0 || field.numRows !== numRows)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `${name} must have the ${numRows} rows of its batch: got ${field.numRows}`,
      )
    const lengths = this.#options.lengths?.[name]
    if (lengths !== undefined && lengths.length !== numRows)
      throw new FulmarError('SHAPE_MISMATCH', `lengths.${name} must be ${numRows}: got ${lengths.length}`)
  }

  #rowsOf(name: string): Tensor[] {
    const field = this.fields[name]
    if (field === undefined) return []
    if (field instanceof Ragged) return Array.from({ length: field.numRows }, (_, row) => field.row(row))
    const width = field.shape.at(-1) ?? 0
    const flat = field.reshape([sizeOf(this.batchSize), width])
    return Array.from({ length: flat.shape[0] ?? 0 }, (_, row) => flat.select(0, row))
  }

  /** Returns true if this has that batch size and exactly these fields. */
  #isOf(shape: readonly number[], keys: readonly string[]): boolean {
    return (
      Object.keys(this.fields).length === keys.length &&
      keys.every((key) => key in this.fields) &&
      shape.length === this.batchSize.length &&
      shape.every((length, dim) => length === -1 || length === this.batchSize[dim])
    )
  }

  #each(of: (name: string, field: TokenField) => TokenField): Record<string, TokenField> {
    const fields = Object.entries(this.fields).map(([name, field]) => [name, of(name, field)])
    return Object.fromEntries(fields)
  }

  /** A container of the same class. */
  #like({ fields, options }: Parts): this {
    return Reflect.construct(this.constructor, [fields, options])
  }
}

/** Inputs of a constructor. */
interface Parts {
  readonly fields: Readonly<Record<string, TokenField>>
  readonly options: SequencesOptions
}

/** The parts of {@link SequenceSpec.zero}: one row of one element for each of the batch. */
function zeroParts(dtype: Dtype, shape: readonly number[], keys: readonly string[]): Parts {
  const batchSize = shape.map((length) => (length === -1 ? 1 : length))
  const make = () => {
    if (batchSize.length === 0) return Tensor.zeros(dtype, [1])
    const numRows = sizeOf(batchSize)
    return Ragged.from(
      Tensor.zeros(dtype, [numRows]),
      Uint32Array.from({ length: numRows + 1 }, (_, row) => row),
    )
  }
  return { fields: Object.fromEntries(keys.map((key) => [key, make()])), options: { batchSize } }
}

function batchOf(name: string, field: TokenField, padded: boolean): readonly number[] {
  if (field instanceof Ragged) {
    if (padded)
      throw new FulmarError('INCOMPATIBLE', `${name} must be a tensor where padded is true: got ragged rows`)
    if (field.values.shape.length !== 1)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `${name} must have rows of one dimension: got ${field.values.shape.length}`,
      )
    return [field.numRows]
  }
  if (padded && field.shape.length > 0) return field.shape.slice(0, -1)
  if (field.shape.length === 1) return []
  const rule = 'must be one sequence, of one dimension, where it is neither ragged nor padded'
  throw new FulmarError('SHAPE_MISMATCH', `${name} ${rule}: got ${field.shape.length} dimensions`)
}
