import { describe, expect, it } from 'vitest'
import type { TrainingSample } from '../../src/chat/index.js'
import { Batcher, type Lease, padRows, type ReleaseReason } from '../../src/collect/index.js'
import { metric, reduceMetrics } from '../../src/telemetry/index.js'

/** A sample of `length` tokens from `first` on, all but the first trained. */
function sampleOf(length: number, { first = 10, version = 0 } = {}): TrainingSample {
  const mask = new Uint8Array(length).fill(1, 1)
  return {
    turnId: 0,
    ids: Uint32Array.from({ length }, (_, at) => first + at),
    mask,
    logProbs: Float32Array.from(mask, (flag) => -flag),
    sampledLogProbs: Float32Array.from(mask, (flag) => -flag),
    versions: new Uint32Array(length).fill(version),
    advantages: Float32Array.from(mask, (flag) => flag / 2),
    minPolicyVersion: version,
    maxPolicyVersion: version,
  }
}

const group = (...samples: TrainingSample[]) => ({ samples, metrics: [] })
const lengths = (...all: number[]) => group(...all.map((length) => sampleOf(length)))

class FakeLease implements Lease {
  readonly reasons: ReleaseReason[] = []
  get isReleased(): boolean {
    return this.reasons.length > 0
  }
  release(reason: ReleaseReason): void {
    this.reasons.push(reason)
  }
}

describe('Batcher', () => {
  it('fills with groups that train, whatever their samples', () => {
    const batcher = new Batcher({ groupsPerBatch: 2 })
    expect(batcher.addGroup(lengths(3, 3, 3, 3, 3, 3, 3, 3))).toBeNull()
    expect(batcher.numWaiting).toBe(1)
    expect(batcher.addGroup(lengths(3))?.samples).toHaveLength(9)
    expect(batcher.numWaiting).toBe(0)
  })

  it('lets a group without samples ride along: its metrics stay, its slot goes back', () => {
    const batcher = new Batcher({ groupsPerBatch: 1 })
    const [empty, full] = [new FakeLease(), new FakeLease()]
    const told = (key: string) => [metric(key, 'sum', 1)]
    expect(batcher.addGroup({ samples: [], metrics: told('first'), lease: empty })).toBeNull()
    const batch = batcher.addGroup({ samples: [sampleOf(3)], metrics: told('second'), lease: full })
    expect(batch?.numTrained).toBe(2)
    expect(reduceMetrics(batch?.metrics ?? []).values).toMatchObject({
      'first/sum': 1,
      'second/sum': 1,
      'train_batch/num_metric_only_groups/mean': 1,
      'train_batch/num_rollout_groups/mean': 1,
      'train_batch/num_training_samples/mean': 1,
    })
    expect(empty.reasons).toEqual(['filtered'])
    expect(full.reasons).toEqual([])
    expect(batch?.leases).toEqual([full])
  })

  it('counts groups without samples where a step is to see a fixed number of groups', () => {
    const batcher = new Batcher({ groupsPerBatch: 2, countsEmptyGroups: true })
    const lease = new FakeLease()
    expect(batcher.addGroup({ samples: [], metrics: [], lease })).toBeNull()
    const batch = batcher.addGroup(lengths(3))
    expect(batch?.samples).toHaveLength(1)
    expect(batch?.leases).toEqual([lease])
    expect(lease.reasons).toEqual([])
    batcher.addGroup(group())
    const none = batcher.addGroup(group())
    expect([none?.numTrained, none?.microbatches]).toEqual([0, [[{ rows: [], batch: null }]]])
  })

  it('deals rows to cells so that every cell has something to train', () => {
    const batcher = new Batcher({ groupsPerBatch: 1, seqLen: 2, rowsPerMicrobatch: 2, numWorkers: 2 })
    const batch = batcher.addGroup(lengths(3, 3, 3, 3, 3))
    expect(batch?.microbatches.map((cells) => cells.length)).toEqual([2, 2])
    const cells = batch?.microbatches.flat() ?? []
    expect(cells.map(({ rows }) => rows.length)).toEqual([2, 1, 1, 1])
    expect(cells.every((cell) => (cell.batch?.numTrained ?? 0) > 0)).toBe(true)
    const { values } = reduceMetrics(batch?.metrics ?? [])
    expect(values['train_batch/padding_frac/mean']).toBe(3 / 8)
  })

  it('fills rows by next fit and counts micro-batches by rows', () => {
    const rows = new Batcher({ groupsPerBatch: 1, seqLen: 10 }).addGroup(lengths(6, 6, 6))?.microbatches
    expect(rows?.flat()[0]?.rows.map((row) => row.length)).toEqual([2, 1])
    const two = new Batcher({ groupsPerBatch: 1, seqLen: 5, rowsPerMicrobatch: 2 })
    expect(two.addGroup(lengths(6, 6, 6))?.microbatches).toHaveLength(2)
  })

  it('keeps what just fits and drops what is one too long, before and behind a pad multiple', () => {
    const kept = (options: object, length: number) =>
      new Batcher({ groupsPerBatch: 1, countsEmptyGroups: true, ...options }).addGroup(lengths(length))
        ?.samples.length
    expect([kept({ seqLen: 8 }, 9), kept({ seqLen: 8 }, 10)]).toEqual([1, 0])
    expect([kept({ seqLen: 7, padMultiple: 8 }, 6), kept({ seqLen: 8, padMultiple: 8 }, 6)]).toEqual([0, 1])
  })

  it('gives the slot of a group back whose samples are all oversized, and counts them', () => {
    const batcher = new Batcher({ groupsPerBatch: 1, seqLen: 2 })
    const lease = new FakeLease()
    expect(batcher.addGroup({ ...lengths(9, 9), lease })).toBeNull()
    expect(lease.reasons).toEqual(['oversized'])
    const { values } = reduceMetrics(batcher.addGroup(lengths(3))?.metrics ?? [])
    expect(values['batcher/num_samples_dropped_oversized/sum']).toBe(2)
  })

  it('leaves a token whose log-probability is NaN out of the denominator', () => {
    const sample = sampleOf(5)
    sample.logProbs[2] = Number.NaN
    const batch = new Batcher({ groupsPerBatch: 1 }).addGroup(group(sample))
    expect(batch?.numTrained).toBe(3)
    expect(reduceMetrics(batch?.metrics ?? []).values['loss/generator_logprob_nan_frac/mean']).toBe(1 / 4)
  })

  it('tells the oldest weights of each sample', () => {
    const batch = new Batcher({ groupsPerBatch: 1 }).addGroup(
      group(sampleOf(3, { version: 8 }), sampleOf(3, { version: 9 })),
    )
    expect(batch?.minPolicyVersions).toEqual([8, 9])
  })

  it('refuses numbers that are no positive integers', () => {
    for (const options of [
      { groupsPerBatch: 0 },
      { groupsPerBatch: 1, seqLen: 0 },
      { groupsPerBatch: 1, numWorkers: 1.5 },
    ])
      expect(() => new Batcher(options)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })
})

describe('padRows', () => {
  it('shifts, restarts positions, and pads behind the last sample', () => {
    const rows = [[sampleOf(3, { first: 10 }), sampleOf(3, { first: 20 })]]
    const padded = padRows(rows, { seqLen: 8, padId: 0 })
    expect([...padded.ids]).toEqual([10, 11, 20, 21, 0, 0, 0, 0])
    expect([...padded.labels]).toEqual([11, 12, 21, 22, 0, 0, 0, 0])
    expect([...padded.positions]).toEqual([0, 1, 0, 1, 0, 1, 2, 3])
    expect([...padded.mask]).toEqual([1, 1, 1, 1, 0, 0, 0, 0])
    expect([...padded.logProbs]).toEqual([-1, -1, -1, -1, 0, 0, 0, 0])
    expect([...padded.advantages]).toEqual([0.5, 0.5, 0.5, 0.5, 0, 0, 0, 0])
  })

  it('pads each sample to its multiple, and refuses a row that does not fit', () => {
    const rows = [[sampleOf(4), sampleOf(2)]]
    const padded = padRows(rows, { seqLen: 8, padId: 7, padMultiple: 4 })
    expect([...padded.ids]).toEqual([10, 11, 12, 7, 10, 7, 7, 7])
    expect([...padded.positions]).toEqual([0, 1, 2, 3, 0, 1, 2, 3])
    expect(() => padRows(rows, { seqLen: 3, padId: 0 })).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
  })
})
