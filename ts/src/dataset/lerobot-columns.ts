/** Columns of LeRobot as a dictionary with the keys of policies. */

import { checkKnownKeys, describeValue, FulmarError, nearestName } from '../core/index.js'
import { NonTensorStack, Tensor, TensorDict, type TensorKey } from '../tensor/index.js'
import { VideoClipRef } from './video-clip-ref.js'

/** A column: a tensor whose first dimension is the frames, frames of videos, or a list of texts, numbers or booleans. */
export type LeRobotColumn =
  | Tensor
  | VideoClipRef
  | readonly string[]
  | readonly number[]
  | readonly bigint[]
  | readonly boolean[]

/** Our key for the name of a column of LeRobot. */
export type LeRobotKeyMap = Readonly<Record<string, TensorKey>>

const KEYS: LeRobotKeyMap = {
  action: 'action',
  'observation.state': ['observation', 'state'],
  episode_index: 'episode',
  frame_index: 'frame',
  task: 'language_instruction',
  'next.reward': ['next', 'reward'],
  'next.done': ['next', 'done'],
}

const IMAGES = 'observation.images.'

/**
 * Makes a dictionary of columns. `observation.images.top` becomes `['observation', 'image', 'top']`, `episode_index` `episode`,
 * `frame_index` `frame`, `task` `language_instruction`; dots of other names begin dictionaries. A tensor `[N]` below `next` becomes
 * `[N, 1]`; lists of whole numbers become i64, others f32.
 * @throws {FulmarError} `EMPTY` without columns; `MALFORMED` for a column of mixed or other values; `SHAPE_MISMATCH` if columns
 *   differ in length; `INCOMPATIBLE` if two have one key; `UNKNOWN_NAME` for an unknown option, or a name in `keyMap` that is not
 *   a column.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { lerobotColumnsToTensorDict } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const columns = { episode_index: [0, 0], 'next.reward': Tensor.from([0.5, 1]), task: ['push', 'push'] }
 * const steps = lerobotColumnsToTensorDict(columns)
 * assert.deepEqual(steps.tensor(['next', 'reward']).shape, [2, 1])
 * assert.equal(steps.index(0).value('language_instruction'), 'push')
 * ```
 */
export function lerobotColumnsToTensorDict(
  columns: Readonly<Record<string, LeRobotColumn>>,
  options: { readonly keyMap?: LeRobotKeyMap } = {},
): TensorDict {
  checkKnownKeys('options', options, ['keyMap'])
  if (typeof columns !== 'object' || columns === null)
    throw new FulmarError('MALFORMED', `columns must be an object: got ${describeValue(columns)}`)
  const names = Object.keys(columns)
  if (names.length === 0) throw new FulmarError('EMPTY', 'columns must have at least one column: got 0')
  const keys = keysOfColumns(names, options.keyMap)
  const numFrames = lengthOf(names[0] ?? '', columns[names[0] ?? ''])
  const dict = TensorDict.from({}, { batchSize: [numFrames] })
  for (const [name, column] of Object.entries(columns)) {
    const length = lengthOf(name, column)
    if (length !== numFrames) {
      const detail = `columns must be equally long: ${names[0]} has ${numFrames} frames, got ${length} of ${name}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    const key = keys.get(name) ?? [name]
    dict.set(key, entryOf(name, column, isFlagKey(key)))
  }
  return dict
}

/** @internal Returns true for a key below `next`, where each row is `[1]`. */
export function isFlagKey(key: readonly string[]): boolean {
  return key[0] === 'next'
}

/** @internal Checks the option. @throws {FulmarError} `MALFORMED`. */
export function checkKeyMap(keyMap: unknown): void {
  if (keyMap === undefined) return
  if (typeof keyMap !== 'object' || keyMap === null || Array.isArray(keyMap))
    throw new FulmarError('MALFORMED', `options.keyMap must be an object: got ${describeValue(keyMap)}`)
  for (const [name, key] of Object.entries(keyMap)) {
    const parts: readonly unknown[] = Array.isArray(key) ? key : [key]
    if (parts.length > 0 && parts.every((part) => typeof part === 'string' && part !== '')) continue
    throw new FulmarError('MALFORMED', `options.keyMap['${name}'] must be a key: got ${describeValue(key)}`)
  }
}

/**
 * @internal The key of each column.
 * @throws {FulmarError} `INCOMPATIBLE` if two columns have one key, or one is in another; `UNKNOWN_NAME` for a name in `keyMap`
 *   that is not a column.
 */
export function keysOfColumns(
  names: readonly string[],
  keyMap: LeRobotKeyMap | undefined,
): ReadonlyMap<string, readonly string[]> {
  checkKeyMap(keyMap)
  for (const name of Object.keys(keyMap ?? {})) {
    if (names.includes(name)) continue
    const nearest = nearestName(name, names)
    const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`
    const detail = `options.keyMap must name columns: got ${JSON.stringify(name)}${hint}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  const keys = new Map(names.map((name) => [name, keyOfColumn(name, keyMap)]))
  const taken = new Map<string, string>()
  for (const [name, key] of keys) taken.set(JSON.stringify(key), name)
  for (const [name, key] of keys) {
    for (let depth = 1; depth <= key.length; depth++) {
      const other = taken.get(JSON.stringify(key.slice(0, depth)))
      if (other === undefined || other === name) continue
      const detail = `columns must have keys of their own: got ${key.join('.')} for ${name} and ${other}`
      throw new FulmarError('INCOMPATIBLE', detail)
    }
  }
  return keys
}

/** @internal The key of one column. */
export function keyOfColumn(name: string, keyMap: LeRobotKeyMap | undefined): readonly string[] {
  const own = ownKey(keyMap, name) ?? ownKey(KEYS, name)
  if (own !== undefined) return typeof own === 'string' ? [own] : own
  if (name.startsWith(IMAGES)) return ['observation', 'image', name.slice(IMAGES.length)]
  return name.split('.')
}

function ownKey(keyMap: LeRobotKeyMap | undefined, name: string): TensorKey | undefined {
  return keyMap !== undefined && Object.hasOwn(keyMap, name) ? keyMap[name] : undefined
}

function lengthOf(name: string, column: unknown): number {
  if (column instanceof Tensor && column.shape[0] !== undefined) return column.shape[0]
  if (column instanceof VideoClipRef && column.batchSize[0] !== undefined) return column.batchSize[0]
  if (Array.isArray(column)) return column.length
  const got = column instanceof Tensor ? 'a scalar' : describeValue(column)
  throw new FulmarError(
    'MALFORMED',
    `column '${name}' must be a tensor, frames of videos or a list: got ${got}`,
  )
}

function entryOf(name: string, column: LeRobotColumn, isFlag: boolean) {
  if (column instanceof VideoClipRef) return column.dict
  const entry = column instanceof Tensor ? column : listEntry(name, column)
  return isFlag && entry instanceof Tensor && entry.shape.length === 1 ? entry.unsqueeze(1) : entry
}

function listEntry(name: string, column: readonly unknown[]): Tensor | NonTensorStack {
  const kinds = [...new Set(column.map((value) => typeof value))]
  const [kind = 'number'] = kinds
  if (kinds.length > 1 || !['string', 'number', 'bigint', 'boolean'].includes(kind)) {
    const detail = `column '${name}' must hold texts, numbers or booleans alone: got ${kinds.join(' and ')}`
    throw new FulmarError('MALFORMED', detail)
  }
  if (kind === 'string') return new NonTensorStack(column as readonly string[])
  if (kind === 'boolean') return Tensor.from(column.map(Number), { dtype: 'bool' })
  const isWhole = column.every((value) => kind === 'bigint' || Number.isSafeInteger(value))
  if (!isWhole) return Tensor.from(column as readonly number[])
  return Tensor.from(BigInt64Array.from(column as readonly number[], BigInt))
}
