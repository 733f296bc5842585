/** The state of a buffer in memory. */

import { call, checkKnownKeys, type Handle } from '../core/index.js'
import { type RawReplayBuffer, type RawReplayState, raw } from '../native/index.js'
import { dictsOf, type TensorDict, withRawDicts } from '../tensor/tensor-dict.js'

/** The state from which a buffer continues exactly. */
export interface ReplayBufferState {
  /** The states of sampler, writer and unit: JSON text. */
  readonly parts: string
  /** Every item. */
  readonly items: readonly TensorDict[]
  /** Batches that were drawn in advance, which come first after a restore. @default none */
  readonly prefetched?: readonly TensorDict[]
}

/** Copies the state of a buffer. */
export function stateOf(buffer: Handle<RawReplayBuffer>): ReplayBufferState {
  const state = buffer.call((native) => native.state())
  try {
    const prefetched = dictsOf(call(() => state.ahead()))
    const whole = { parts: call(() => state.parts()), items: dictsOf(call(() => state.items())) }
    return prefetched.length > 0 ? { ...whole, prefetched } : whole
  } finally {
    state.free()
  }
}

/** Restores a state. @throws {FulmarError} `UNKNOWN_NAME` for an unknown key; errors of the core. */
export function restoreState(buffer: Handle<RawReplayBuffer>, state: ReplayBufferState): void {
  checkKnownKeys('state', state, ['parts', 'items', 'prefetched'])
  const { parts, items, prefetched = [] } = state
  const whole: RawReplayState = withRawDicts(items, (all) =>
    withRawDicts(prefetched, (ahead) => raw.ReplayState.of(parts, all, ahead)),
  )
  try {
    buffer.call((native) => native.restore(whole))
  } finally {
    whole.free()
  }
}
