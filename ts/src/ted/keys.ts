/** Shared code of the conversions: entries that are not observations, and the position of a ring. */

import { call, checkKnownKeys } from '../core/index.js'
import { type RawTedKeys, type RawTensorDict, raw } from '../native/index.js'
import type { TensorDict, TensorKey } from '../tensor/index.js'
import { dictAround, pathOf, withRawDict } from '../tensor/tensor-dict.js'

/** Options of {@link TED2Flat} and of the other conversions. Entries are named as they are below `next`. */
export interface TEDOptions {
  /** The end of a trajectory: bools, one a step. @default 'done' */
  readonly doneKey?: TensorKey
  /** Marks of ends, that one among them. @default `done`, `truncated`, `terminated` */
  readonly doneKeys?: readonly TensorKey[]
  /** Rewards, which are below `next` only. @default `reward` */
  readonly rewardKeys?: readonly TensorKey[]
  /** Key of the `shift` of the ring in a converted dictionary. @default 'shift' */
  readonly shiftKey?: TensorKey
  /** Key of `isFull`. @default 'is_full' */
  readonly isFullKey?: TensorKey
}

/** Position of a ring of steps. */
export interface RingPosition {
  /** The time at which the next step will be written; as long as the ring is not full, so many steps were. @default 0 */
  readonly shift?: number
  /** True if every step was written. @default true */
  readonly isFull?: boolean
}

const ALL_KEYS = ['doneKey', 'doneKeys', 'rewardKeys', 'shiftKey', 'isFullKey']

/** Options as the core reads them. @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, `MALFORMED` for a wrong one. */
export function keysJson(options: TEDOptions, known: readonly string[] = ALL_KEYS): string {
  checkKnownKeys('options', options, known)
  const { doneKey, doneKeys, rewardKeys, shiftKey, isFullKey } = options
  const path = (key: TensorKey | undefined) => (key === undefined ? undefined : pathOf(key))
  const json = JSON.stringify({
    doneKey: path(doneKey),
    doneKeys: doneKeys?.map(pathOf),
    rewardKeys: rewardKeys?.map(pathOf),
    shiftKey: path(shiftKey),
    isFullKey: path(isFullKey),
  })
  withKeys(json, () => undefined)
  return json
}

/** A ring as the core reads it. */
export function ringJson(ring: RingPosition): string {
  checkKnownKeys('ring', ring, ['shift', 'isFull'])
  return JSON.stringify(ring)
}

/** Applies `convert` to a dictionary. */
export function converted(
  keysJson: string,
  dict: TensorDict,
  convert: (keys: RawTedKeys, dict: RawTensorDict) => RawTensorDict,
): TensorDict {
  return dictAround(() => withKeys(keysJson, (keys) => withRawDict(dict, (raw) => convert(keys, raw))))
}

function withKeys<R>(json: string, body: (keys: RawTedKeys) => R): R {
  const keys = call(() => raw.TedKeys.create(json))
  try {
    return body(keys)
  } finally {
    keys.free()
  }
}
