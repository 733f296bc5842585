/** The token ledger of one rollout: every token that was given or sampled, once, with where it came from. */

import { call, checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawLedger, type RawSamples, raw } from '../native/index.js'
import type { Fork, LedgerSample, RecordedTurn, Segment, TrainingSample, Turn } from './turn.js'

/**
 * Append-only token ids with their origins, log-probabilities and weight versions. A turn whose prompt extends the
 * last one continues its branch; any other forks off where it departs from what is held. Training samples are the
 * root-to-leaf paths. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { Ledger } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using ledger = new Ledger()
 * const sampled = { logProbs: Float32Array.of(-0.5), sampledLogProbs: Float32Array.of(-0.5), policyVersion: 3 }
 * ledger.recordTurn({ promptIds: Uint32Array.of(1, 2), completionIds: Uint32Array.of(4), ...sampled })
 * ledger.recordTurn({ promptIds: Uint32Array.of(1, 2, 4, 8), completionIds: Uint32Array.of(5), ...sampled })
 * const placed = ledger.recordTurn({ promptIds: Uint32Array.of(1, 9), completionIds: Uint32Array.of(7), ...sampled })
 * assert.deepEqual(placed.fork, { branch: 0, position: 1, reason: 'history_edit' })
 *
 * const [first, second] = ledger.trainingSamples(0.25)
 * assert.deepEqual([...first.ids], [1, 2, 4, 8, 5])
 * assert.deepEqual([...first.advantages], [0, 0, 0.25, 0, 0.25])
 * assert.deepEqual([...second.mask], [0, 0, 1])
 * ```
 */
export class Ledger {
  readonly #native: Handle<RawLedger>

  /** An empty ledger. */
  constructor()
  constructor(make: () => RawLedger = () => new raw.Ledger()) {
    this.#native = new Handle('Ledger', make)
  }

  /**
   * The ledger that {@link Ledger.toJSON} described, in this release or an earlier one, as an object or as text.
   * @throws {FulmarError} `MALFORMED` or `SHAPE_MISMATCH` if `json` is not that or contradicts itself; `INCOMPATIBLE`
   * for another kind or a later version; `LIMIT_EXCEEDED` as {@link Ledger.recordTurn}.
   */
  static fromJSON(json: unknown): Ledger {
    const text = call(() => (typeof json === 'string' ? json : String(JSON.stringify(json))))
    return ledgerOf(() => raw.Ledger.fromJson(text))
  }

  /** The whole ledger, ready for JSON. Log-probabilities come back bit for bit. */
  toJSON(): LedgerJson {
    return JSON.parse(this.#native.call((native) => native.toJson()))
  }

  /**
   * The ledger that {@link Ledger.toBytes} stored, in this release or an earlier one. Needs memory in proportion to
   * `bytes`, whatever they claim.
   * @throws {FulmarError} `CORRUPT` if `bytes` are not that form, were changed or cut, or contradict themselves;
   * `INCOMPATIBLE` if they are of a later version; `LIMIT_EXCEEDED` as {@link Ledger.recordTurn}; `MALFORMED` if they
   * are not a `Uint8Array`.
   *
   * @example
   * ```ts
   * import { Ledger } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * using ledger = new Ledger()
   * const logProbs = Float32Array.of(-0.5)
   * const sampled = { completionIds: Uint32Array.of(4), logProbs, sampledLogProbs: logProbs, policyVersion: 3 }
   * ledger.recordTurn({ promptIds: Uint32Array.of(1, 2), ...sampled })
   * using read = Ledger.fromBytes(ledger.toBytes())
   * assert.deepEqual(read.samples(), ledger.samples())
   * ```
   */
  static fromBytes(bytes: Uint8Array): Ledger {
    checkTypedArray('bytes', bytes, Uint8Array)
    return ledgerOf(() => raw.Ledger.fromBytes(bytes))
  }

  /** The whole ledger as bytes, with a version number and a checksum. Equal ledgers give equal bytes. A new array. */
  toBytes(): Uint8Array {
    return this.#native.call((native) => native.toBytes())
  }

  /**
   * Appends one turn. A completion of no tokens is accepted for the first turn only, and then nothing may follow.
   * The ledger is unchanged when this throws.
   *
   * @throws {FulmarError} `EMPTY` for a prompt of no tokens, and where a turn has no completion though it is not the
   * only one; `SHAPE_MISMATCH` if lengths differ; `NON_FINITE` for a log-probability; `OUT_OF_RANGE` for a version
   * range, an origin or a message index that cannot be; `MALFORMED` for a value of another type; `UNKNOWN_NAME` for an
   * unknown key; `LIMIT_EXCEEDED` past 2^28 tokens or 65,536 forks.
   */
  recordTurn(turn: Turn): RecordedTurn {
    checkTurn(turn)
    const { promptIds, completionIds, logProbs, sampledLogProbs, origins, messageIndices } = turn
    const { policyVersion, messageOffset, branchReason, bridgeRefusal } = turn
    const versions = policyVersion instanceof Uint32Array ? policyVersion : undefined
    const range =
      typeof policyVersion === 'number' ? { min: policyVersion, max: policyVersion } : policyVersion
    const options = {
      messageOffset,
      branchReason,
      bridgeRefusal,
      policyVersion: versions ? undefined : range,
    }
    const record = (native: RawLedger) =>
      native.recordTurn(
        promptIds,
        completionIds,
        logProbs,
        sampledLogProbs,
        versions,
        origins,
        messageIndices,
        JSON.stringify(options),
      )
    return JSON.parse(this.#native.call(record))
  }

  /** Number of stored tokens; shared ones count once. */
  get numTokens(): number {
    return this.#native.call((native) => native.numTokens())
  }

  /** Number of recorded turns. */
  get numTurns(): number {
    return this.#native.call((native) => native.numTurns())
  }

  /** The tokens of the path that ends with the last turn. A new array. */
  pathIds(): Uint32Array {
    return this.#native.call((native) => native.pathIds())
  }

  /** The runs of tokens, in the order in which they were appended. Reads the JSON form: for logs, not for loops. */
  segments(): readonly Segment[] {
    return this.toJSON().segments
  }

  /** The forks in order: number `k` opened branch `k + 1`. Reads the JSON form, as {@link Ledger.segments} does. */
  forks(): readonly Fork[] {
    return this.toJSON().branches.flatMap(({ fork }) => fork ?? [])
  }

  /**
   * The root-to-leaf paths that train something; none if nothing was sampled. Each sampled token is trained in one.
   * Costs the length of all paths.
   * @throws {FulmarError} `LIMIT_EXCEEDED` if they have more than 2^28 tokens together.
   */
  samples(): readonly LedgerSample[] {
    return split(plain(this.#native.call((native) => native.samples())))
  }

  /**
   * As {@link Ledger.samples}, with the rollout's advantage on every trained token.
   * @throws {FulmarError} `EMPTY` if `advantage` is `null`; `NON_FINITE` if it is not finite; `LIMIT_EXCEEDED`.
   */
  trainingSamples(advantage: number | null): readonly TrainingSample[] {
    const flat = plain(this.#native.call((native) => native.trainingSamples(advantage)))
    const advantages = (index: number) => flat.advantages.subarray(...bounds(flat, index))
    return split(flat).map((sample, index) => ({ ...sample, advantages: advantages(index) }))
  }

  /** Gives the native memory back. Samples that were taken stay. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** @internal Returns the ledger that `make` takes from the core. */
export function ledgerOf(make: () => RawLedger): Ledger {
  return Reflect.construct(Ledger, [make])
}

/** The JSON form of a {@link Ledger}. Flat columns, cut by the lengths of the segments. */
export interface LedgerJson {
  readonly version: number
  readonly kind: 'ledger'
  readonly numTurns: number
  readonly current: number
  readonly branches: readonly { readonly turn: number; readonly fork: Fork | null }[]
  readonly segments: readonly Segment[]
  readonly ids: readonly number[]
  readonly logProbs: readonly number[]
  readonly sampledLogProbs: readonly number[]
}

const TURN_KEYS = [
  'promptIds',
  'completionIds',
  'logProbs',
  'sampledLogProbs',
  'policyVersion',
  'origins',
  'messageIndices',
  'messageOffset',
  'branchReason',
  'bridgeRefusal',
] satisfies (keyof Turn)[]

function checkTurn(turn: Turn): void {
  checkKnownKeys('turn', turn, TURN_KEYS)
  checkTypedArray('turn.promptIds', turn.promptIds, Uint32Array)
  checkSampled(turn)
  if (turn.origins !== undefined) checkTypedArray('turn.origins', turn.origins, Uint8Array)
  if (turn.messageIndices !== undefined)
    checkTypedArray('turn.messageIndices', turn.messageIndices, Int32Array)
}

/** @internal Refuses arrays of another type. */
export function checkSampled(turn: Pick<Turn, 'completionIds' | 'logProbs' | 'sampledLogProbs'>): void {
  checkTypedArray('turn.completionIds', turn.completionIds, Uint32Array)
  checkTypedArray('turn.logProbs', turn.logProbs, Float32Array)
  checkTypedArray('turn.sampledLogProbs', turn.sampledLogProbs, Float32Array)
}

/** A plain object: in WebAssembly the answer's properties are copied at each access. */
function plain(raw: RawSamples): RawSamples {
  const { offsets, ids, mask, logProbs, sampledLogProbs, versions, advantages } = raw
  const { turnIds, minPolicyVersions, maxPolicyVersions } = raw
  const columns = { offsets, ids, mask, logProbs, sampledLogProbs, versions, advantages }
  return { ...columns, turnIds, minPolicyVersions, maxPolicyVersions }
}

/** The samples as views of the flat columns. */
function split(flat: RawSamples): LedgerSample[] {
  return Array.from(flat.turnIds, (turnId, index) => ({
    turnId,
    ids: flat.ids.subarray(...bounds(flat, index)),
    mask: flat.mask.subarray(...bounds(flat, index)),
    logProbs: flat.logProbs.subarray(...bounds(flat, index)),
    sampledLogProbs: flat.sampledLogProbs.subarray(...bounds(flat, index)),
    versions: flat.versions.subarray(...bounds(flat, index)),
    minPolicyVersion: flat.minPolicyVersions[index] ?? 0,
    maxPolicyVersion: flat.maxPolicyVersions[index] ?? 0,
  }))
}

function bounds({ offsets }: RawSamples, index: number): [number | undefined, number | undefined] {
  return [offsets[index], offsets[index + 1]]
}
