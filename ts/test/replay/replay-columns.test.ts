/** Columns of buffers, compared with the same rows by `extend`. */

import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/index.js'
import {
  HERReplayBuffer,
  LazyTensorStorage,
  ListStorage,
  PrioritizedReplayBuffer,
  PrioritizedSampler,
  PromptGroupSampler,
  RandomSampler,
  ReplayBuffer,
  ReplayBufferEnsemble,
  RoundRobinWriter,
  Sampler,
  SliceSampler,
  TensorDictMaxValueWriter,
  TensorDictPrioritizedReplayBuffer,
} from '../../src/replay/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../src/tensor/index.js'
import { idsOf, numbered } from './items.js'

const refusal = (code: string, message = '') =>
  expect.objectContaining({ code, message: expect.stringContaining(message) })

/** Steps with a leaf of each kind of number, and a nested one. */
function steps(start: number, count: number): TensorDict {
  const at = Array.from({ length: count }, (_, step) => start + step)
  const ids = BigInt64Array.from(at, (step) => BigInt(step))
  const done = Uint8Array.from(at, (step) => Number(step % 5 === 4))
  return TensorDict.from(
    {
      observation: Tensor.from(
        Float32Array.from({ length: 3 * count }, (_, i) => 3 * start + i),
        { shape: [count, 3] },
      ),
      half: Tensor.from(Uint16Array.from(at), { dtype: 'f16' }),
      episode: Tensor.from(ids),
    },
    { batchSize: [count] },
  ).set(['next', 'done'], Tensor.from(done, { dtype: 'bool' }))
}

/** Commits what `steps` makes, `sizes[i]` rows at a time. */
function commitSteps(buffer: ReplayBuffer, start: number, sizes: readonly number[]): void {
  const columns = buffer.columns()
  const observation = columns.array('observation', 'f32')
  const [half, episode] = [columns.array('half', 'f16'), columns.array('episode', 'i64')]
  const done = columns.array(['next', 'done'], 'bool')
  let step = start
  for (const size of sizes) {
    const count = Math.min(size, columns.numRows - columns.row)
    for (let row = columns.row; row < columns.row + count; row++) {
      for (let at = 0; at < 3; at++) observation[3 * row + at] = 3 * step + at
      half[row] = step
      episode[row] = BigInt(step)
      done[row] = Number(step % 5 === 4)
      step++
    }
    columns.commit(count)
  }
}

const pair = (make: () => ReplayBuffer) => {
  const [byColumns, byExtend] = [make(), make()]
  byColumns.extend(steps(0, 1))
  byExtend.extend(steps(0, 1))
  return { byColumns, byExtend }
}

describe('ReplayColumns', () => {
  it.each([1, 2, 7, 31, 32])(
    'writes the rows, generations and priorities of extend, %d at a time',
    (size) => {
      const { byColumns, byExtend } = pair(
        () =>
          new PrioritizedReplayBuffer({
            storage: new LazyTensorStorage(32),
            writer: new RoundRobinWriter({ trackGenerations: true }),
            seed: 3,
          }),
      )
      for (const buffer of [byColumns, byExtend]) buffer.updatePriority([0], 5)
      byColumns.columns()
      let step = 1
      while (step < 100) {
        const count = Math.min(size, byColumns.columns().numRows - byColumns.columns().row)
        commitSteps(byColumns, step, [count])
        byExtend.extend(steps(step, count))
        step += count
      }
      const rows = Array.from({ length: 33 }, (_, row) => row)
      expect(byColumns.generationsOf(rows)).toEqual(byExtend.generationsOf(rows))
      expect(byColumns.readAllInOrder().equals(byExtend.readAllInOrder())).toBe(true)
      expect(byColumns.stats).toEqual(byExtend.stats)
      expect(byColumns.stateDict()).toEqual(byExtend.stateDict())
      const [mine, theirs] = [byColumns.sampleWithInfo(64), byExtend.sampleWithInfo(64)]
      expect(mine.index).toEqual(theirs.index)
      expect(mine.info.tensor('priority_weight').data).toEqual(theirs.info.tensor('priority_weight').data)
    },
  )

  it('feeds samplers that follow trajectories', () => {
    const { byColumns, byExtend } = pair(
      () =>
        new ReplayBuffer({
          storage: new LazyTensorStorage(40),
          sampler: new SliceSampler({ sliceLen: 2, endKeys: [['next', 'done']] }),
          seed: 1,
        }),
    )
    commitSteps(byColumns, 1, Array<number>(24).fill(1))
    byExtend.extend(steps(1, 24))
    expect(byColumns.sample(16).equals(byExtend.sample(16))).toBe(true)
  })

  it('shows committed rows, and no others, to whatever reads', () => {
    const readers: Record<string, (buffer: ReplayBuffer) => unknown> = {
      length: (buffer) => buffer.length,
      'stats.size': (buffer) => buffer.stats.size,
      'storage.length': (buffer) => buffer.storage.length,
      'storage.get': (buffer) => idsOf(buffer.storage.get([0, 1, 2])).at(-1),
      readAllInOrder: (buffer) => idsOf(buffer.readAllInOrder()).length,
      at: (buffer) => buffer.at(2).tensor('id').item(),
      'another buffer': (buffer) => new ReplayBuffer({ storage: buffer.storage }).length,
      ensemble: (buffer) =>
        new Set(idsOf(new ReplayBufferEnsemble([buffer], { seed: 2 }).sample(64).flatten(0, 1))).size,
      extend: (buffer) => buffer.extend(numbered(9))[0],
      dispose: (buffer) => {
        buffer[Symbol.dispose]()
        return buffer.storage.length
      },
    }
    const seen = Object.entries(readers).map(([name, read]) => {
      const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
      const columns = buffer.columns(numbered(0).index(0))
      const id = columns.array('id', 'f32')
      for (const value of [1, 2, 3]) {
        id[columns.row] = value
        columns.commit()
      }
      id[columns.row] = 4
      return [name, read(buffer)]
    })
    expect(Object.fromEntries(seen)).toEqual(
      Object.fromEntries(Object.keys(readers).map((name) => [name, 3])),
    )
  })

  it('shows rows to an ensemble and to a second buffer that were made before the commit', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    const columns = buffer.columns(numbered(0).index(0))
    columns.commit()
    const second = new ReplayBuffer({ storage: buffer.storage })
    const ensemble = new ReplayBufferEnsemble([buffer], { seed: 2 })
    columns.array('id', 'f32').fill(5, columns.row)
    columns.commit(2)
    expect(new Set(idsOf(ensemble.sample(64).flatten(0, 1)))).toEqual(new Set([0, 5]))
    columns.commit(2)
    expect(second.length).toBe(5)
  })

  it('keeps a row that is half written when the buffer is read', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(100) })
    const columns = buffer.columns(numbered(0).index(0))
    const id = columns.array('id', 'f32')
    columns.commit(2)
    id[columns.row] = 7
    expect(buffer.length).toBe(2)
    columns.commit()
    expect(idsOf(buffer.at(2).unsqueeze(0))).toEqual([7])
  })

  it('writes a full block, and begins it again', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
    const columns = buffer.columns(numbered(0).index(0))
    expect(columns.numRows).toBe(4)
    const id = columns.array('id', 'f32')
    for (let step = 0; step < 10; step++) {
      expect(columns.row).toBe(step % 4)
      id[columns.row] = step
      columns.commit()
    }
    expect(idsOf(buffer.readAllInOrder())).toEqual([8, 9, 6, 7])
    expect(buffer.stats.writeCount).toBe(10)
  })

  it('bounds a block by bytes and by rows', () => {
    const numRows = (width: number) =>
      new ReplayBuffer({ storage: new LazyTensorStorage(100_000) }).columns(
        TensorDict.from({ wide: Tensor.zeros('u8', [width]) }),
      ).numRows
    expect([0, 1, 256, 257, 1 << 20, (1 << 20) + 1].map(numRows)).toEqual([4096, 4096, 4096, 4080, 1, 1])
  })

  it('lets another handle read what is committed', () => {
    if (describeBuild().backend !== 'native') return
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    const columns = buffer.columns(numbered(0).index(0))
    columns.commit()
    columns.commit()
    const other = ReplayBuffer.attach(buffer.share())
    expect(other.length).toBe(2)
    columns.commit()
    expect(other.length).toBe(3)
    other.columns().commit(2)
    expect(buffer.length).toBe(5)
  })

  it('refuses at the commit what extend refuses, and keeps the earlier rows', () => {
    const buffer = new TensorDictPrioritizedReplayBuffer({ storage: new LazyTensorStorage(10) })
    const columns = buffer.columns(TensorDict.from({ td_error: Tensor.zeros('f32', []) }))
    const error = columns.array('td_error', 'f32')
    error[0] = 2
    columns.commit()
    error[1] = Number.NaN
    expect(() => columns.commit()).toThrow(refusal('NON_FINITE'))
    expect([buffer.length, columns.row]).toEqual([1, 1])
    error[1] = 1
    columns.commit()
    expect(buffer.length).toBe(2)
  })

  it('names row and leaf of a bool that is none', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    const columns = buffer.columns(steps(0, 1).index(0))
    columns.commit(2)
    columns.array(['next', 'done'])[3] = 2
    expect(() => columns.commit(2)).toThrow(
      refusal('OUT_OF_RANGE', 'leaf ["next","done"] of row 3 must be 0 or 1: got 2'),
    )
    columns.array(['next', 'done'])[3] = 1
    columns.commit(2)
    expect(buffer.length).toBe(4)
  })

  it('refuses at the first commit leaves that the storage does not take', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    buffer.extend(numbered(1, 2))
    const columns = buffer.columns(TensorDict.from({ id: Tensor.zeros('f32', [2]) }))
    expect(() => columns.commit()).toThrow(refusal('SHAPE_MISMATCH', '"id"'))
    expect(buffer.length).toBe(2)
    const without = new ReplayBuffer({
      storage: new LazyTensorStorage(10),
      sampler: new PromptGroupSampler({ groupKey: 'prompt', numGroups: 1 }),
    })
    expect(() => without.columns(numbered(0).index(0)).commit()).toThrow(refusal('UNKNOWN_NAME'))
  })

  it('writes at once where a part may refuse values', () => {
    const ranked = new ReplayBuffer({
      storage: new LazyTensorStorage(10),
      writer: new TensorDictMaxValueWriter({ rankKey: 'id' }),
    })
    const columns = ranked.columns(numbered(0).index(0))
    columns.commit()
    columns.array('id')[1] = Number.NaN
    expect(() => columns.commit()).toThrow(refusal('NON_FINITE'))
    const checked: number[] = []
    const own = Sampler.from({
      check: (rows) => void checked.push(...rows),
      extend: () => undefined,
      sample: (_, count) => ({ rows: Array<number>(count).fill(0) }),
      clear: () => undefined,
    })
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler: own })
    const block = buffer.columns(numbered(0).index(0))
    block.commit(2)
    block.commit()
    expect(checked).toEqual([0, 1, 2])
  })

  it('passes rows through transforms as extend does', () => {
    const doubled = { inverse: (items: TensorDict) => numbered(...idsOf(items).map((id) => 2 * id)) }
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), transforms: [doubled] })
    buffer.extend(numbered(1))
    expect(() => buffer.columns()).toThrow(refusal('INCOMPATIBLE', 'item must be given'))
    const columns = buffer.columns(numbered(0).index(0))
    columns.array('id', 'f32').set([3, 4])
    columns.commit(2)
    expect(idsOf(buffer.readAllInOrder())).toEqual([2, 6, 8])
  })

  it('serves a buffer that relabels, whose steps add refuses', () => {
    const buffer = new HERReplayBuffer({
      storage: new ListStorage(10),
      sampler: new RandomSampler(),
      rewardFn: (rows: TensorDict) => rows.tensor('reward'),
      endKeys: ['done'],
    })
    const columns = buffer.columns(
      TensorDict.from({ done: Tensor.zeros('bool', []), reward: Tensor.zeros('f32', []) }),
    )
    columns.commit(3)
    columns.commit()
    buffer[Symbol.dispose]()
    expect(buffer.storage.length).toBe(4)
  })

  it('is emptied with the buffer', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    const columns = buffer.columns(numbered(0).index(0))
    columns.commit(2)
    columns.commit(2)
    buffer.clear()
    expect(buffer.length).toBe(0)
    columns.commit()
    expect(buffer.length).toBe(1)
  })

  it('refuses counts, leaves and buffers that it cannot serve', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4), sampler: new PrioritizedSampler() })
    expect(() => buffer.columns()).toThrow(refusal('EMPTY', 'until the buffer has rows'))
    expect(() => buffer.columns(TensorDict.from({}))).toThrow(refusal('EMPTY', 'at least one tensor'))
    const json = TensorDict.from({ text: new NonTensorData('a') })
    expect(() => buffer.columns(json)).toThrow(refusal('INCOMPATIBLE', 'leaf ["text"]'))
    const columns = buffer.columns(numbered(0).index(0))
    expect(buffer.columns()).toBe(columns)
    expect(() => buffer.columns(numbered(0).index(0))).toThrow(refusal('INCOMPATIBLE'))
    for (const n of [0, -1, 1.5, Number.NaN, 5])
      expect(() => columns.commit(n)).toThrow(refusal('OUT_OF_RANGE', `from 1 to 4`))
    columns.commit(3)
    expect(() => columns.commit(2)).toThrow(refusal('OUT_OF_RANGE', 'from 1 to 1'))
    expect(() => columns.array('reward')).toThrow(refusal('UNKNOWN_NAME', '"reward"'))
    expect(() => columns.array('id', 'f64')).toThrow(refusal('INCOMPATIBLE', 'f32'))
    const lanes = new ReplayBuffer({ storage: new LazyTensorStorage(4, { lanes: [2] }) })
    expect(() => lanes.columns(numbered(0).index(0))).toThrow(refusal('INCOMPATIBLE'))
    buffer[Symbol.dispose]()
    expect(() => columns.commit()).toThrow(refusal('CLOSED'))
    expect(buffer.storage.length).toBe(3)
  })
})
