/** Columns of sequences: ragged, or padded with their lengths known. What {@link Tokens} and its siblings share. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { type Dtype, Ragged, type Tensor, TensorDict } from '../../tensor/index.js'
import type { PaddingOptions } from '../../tokenizer/index.js'
import { toPadded, toRagged } from './apply-chat-template.js'
import { checkBatch, nestedLike, sizeOf } from './batch.js'
import type { Nested } from './history.js'

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

/** The fields of one container, checked. `names` says what there can be, `dtypes` of which type. */
export class Sequences {
  readonly fields: Readonly<Record<string, TokenField>>
  readonly batchSize: readonly number[]
  readonly padded: boolean
  readonly #given: SequencesOptions

  constructor(
    names: readonly string[],
    dtypes: readonly Dtype[],
    fields: Readonly<Record<string, TokenField | undefined>>,
    options: SequencesOptions,
  ) {
    checkKnownKeys('fields', fields, names)
    checkKnownKeys('options', options, ['batchSize', 'padded', 'side', 'lengths'])
    const given = Object.entries(fields).filter(
      (entry): entry is [string, TokenField] => entry[1] !== undefined,
    )
    this.fields = Object.freeze(Object.fromEntries(given))
    this.padded = options.padded ?? false
    const [first] = given
    const inferred = first === undefined ? [] : batchOf(first[0], first[1], this.padded)
    this.batchSize = Object.freeze([...(options.batchSize ?? inferred)])
    this.#given = { ...options, batchSize: this.batchSize }
    for (const [name, field] of given) this.#check(name, field, dtypes)
  }

  #check(name: string, field: TokenField, dtypes: readonly Dtype[]): void {
    const { dtype } = field instanceof Ragged ? field.values : field
    if (!dtypes.includes(dtype))
      throw new FulmarError('INCOMPATIBLE', `${name} must be ${dtypes.join(' or ')}: got ${dtype}`)
    const batch = batchOf(name, field, this.padded)
    const numRows = sizeOf(this.batchSize)
    if (!(field instanceof Ragged)) checkBatch(name, batch, this.batchSize)
    else if (this.batchSize.length === 0 || field.numRows !== numRows)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `${name} must have the ${numRows} rows of its batch: got ${field.numRows}`,
      )
    const lengths = this.#given.lengths?.[name]
    if (lengths !== undefined && lengths.length !== numRows)
      throw new FulmarError('SHAPE_MISMATCH', `lengths.${name} must be ${numRows}: got ${lengths.length}`)
  }

  /** Options to construct an equal container. */
  get options(): SequencesOptions {
    return this.#given
  }

  /** The rows of a field, in order; padded rows with their padding. */
  rowsOf(name: string): Tensor[] {
    const field = this.fields[name]
    if (field === undefined) return []
    if (field instanceof Ragged) return Array.from({ length: field.numRows }, (_, row) => field.row(row))
    const width = field.shape.at(-1) ?? 0
    const flat = field.reshape([sizeOf(this.batchSize), width])
    return Array.from({ length: flat.shape[0] ?? 0 }, (_, row) => flat.select(0, row))
  }

  /** The rows of a field in lists nested as the batch is. */
  listOf(name: string): Nested<Tensor> | undefined {
    return this.fields[name] === undefined ? undefined : nestedLike(this.rowsOf(name), this.batchSize)
  }

  /** Rows of one length. */
  toPadded({ value, ...options }: PaddingOptions & { readonly value: number }): Parts {
    if (this.padded)
      throw new FulmarError('INCOMPATIBLE', 'sequences must be ragged to be padded: got padded ones')
    const lengths: Record<string, Uint32Array> = {}
    const fields = this.#each((name, field) => {
      const padded = toPadded(field instanceof Ragged ? field : [field], { ...options, value })
      lengths[name] = padded.lengths
      return padded.tensor.reshape([...this.batchSize, padded.tensor.shape[1] ?? 0])
    })
    return { fields, options: { padded: true, side: options.side, lengths, batchSize: this.batchSize } }
  }

  /** Rows without padding. */
  toRagged(): Parts {
    if (!this.padded) return { fields: this.fields, options: this.options }
    const { side, lengths = {} } = this.#given
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
    return { fields, options: { batchSize: this.batchSize } }
  }

  /** The element at `index` of the first batch dimension, counted from the end if negative. */
  at(index: number): Parts {
    const [length = 0, ...inner] = this.batchSize
    const at = index < 0 ? index + length : index
    if (!Number.isInteger(at) || at < 0 || at >= length)
      throw new FulmarError(
        'OUT_OF_RANGE',
        `index must lie within the ${length} that there are: got ${index}`,
      )
    const size = sizeOf(inner)
    const { lengths = {}, ...options } = this.#given
    const fields = this.#each((_, field) => {
      if (!(field instanceof Ragged)) return field.select(0, at)
      const rows = field.slice(at * size, (at + 1) * size)
      return inner.length === 0 ? rows.row(0) : rows
    })
    const part = (all: Uint32Array) => all.slice(at * size, (at + 1) * size)
    const parts = Object.entries(lengths).map(([name, all]) => [name, part(all)])
    return { fields, options: { ...options, batchSize: inner, lengths: Object.fromEntries(parts) } }
  }

  /** One batch of containers of one batch and the same fields. */
  static stack(all: readonly Sequences[]): Parts {
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
    const fields = first.#each((name) => Ragged.fromRows(all.flatMap((one) => one.rowsOf(name))))
    return { fields, options: { batchSize: [all.length, ...first.batchSize] } }
  }

  /** The fields in a dictionary, under `names`. */
  toTensorDict(names: Readonly<Record<string, string>> = {}): TensorDict {
    const entries = Object.entries(this.fields).map(([name, field]) => [names[name] ?? name, field])
    return TensorDict.from(Object.fromEntries(entries), { batchSize: this.batchSize })
  }

  /** Returns true if this has that batch size and exactly these fields. */
  isOf(shape: readonly number[], keys: readonly string[]): boolean {
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
}

/** Inputs of a constructor. */
export interface Parts {
  readonly fields: Readonly<Record<string, TokenField>>
  readonly options: SequencesOptions
}

/** The parts of {@link SequenceSpec.zero}: one row of one element for each of the batch. */
export function zeroParts(
  shape: readonly number[],
  keys: readonly string[],
  zero: (dims: number[]) => Tensor,
): Parts {
  const batchSize = shape.map((length) => (length === -1 ? 1 : length))
  const make = () => {
    if (batchSize.length === 0) return zero([1])
    const numRows = sizeOf(batchSize)
    return Ragged.from(
      zero([numRows]),
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
