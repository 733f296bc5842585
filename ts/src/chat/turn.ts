/** Inputs and outputs of a {@link Ledger}. */

import type { BridgeRefusal, Origin } from './renderer.js'

/** Reason that the tokens of a conversation are not a prefix of its next prompt. */
export type BranchReason =
  | 'history_edit'
  | 'compaction'
  | 'retention'
  | 'opaque'
  | 'bridge_refused'
  | 'resample'

/** One turn: what the policy was given and what it sampled. Arrays are read, not kept. */
export interface Turn {
  /** The whole prompt of this turn. */
  readonly promptIds: Uint32Array
  /** The sampled tokens. Shape `[T]`. */
  readonly completionIds: Uint32Array
  /** Log-probability of each sampled token under the model itself (temperature 1). Shape `[T]`, finite. */
  readonly logProbs: Float32Array
  /** Log-probability of each sampled token under the distribution it was drawn from. Shape `[T]`, finite. */
  readonly sampledLogProbs: Float32Array
  /** The weights that sampled the tokens: one version, one for each token, or the oldest and newest that may have. */
  readonly policyVersion: number | Uint32Array | { readonly min: number; readonly max: number }
  /**
   * Origins of the last prompt tokens, from the rendering of the whole prompt or of a bridge. Shape `[N]`, at
   * most as long as `promptIds`. Given together with `messageIndices`.
   * @default every prompt token counts as `env`
   */
  readonly origins?: Uint8Array
  /** Message indices of the same tokens, from the renderer. Shape `[N]`. Required with `origins`. */
  readonly messageIndices?: Int32Array
  /**
   * Added to `messageIndices`: how many messages came before those that a bridge rendered.
   * @default 0
   */
  readonly messageOffset?: number
  /**
   * Reason why the prompt may not extend the last turn, if known.
   * @default the reason in `bridgeRefusal`; else 'resample' if the prompt is a prefix of the stored tokens, else
   * 'history_edit'
   */
  readonly branchReason?: BranchReason
  /**
   * Reason that the renderer refused to extend the last turn. An opaque template is counted as the branch reason
   * 'opaque', removed reasoning of earlier turns as 'retention', any other as 'bridge_refused'.
   * @default none: it did not refuse
   */
  readonly bridgeRefusal?: BridgeRefusal
}

/** A place where the token tree branches. */
export interface Fork {
  /** The branch that was left. */
  readonly branch: number
  /** Number of tokens of its path that the new branch shares. */
  readonly position: number
  /** Reason of the fork. */
  readonly reason: BranchReason
}

/** Position of a recorded turn. */
export interface RecordedTurn {
  /** Counts the turns from 0. */
  readonly turn: number
  /** The branch that now ends with this turn. */
  readonly branch: number
  /** The fork that this turn made; `null` where it extended a branch. */
  readonly fork: Fork | null
}

/** A run of tokens with one origin. Sampled runs also have the version of the weights that sampled them. */
export interface Segment {
  /** The branch that owns the run. */
  readonly branch: number
  /** Number of tokens. */
  readonly length: number
  /** Origin of the tokens. */
  readonly origin: Origin
  /** The message that they belong to; -1 for none. */
  readonly messageIndex: number
  /** The turn that they were recorded with. */
  readonly turn: number
  /** Oldest and newest weights; only on sampled runs. */
  readonly policyVersion?: { readonly min: number; readonly max: number }
}

/**
 * One root-to-leaf path of a ledger. Each sampled token is trainable (`mask` 1) in exactly one sample of its ledger.
 * The arrays have the same length `[T]` and share memory with those of the other samples of one call.
 */
export interface LedgerSample {
  /** The turn where this branch opens. */
  readonly turnId: number
  /** Token ids. */
  readonly ids: Uint32Array
  /** 1 on the tokens that are trained here, else 0. */
  readonly mask: Uint8Array
  /** Log-probabilities under the model at temperature 1; 0 where `mask` is 0. */
  readonly logProbs: Float32Array
  /** Log-probabilities under the sampling distribution; 0 where `mask` is 0. */
  readonly sampledLogProbs: Float32Array
  /** The oldest weights that may have sampled each token; 0 where `mask` is 0. */
  readonly versions: Uint32Array
  /** The oldest weights that sampled any trainable token. */
  readonly minPolicyVersion: number
  /** The newest weights that sampled any trainable token. */
  readonly maxPolicyVersion: number
}

/** A {@link LedgerSample} with the advantage of its rollout on every trainable token. */
export interface TrainingSample extends LedgerSample {
  /** The advantage; 0 where `mask` is 0. Shape `[T]`. */
  readonly advantages: Float32Array
}
