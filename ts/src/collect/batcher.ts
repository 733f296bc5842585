/**
 * From groups of samples to the batch of one training step.
 *
 * ```text
 * sample of L tokens: L - 1 predictions, rounded up to padMultiple
 * rows: next fit into seqLen -> cells: row r goes to cell r mod (microbatches * workers) -> batches without padding
 * ```
 *
 * Counts groups, not samples or tokens: a batch is full with `groupsPerBatch` groups that have something to
 * train. Other groups release their slot at once, and their metrics go to the next batch.
 */

import type { TrainingSample } from '../chat/index.js'
import { checkKnownKeys, FulmarError } from '../core/index.js'
import { packTrainingBatch, type TrainingBatch } from '../rollout/index.js'
import { type Metric, metric } from '../telemetry/index.js'
import type { Lease } from './work-buffer.js'

/** Options of {@link Batcher}. */
export interface BatcherOptions {
  /** Number of groups of a batch, >= 1. */
  readonly groupsPerBatch: number
  /**
   * Maximum number of predictions of a row, >= 1; a longer sample is dropped.
   * @default no limit, and one row
   */
  readonly seqLen?: number
  /**
   * Counts each sample as a multiple of this, for kernels that want it.
   * @default 1
   */
  readonly padMultiple?: number
  /**
   * Rows of a worker's part of a micro-batch.
   * @default 8
   */
  readonly rowsPerMicrobatch?: number
  /**
   * Workers that share each micro-batch.
   * @default 1
   */
  readonly numWorkers?: number
  /**
   * If true, a group without samples counts towards the batch, so that a step has a fixed number of groups;
   * else a step takes groups until `groupsPerBatch` have something to train.
   * @default false
   */
  readonly countsEmptyGroups?: boolean
}

/** Samples of one group, as {@link Batcher.addGroup} takes them. */
export interface SampleGroup {
  /** Samples; empty if there was nothing to train. */
  readonly samples: readonly TrainingSample[]
  /** Metrics of the group. */
  readonly metrics: readonly Metric[]
  /**
   * The group's slot. Stays with the batch, unless the group has nothing to train.
   * @default none
   */
  readonly lease?: Lease
}

/** Part of a micro-batch for one worker. */
export interface BatchCell {
  /** Samples that share a row. */
  readonly rows: readonly (readonly TrainingSample[])[]
  /** Samples of all rows, one after another; `null` if there are fewer rows than cells. */
  readonly batch: TrainingBatch | null
}

/** Input of one training step. */
export interface StepBatch {
  /** By micro-batch, then by worker. */
  readonly microbatches: readonly (readonly BatchCell[])[]
  /** All samples, in the order of their groups. */
  readonly samples: readonly TrainingSample[]
  /** Trained tokens with a finite log-probability, over the whole batch: the denominator of a mean over tokens. */
  readonly numTrained: number
  /** Oldest policy version of each sample. */
  readonly minPolicyVersions: readonly number[]
  /** Metrics of the groups, and of the packing. */
  readonly metrics: readonly Metric[]
  /** Slots of its groups, released once the trained weights are served. */
  readonly leases: readonly Lease[]
}

/**
 * Collects groups until a batch is full. Costs O(tokens) a batch.
 *
 * @example
 * ```ts
 * import { Ledger } from 'fulmar'
 * import { Batcher } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * using ledger = new Ledger()
 * const logProbs = Float32Array.of(-0.5)
 * ledger.recordTurn({ promptIds: Uint32Array.of(1, 2), completionIds: Uint32Array.of(4), logProbs, sampledLogProbs: logProbs, policyVersion: 3 })
 * const samples = ledger.trainingSamples(0.5)
 * const batcher = new Batcher({ groupsPerBatch: 2 })
 * assert.equal(batcher.addGroup({ samples, metrics: [] }), null)
 * assert.equal(batcher.addGroup({ samples: [], metrics: [] }), null) // nothing to train, so it does not count
 * const batch = batcher.addGroup({ samples, metrics: [] })
 * assert.deepEqual([batch?.numTrained, batch?.minPolicyVersions], [2, [3, 3]])
 * ```
 */
export class Batcher {
  readonly #options: Required<BatcherOptions>
  readonly #groups: { samples: readonly TrainingSample[]; lease: Lease | undefined }[] = []
  #metrics: Metric[] = []
  #numMetricOnly = 0

  /** @throws {FulmarError} `OUT_OF_RANGE` if a number is not a positive integer. */
  constructor(options: BatcherOptions) {
    checkKnownKeys(
      'options',
      options,
      ['groupsPerBatch', 'seqLen', 'padMultiple', 'rowsPerMicrobatch', 'numWorkers', 'countsEmptyGroups'],
      ['groupsPerBatch'],
    )
    const { groupsPerBatch, seqLen = Number.POSITIVE_INFINITY, padMultiple = 1 } = options
    const { rowsPerMicrobatch = 8, numWorkers = 1, countsEmptyGroups = false } = options
    const numbers = { groupsPerBatch, padMultiple, rowsPerMicrobatch, numWorkers }
    const limits = seqLen === Number.POSITIVE_INFINITY ? {} : { seqLen }
    for (const [name, value] of Object.entries({ ...numbers, ...limits })) {
      if (!Number.isSafeInteger(value) || value < 1)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
    }
    this.#options = { ...numbers, seqLen, countsEmptyGroups }
  }

  /** Number of groups that wait for their batch to fill. */
  get numWaiting(): number {
    return this.#groups.length
  }

  /** Adds a group. Returns the batch if it is now full. */
  addGroup({ samples, metrics, lease }: SampleGroup): StepBatch | null {
    const { seqLen, countsEmptyGroups, groupsPerBatch } = this.#options
    const fitting = samples.filter((sample) => this.#lengthOf(sample) <= seqLen)
    const numOversized = samples.length - fitting.length
    this.#metrics.push(...metrics)
    if (numOversized > 0)
      this.#metrics.push(metric('batcher/num_samples_dropped_oversized', 'sum', numOversized))
    if (fitting.length === 0) this.#numMetricOnly += 1
    if (fitting.length > 0 || countsEmptyGroups) this.#groups.push({ samples: fitting, lease })
    else lease?.release(numOversized > 0 ? 'oversized' : 'filtered')
    return this.#groups.length === groupsPerBatch ? this.#build() : null
  }

  /** The same groups with other samples of theirs, laid out and measured anew; its leases stay. */
  withSamples(batch: StepBatch, samples: readonly TrainingSample[]): StepBatch {
    const { metrics, ...laidOut } = this.#layOut(samples)
    const measuredAgain = new Set(metrics.map(({ key }) => key))
    const rest = batch.metrics.filter(({ key }) => !measuredAgain.has(key))
    return { ...laidOut, leases: batch.leases, metrics: [...rest, ...metrics] }
  }

  #build(): StepBatch {
    const groups = this.#groups.splice(0)
    const { metrics, ...laidOut } = this.#layOut(groups.flatMap((group) => group.samples))
    const told = [
      ...this.#metrics,
      metric('train_batch/num_rollout_groups', 'mean', groups.length),
      metric('train_batch/num_metric_only_groups', 'mean', this.#numMetricOnly),
      ...metrics,
    ]
    this.#metrics = []
    this.#numMetricOnly = 0
    return { ...laidOut, leases: groups.flatMap(({ lease }) => lease ?? []), metrics: told }
  }

  #layOut(samples: readonly TrainingSample[]): Omit<StepBatch, 'leases'> {
    const microbatches = this.#toCells(this.#fillRows(samples))
    const { numTrained, numNaN } = countTrained(samples)
    const metrics = [
      metric('train_batch/padding_frac', 'mean', this.#paddingOf(samples, microbatches.length)),
      metric('train_batch/num_microbatches', 'mean', microbatches.length),
      metric('train_batch/num_training_samples', 'mean', samples.length),
      metric('loss/generator_logprob_nan_frac', 'mean', numNaN / Math.max(1, numNaN + numTrained)),
    ]
    const minPolicyVersions = samples.map(({ minPolicyVersion }) => minPolicyVersion)
    return { microbatches, samples, numTrained, minPolicyVersions, metrics }
  }

  /** Next fit: one row is open at a time. */
  #fillRows(samples: readonly TrainingSample[]): TrainingSample[][] {
    const rows: TrainingSample[][] = []
    let filled = Number.POSITIVE_INFINITY
    for (const sample of samples) {
      const length = this.#lengthOf(sample)
      if (rows.length === 0 || filled + length > this.#options.seqLen) {
        rows.push([])
        filled = 0
      }
      rows.at(-1)?.push(sample)
      filled += length
    }
    return rows
  }

  #toCells(rows: readonly TrainingSample[][]): BatchCell[][] {
    const { rowsPerMicrobatch, numWorkers } = this.#options
    const numMicrobatches = Math.max(1, Math.ceil(rows.length / (rowsPerMicrobatch * numWorkers)))
    const cells = Array.from({ length: numMicrobatches * numWorkers }, (): TrainingSample[][] => [])
    rows.forEach((row, index) => void cells[index % cells.length]?.push(row))
    const packed = cells.map((own) => {
      return { rows: own, batch: own.length > 0 ? packTrainingBatch(own.flat()) : null }
    })
    return Array.from({ length: numMicrobatches }, (_, index) =>
      packed.slice(index * numWorkers, (index + 1) * numWorkers),
    )
  }

  /** Returns the share of padding in a padded layout; 0 without a row length. */
  #paddingOf(samples: readonly TrainingSample[], numMicrobatches: number): number {
    const { seqLen, rowsPerMicrobatch, numWorkers } = this.#options
    if (seqLen === Number.POSITIVE_INFINITY) return 0
    const used = samples.reduce((sum, { ids }) => sum + ids.length - 1, 0)
    return 1 - used / (numMicrobatches * numWorkers * rowsPerMicrobatch * seqLen)
  }

  #lengthOf({ ids }: TrainingSample): number {
    const { padMultiple } = this.#options
    return Math.ceil((ids.length - 1) / padMultiple) * padMultiple
  }
}

/** Rows in the layout of trainers that pad: `[R * seqLen]` arrays, shifted so that entry `t` predicts `labels[t]`. */
export interface RowLayout {
  readonly ids: Uint32Array
  /** Next token of each of `ids`. */
  readonly labels: Uint32Array
  /** Begin at 0 with each sample, and with the padding behind the last one. */
  readonly positions: Uint32Array
  /** 1 where `labels` is trained, else 0. */
  readonly mask: Uint8Array
  /** Of `labels`, as sampled; 0 where `mask` is 0. */
  readonly logProbs: Float32Array
  /** Of `labels`; 0 where `mask` is 0. */
  readonly advantages: Float32Array
}

/**
 * Lays rows out with padding, for a trainer that wants rows of one length; {@link BatchCell.batch} holds the same samples
 * without. All arrays are new.
 * @throws {FulmarError} `OUT_OF_RANGE` if a row is longer than `seqLen`.
 *
 * @example
 * ```ts
 * import { padRows } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * const { ids, positions } = padRows([[]], { seqLen: 3, padId: 9 })
 * assert.deepEqual([...ids, ...positions], [9, 9, 9, 0, 1, 2])
 * ```
 */
export function padRows(
  rows: readonly (readonly TrainingSample[])[],
  options: { readonly seqLen: number; readonly padId: number; readonly padMultiple?: number },
): RowLayout {
  checkKnownKeys('options', options, ['seqLen', 'padId', 'padMultiple'], ['seqLen', 'padId'])
  const { seqLen, padId, padMultiple = 1 } = options
  const size = rows.length * seqLen
  const padded = {
    ids: new Uint32Array(size).fill(padId),
    labels: new Uint32Array(size).fill(padId),
    positions: new Uint32Array(size),
    mask: new Uint8Array(size),
    logProbs: new Float32Array(size),
    advantages: new Float32Array(size),
  }
  rows.forEach((row, index) => {
    let start = index * seqLen
    const end = start + seqLen
    for (const { ids, mask, logProbs, advantages } of row) {
      const length = Math.ceil((ids.length - 1) / padMultiple) * padMultiple
      if (start + length > end)
        throw new FulmarError('OUT_OF_RANGE', `row ${index} must fit into ${seqLen} predictions: it has more`)
      padded.ids.set(ids.subarray(0, -1), start)
      padded.labels.set(ids.subarray(1), start)
      padded.mask.set(mask.subarray(1), start)
      padded.logProbs.set(logProbs.subarray(1), start)
      padded.advantages.set(advantages.subarray(1), start)
      start = count(padded.positions, start, start + length)
    }
    count(padded.positions, start, end)
  })
  return padded
}

/** Writes 0, 1, 2 ... into `positions[start..end]`; gives `end`. */
function count(positions: Uint32Array, start: number, end: number): number {
  for (let at = start; at < end; at++) positions[at] = at - start
  return end
}

function countTrained(samples: readonly TrainingSample[]): { numTrained: number; numNaN: number } {
  let [numTrained, numNaN] = [0, 0]
  for (const { mask, logProbs } of samples) {
    mask.forEach((flag, at) => {
      if (flag === 0) return
      if (Number.isFinite(logProbs[at])) numTrained += 1
      else numNaN += 1
    })
  }
  return { numTrained, numNaN }
}
