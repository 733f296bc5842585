import { describe, expect, it } from 'vitest'
import {
  ConsumingSampler,
  LazyTensorStorage,
  ListStorage,
  PrioritizedReplayBuffer,
  PrioritizedSampler,
  PrioritizedSliceSampler,
  PromptGroupSampler,
  RandomSampler,
  ReplayBuffer,
  Sampler,
  SamplerWithoutReplacement,
  SliceSampler,
  type SliceSamplerOptions,
  SliceSamplerWithoutReplacement,
  StalenessAwareSampler,
  StreamingSliceSampler,
} from '../../src/replay/index.js'
import { NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { allRefused, episodes, expectDrawn, idsOf, numbered, numbersOf, refusalsOf } from './items.js'

const range = (count: number, from = 0) => Array.from({ length: count }, (_, at) => from + at)
const END = [['next', 'done']]
const buffer = (sampler: Sampler, capacity = 100, seed = 5) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed })

/** The slices of a batch, each as its steps; a slice begins where the episode changes or steps do not follow each other. */
function slicesOf(batch: TensorDict): { episode: number; steps: number[] }[] {
  const episode = numbersOf(batch, 'episode')
  const last = numbersOf(batch, ['next', 'truncated'])
  const slices: { episode: number; steps: number[] }[] = []
  let steps: number[] = []
  for (const [at, step] of numbersOf(batch, 'step').entries()) {
    steps.push(step)
    if (!last[at]) continue
    slices.push({ episode: episode[at] as number, steps })
    steps = []
  }
  expect(steps).toEqual([])
  return slices
}

describe('RandomSampler', () => {
  it('draws each row as often as any other', () => {
    using one = buffer(new RandomSampler(), 10)
    one.extend(numbered(...range(7)))
    const { index } = one.sampleWithInfo(20_000)
    expectDrawn(index, [1, 1, 1, 1, 1, 1, 1, 0, 0, 0])
  })

  it('draws the same with the same seed, and other rows with another', () => {
    const draws = [5, 5, 6].map((seed) => {
      using one = buffer(new RandomSampler(), 50, seed)
      one.extend(numbered(...range(50)))
      return one.sampleWithInfo(20).index
    })
    expect(draws[1]).toEqual(draws[0])
    expect(draws[2]).not.toEqual(draws[0])
  })
})

describe('ConsumingSampler', () => {
  it('gives each row once, then none', () => {
    using one = buffer(new ConsumingSampler())
    one.extend(numbered(...range(5)))
    expect(idsOf(one.sample(3))).toHaveLength(3)
    expect([one.length, one.sampler.ranOut]).toEqual([2, false])
    expect(idsOf(one.sample(3))).toHaveLength(2)
    expect([one.length, one.sampler.ranOut]).toEqual([0, true])
    expect(codeOf(() => one.sample(3))).toBe('EMPTY')
  })

  it('gives each row as often as asked', () => {
    using one = buffer(new ConsumingSampler({ maxSampleCount: 2 }))
    one.extend(numbered(...range(4)))
    for (let time = 0; time < 2; time++) expect(idsOf(one.sample(4)).sort()).toEqual([0, 1, 2, 3])
    expect(one.length).toBe(0)
  })

  it('frees rows, which new items take before those of the ring', () => {
    using one = buffer(new ConsumingSampler(), 10)
    one.extend(numbered(...range(5)))
    const freed = one.sampleWithInfo(2).index
    expect(one.extend(numbered(...range(4)))).toEqual([...freed, 5, 6])
    expect(one.length).toBe(7)
  })
})

describe('PrioritizedSampler', () => {
  it('draws in proportion to (priority + eps) ^ alpha, with weights (leaf / least) ^ -beta', () => {
    const [alpha, beta, eps] = [0.7, 0.9, 0.01]
    using one = buffer(new PrioritizedSampler({ alpha, beta, eps }), 10)
    one.extend(numbered(...range(10)))
    one.updatePriority(range(10), range(10))
    const leaves = range(10).map((priority) => (priority + eps) ** alpha)
    const { index, info } = one.sampleWithInfo(40_000)
    expectDrawn(index, leaves)
    const weights = numbersOf(info, 'priority_weight')
    for (const [at, row] of index.entries()) {
      const expected = ((leaves[row] as number) / (leaves[0] as number)) ** -beta
      expect(Math.abs((weights[at] as number) - expected)).toBeLessThan(1e-5 * expected + 1e-9)
    }
  })

  it('takes exponents while it goes on; one of 0 forgets the priorities', () => {
    const sampler = new PrioritizedSampler({ alpha: 1, beta: 0 })
    using one = buffer(sampler, 4)
    one.extend(numbered(...range(3)))
    one.updatePriority([0, 1, 2], [1, 2, 3])
    expectDrawn(one.sampleWithInfo(9000).index, [1, 2, 3])
    sampler.alpha = 2
    sampler.beta = 1
    expect([sampler.alpha, sampler.beta]).toEqual([2, 1])
    expectDrawn(one.sampleWithInfo(9000).index, [1, 4, 9])
    expect(codeOf(() => Object.assign(sampler, { alpha: -1 }))).toBe('OUT_OF_RANGE')
    expect(sampler.alpha).toBe(2)
    sampler.alpha = 0
    sampler.alpha = 1
    expectDrawn(one.sampleWithInfo(9000).index, [1, 1, 1])
  })

  it('passes over the row -1, and gives one priority to all', () => {
    using one = buffer(new PrioritizedSampler({ alpha: 1, eps: 1e-30 }), 4)
    one.extend(numbered(...range(3)))
    one.updatePriority([0, -1, 1], [0, 9, 2])
    one.updatePriority([1, 2], 0)
    one.updatePriority([2], 1)
    expect(new Set(one.sampleWithInfo(50).index)).toEqual(new Set([2]))
  })

  it('gives new items the largest priority ever, or that within the buffer', () => {
    for (const [maxPriorityWithinBuffer, expected] of [
      [false, 9],
      [true, 1],
    ] as const) {
      using one = new PrioritizedReplayBuffer({
        storage: new LazyTensorStorage(2),
        alpha: 1,
        beta: 1,
        eps: 0,
        maxPriorityWithinBuffer,
        seed: 5,
      })
      one.extend(numbered(0, 1))
      one.updatePriority([0, 1], [9, 1])
      one.updatePriority([0], [1])
      one.extend(numbered(2))
      expectDrawn(one.sampleWithInfo(20_000).index, [expected, 1])
    }
  })

  it('draws nothing where a priority is 0 and eps too, as its weight would be infinite', () => {
    using one = buffer(new PrioritizedSampler({ alpha: 1, eps: 0 }), 2)
    one.extend(numbered(1, 2))
    one.updatePriority([0], 0)
    expect(codeOf(() => one.sample(1))).toBe('OUT_OF_RANGE')
  })
})

describe('SliceSampler', () => {
  const kinds: readonly SliceSamplerOptions[] = [
    { numSlices: 5, trajKey: 'episode' },
    { sliceLen: 5, trajKey: 'episode' },
    { numSlices: 5, endKeys: END },
    { sliceLen: 5, endKeys: END, strictLength: false },
    { sliceLen: 5, span: true, endKeys: END },
    { sliceLen: 5, span: [2, false], trajKey: 'episode' },
  ]
  it.each(kinds)('keeps each slice within its episode and lap: %j', (options) => {
    using one = buffer(new SliceSampler(options), 100)
    for (const [lap, length] of range(60).entries()) {
      const items = episodes(1 + ((length * 7) % 13))
      const count = items.batchSize[0] as number
      one.extend(items.set('episode', Tensor.from(BigInt64Array.from({ length: count }, () => BigInt(lap)))))
      if (lap < 20) continue
      const slices = slicesOf(one.sample(50))
      if (!options.span && options.strictLength !== false)
        expect(slices).toHaveLength(options.numSlices ?? 10)
      for (const { steps } of slices) {
        expect(steps).toEqual(range(steps.length, steps[0]))
        if (!options.span && options.strictLength !== false)
          expect(steps).toHaveLength(options.sliceLen ?? 10)
      }
    }
  })

  it('takes a shorter episode whole where that is allowed', () => {
    using one = buffer(new SliceSampler({ sliceLen: 5, strictLength: false, trajKey: 'episode' }), 200)
    one.extend(episodes(100, 4))
    for (let draw = 0; draw < 20; draw++) {
      const batch = one.sample(50)
      const slices = slicesOf(batch)
      expect(slices).toHaveLength(10)
      const short = slices.filter(({ episode }) => episode === 1)
      expect(batch.batchSize).toEqual([50 - short.length])
      for (const { steps } of short) expect(steps).toEqual([0, 1, 2, 3])
    }
  })

  it('draws episodes, or first steps, as often as each other', () => {
    const firsts = (by: 'trajectories' | 'steps') => {
      using one = buffer(new SliceSampler({ sliceLen: 2, by, endKeys: END }), 20)
      one.extend(episodes(2, 6))
      return one.sampleWithInfo(12_000).index.filter((_, at) => at % 2 === 0)
    }
    expectDrawn(firsts('trajectories'), [5, 0, 1, 1, 1, 1, 1, 0])
    expectDrawn(firsts('steps'), [1, 0, 1, 1, 1, 1, 1, 0])
  })

  it('pads to one length, told by a mask', () => {
    using one = buffer(
      new SliceSampler({ sliceLen: 4, strictLength: false, padOutput: true, endKeys: END }),
      8,
    )
    one.extend(episodes(3))
    const { items, index } = one.sampleWithInfo(8)
    expect(index).toEqual([0, 1, 2, 2, 0, 1, 2, 2])
    expect(items.batchSize).toEqual([8])
    const mask = one.sampleWithInfo(4).info.tensor(['collector', 'mask'])
    expect(Array.from(mask.data as Uint8Array)).toEqual([1, 1, 1, 0])
    // A masked row does not end the trajectory, so that its end is found without masked rows.
    expect(numbersOf(items, ['next', 'truncated'])).toEqual([0, 0, 1, 0, 0, 0, 1, 0])
  })

  it('flags the last step of each slice', () => {
    using one = buffer(new SliceSampler({ sliceLen: 2, endKeys: END }), 20)
    one.extend(episodes(10))
    const batch = one.sample(6)
    expect(numbersOf(batch, ['next', 'truncated'])).toEqual([0, 1, 0, 1, 0, 1])
    expect(batch.tensor(['next', 'done']).shape).toEqual([6, 1])
  })

  it('gathers the steps of fragmented episodes by their counts', () => {
    const steps = [0, 0, 1, 1, 2, 4, 3, 5].map(BigInt)
    const items = TensorDict.from(
      {
        episode: Tensor.from(BigInt64Array.from(steps, (_, at) => BigInt(at % 2))),
        time: Tensor.from(BigInt64Array.from(steps)),
      },
      { batchSize: [8] },
    )
    using one = buffer(
      new SliceSampler({ sliceLen: 2, trajKey: 'episode', fragmented: true, stepKey: 'time' }),
      8,
    )
    one.extend(items)
    // Episode 0 has rows 0, 2, 4, 6; episode 1 has 1, 3 and, as its count leaps, 5, 7.
    const { index } = one.sampleWithInfo(400)
    const drawn = new Set(range(200).map((slice) => `${index[2 * slice]},${index[2 * slice + 1]}`))
    expect([...drawn].sort()).toEqual(['0,2', '1,3', '2,4', '4,6', '5,7'])
    expect(codeOf(() => new SliceSampler({ sliceLen: 2, stepKey: 'time' }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => buffer(new SliceSampler({ sliceLen: 2, fragmented: true, span: true }), 8))).toBe(
      'INCOMPATIBLE',
    )
  })

  it('refuses what has no slice', () => {
    using one = buffer(new SliceSampler({ sliceLen: 5, endKeys: END }), 20)
    expect(codeOf(() => one.sample(5))).toBe('EMPTY')
    one.extend(episodes(3))
    expect(codeOf(() => one.sample(5))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => one.sample(7))).toBe('OUT_OF_RANGE')
  })

  it('refuses padding where no slice is short', () => {
    const options = { sliceLen: 2, padOutput: true, strictLength: true }
    expect(codeOf(() => buffer(new SliceSampler(options)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer(new SliceSampler({})))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer(new SliceSampler({ sliceLen: 2, numSlices: 2 })))).toBe('OUT_OF_RANGE')
  })
})

describe('SliceSamplerWithoutReplacement', () => {
  it('gives one slice of each episode an epoch', () => {
    using one = buffer(new SliceSamplerWithoutReplacement({ sliceLen: 5, trajKey: 'episode' }), 200)
    one.extend(episodes(100, 51))
    for (let epoch = 0; epoch < 3; epoch++) {
      const slices = slicesOf(one.sample(50))
      expect(slices.map(({ episode }) => episode).sort()).toEqual([0, 1])
      expect(one.sampler.ranOut).toBe(true)
    }
  })
})

describe('PrioritizedSliceSampler', () => {
  it('weighs slices by the priority of their first step', () => {
    const sampler = new PrioritizedSliceSampler({ numSlices: 3, endKeys: END, alpha: 0.7, beta: 0.9 })
    using one = buffer(sampler, 9)
    one.extend(episodes(3, 3, 3))
    one.updatePriority(range(9), [0, 3, 3, 0, 0, 0, 1, 1, 1])
    const first: number[] = []
    for (let draw = 0; draw < 1000; draw++) {
      const { index, info } = one.sampleWithInfo(6)
      const weights = numbersOf(info, 'priority_weight')
      for (const at of [0, 2, 4]) {
        first.push(index[at] as number)
        expect(weights[at]).toBe(weights[at + 1])
      }
    }
    const [one_, three] = [1, 3 ** 0.7]
    expectDrawn(first, [1e-9, three, 0, 1e-9, 1e-9, 0, one_, one_, 0])
  })
})

describe('StreamingSliceSampler', () => {
  it('gives every slice once, in the order of writing', () => {
    const sampler = new StreamingSliceSampler({ sliceLen: 2, trajKey: 'episode' })
    using one = buffer(sampler, 20)
    one.extend(episodes(4, 3))
    expect(slicesOf(one.sample(6)).map(({ episode, steps }) => [episode, ...steps])).toEqual([
      [0, 0, 1],
      [0, 2, 3],
      [1, 0, 1],
    ])
  })
})

describe('StalenessAwareSampler', () => {
  const versions = (...given: number[]) =>
    numbered(...range(given.length)).set('policy_version', Tensor.from(BigInt64Array.from(given, BigInt)))

  it('draws rows in proportion to 1 / (1 + staleness)', () => {
    const sampler = new StalenessAwareSampler({ maxStaleness: 2 })
    using one = buffer(sampler, 4)
    one.extend(versions(3, 2, 4, 3))
    sampler.consumerVersion = 5
    const { index, info } = one.sampleWithInfo(20_000)
    expectDrawn(index, [1 / 3, 0, 1 / 2, 1 / 3])
    const staleness = numbersOf(info, 'staleness')
    expect(staleness.every((one, at) => one === [2, 3, 1, 2][index[at] as number])).toBe(true)
    sampler.consumerVersion = 50
    expect(() => one.sample(1)).toThrow(/staleness/i)
  })

  it('needs versions', () => {
    using one = buffer(new StalenessAwareSampler(), 4)
    expect(codeOf(() => one.extend(numbered(1)))).toBe('UNKNOWN_NAME')
  })
})

describe('PromptGroupSampler', () => {
  const answers = (queries: readonly string[], rewards: readonly number[]) =>
    TensorDict.from({ query: new NonTensorStack([...queries]) }, { batchSize: [queries.length] }).set(
      ['next', 'reward'],
      Tensor.from(rewards),
    )

  it.each([
    ['variance', [2, -7, 10, 1], 3, [-7, 2, 10]],
    ['variance', [0, 0, 1, 1], 2, [0, 1]],
    ['reward', [2, -7, 10, 1], 2, [2, 10]],
    ['recency', [2, -7, 10, 1], 2, [1, 10]],
  ] as const)('chooses by %s', (strategy, rewards, samplesPerGroup, expected) => {
    const sampler = new PromptGroupSampler({ samplesPerGroup, strategy })
    using one = new ReplayBuffer({ storage: new ListStorage(10), sampler })
    one.extend(
      answers(
        rewards.map(() => 'q'),
        rewards,
      ),
    )
    const drawn = numbersOf(one.sample(samplesPerGroup), ['next', 'reward'])
    expect(drawn.sort((a, b) => a - b)).toEqual(expected)
  })

  it('gives blocks of one prompt, each prompt once before any again', () => {
    const sampler = new PromptGroupSampler({ numGroups: 3 })
    using one = new ReplayBuffer({ storage: new ListStorage(20), sampler })
    one.extend(
      answers(
        range(12).map((row) => 'abc'[row % 3] as string),
        range(12),
      ),
    )
    const { index } = one.sampleWithInfo(6)
    expect(new Set(index.map((row) => row % 3)).size).toBe(3)
    for (const at of [0, 2, 4]) expect((index[at] as number) % 3).toBe((index[at + 1] as number) % 3)
    expect(codeOf(() => one.sample(7))).toBe('OUT_OF_RANGE')
  })
})

describe('a sampler', () => {
  it('belongs to one buffer', () => {
    const sampler = new SamplerWithoutReplacement()
    using one = buffer(sampler)
    expect(one.sampler).toBe(sampler)
    expect(codeOf(() => buffer(sampler))).toBe('INCOMPATIBLE')
  })

  it('has parameters once it has a buffer', () => {
    const sampler = new PrioritizedSampler()
    expect(sampler.ranOut).toBe(false)
    expect(codeOf(() => sampler.alpha)).toBe('INCOMPATIBLE')
    expect(codeOf(() => Object.assign(new StalenessAwareSampler(), { consumerVersion: 1 }))).toBe(
      'INCOMPATIBLE',
    )
  })

  it('that cannot draw from lanes is refused where there are some', () => {
    const lanes = () => new LazyTensorStorage(4, { lanes: [2] })
    for (const sampler of [new ConsumingSampler(), new StreamingSliceSampler({ sliceLen: 2 })]) {
      expect(codeOf(() => new ReplayBuffer({ storage: lanes(), sampler }))).toBe('INCOMPATIBLE')
    }
  })
})

describe('weights of staleness', () => {
  const versions = (...ids: number[]) => Tensor.from(BigInt64Array.from(ids, BigInt))
  const drawn = (
    stalenessWeight: readonly number[] | ((staleness: number) => number),
    maxStaleness?: number,
  ) => {
    const sampler = new StalenessAwareSampler({
      stalenessWeight,
      ...(maxStaleness !== undefined && { maxStaleness }),
    })
    using one = buffer(sampler)
    one.extend(numbered(0, 1, 2, 3).set('policy_version', versions(9, 8, 7, 6)))
    sampler.consumerVersion = 9
    return idsOf(one.sample(4000))
  }

  it('are those of a table, whose last holds for all beyond, or of a function', () => {
    expectDrawn(drawn([1, 0, 3]), [1, 0, 3, 3])
    const asked: number[] = []
    const squared = (staleness: number) => {
      asked.push(staleness)
      return 1 / (1 + staleness) ** 2
    }
    expectDrawn(drawn(squared, 2), [1, 1 / 4, 1 / 9, 0])
    expect(asked).toEqual([0, 1, 2])
  })

  it('must be finite numbers >= 0, and a function of so many', () => {
    const made = (
      stalenessWeight: readonly number[] | ((staleness: number) => number),
      maxStaleness?: number,
    ) => codeOf(() => drawn(stalenessWeight, maxStaleness))
    expect(made(() => 1)).toBe('OUT_OF_RANGE')
    expect([drawn(() => 1, 65_535).length, made(() => 1, 65_536)]).toEqual([4000, 'LIMIT_EXCEEDED'])
    expect(made([])).toBe('EMPTY')
    expect([made([1, Number.NaN]), made([-1]), made([0])]).toEqual([
      'NON_FINITE',
      'OUT_OF_RANGE',
      'OUT_OF_RANGE',
    ])
  })
})

describe('the flags of slices', () => {
  const items = () => episodes(4).set('first', Tensor.from(new Uint8Array(4), { dtype: 'bool' }))
  const slice = (flags: Pick<SliceSamplerOptions, 'truncatedKey' | 'initKey'>) => {
    using one = buffer(new SliceSampler({ sliceLen: 2, endKeys: END, ...flags }))
    one.extend(items())
    return one.sample(2)
  }

  it('stand where they are asked for, or nowhere', () => {
    expect(numbersOf(slice({ truncatedKey: ['deep', 'cut'] }), ['deep', 'cut'])).toEqual([0, 1])
    const none = slice({ truncatedKey: null, initKey: null })
    expect([none.get(['next', 'truncated']), numbersOf(none, 'first')]).toEqual([undefined, [0, 0]])
    expect(numbersOf(slice({ initKey: 'first' }), 'first')).toEqual([1, 0])
  })
})

describe('a sampler of JavaScript', () => {
  it('needs no other function than sample', () => {
    const newest = Sampler.from({ sample: (length, count) => ({ rows: Array(count).fill(length - 1) }) })
    const one = buffer(newest, 4)
    one.extend(numbered(1, 2))
    expect(idsOf(one.sample(2))).toEqual([2, 2])
    one.loadStateDict(one.stateDict())
    one.clear()
    expect(one.length).toBe(0)
  })

  it.each([{}, { sample: 3 }, null])('is refused if it is %j, before it belongs to a buffer', (source) => {
    expect(codeOf(() => Sampler.from(source as never))).toBe('MALFORMED')
  })

  it('may refuse items before they are stored, by its check alone', () => {
    const thrower = (on: 'check' | 'extend') =>
      Sampler.from({
        check: () => {
          if (on === 'check') throw new Error('no such items')
        },
        extend: () => {
          if (on === 'extend') throw new Error('no such items')
        },
        sample: () => ({ rows: [0] }),
        clear: () => {},
      })
    const [checked, late] = [buffer(thrower('check')), buffer(thrower('extend'))]
    for (const one of [checked, late]) expect(codeOf(() => one.extend(numbered(1)))).toBe('USER_CODE')
    expect([checked.length, checked.stats.writeCount]).toEqual([0, 0])
    expect([late.length, late.stats.writeCount]).toEqual([1, 1])
  })
})

it('of your own that asks its buffer is refused at once, whatever it asks for and for whatever it is called', () => {
  const seen: Record<string, Record<string, unknown>> = {}
  let own: ReplayBuffer | undefined
  const asks = (name: string) => {
    if (own) seen[name] = refusalsOf(own, false)
  }
  const sampler = Sampler.from({
    get ranOut() {
      return false
    },
    check: () => asks('check'),
    extend: () => asks('extend'),
    sample: (_, count) => {
      asks('sample')
      return { rows: Array<number>(count).fill(0) }
    },
    updatePriority: () => asks('updatePriority'),
    clear: () => asks('clear'),
    state: () => {
      asks('state')
      return null
    },
    restore: () => asks('restore'),
  })
  own = buffer(sampler, 4)
  own.extend(numbered(1, 2))
  expect(idsOf(own.sample(2))).toEqual([1, 1])
  own.updatePriority([0], 2)
  own.loadStateDict(own.stateDict())
  own.clear()
  const refused = { ...allRefused(own, false), iterator: 'OUT_OF_RANGE' }
  const names = ['check', 'extend', 'sample', 'updatePriority', 'state', 'restore', 'clear']
  expect(seen).toEqual(Object.fromEntries(names.map((name) => [name, refused])))
  expect(own.length).toBe(0)
})
