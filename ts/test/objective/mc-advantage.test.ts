import { describe, expect, it } from 'vitest'
import {
  MCAdvantage,
  type MCAdvantageOptions,
  MCAdvantageSelector,
  type MCAdvantageState,
  TopKRewardSelector,
} from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

const NAMES = {
  grpo_size: 'grpoSize',
  trajectory_return: 'trajectoryReturn',
  keep_return_bounds: 'keepReturnBounds',
  candidate_group_size: 'candidateGroupSize',
  candidate_selection_min_size: 'candidateSelectionMinSize',
}

const optionsOf = (config: object) =>
  Object.fromEntries(
    Object.entries(config).map(([name, value]) => [NAMES[name as keyof typeof NAMES], value]),
  ) as { grpoSize: number }

describe('MCAdvantage', () => {
  it('gives out the groups of torchrl with its counts', () => {
    for (const row of readRows('advantages', ({ kind }) => kind === 'mc_advantage')) {
      if (row.expected_error) {
        expect(() => new MCAdvantage(optionsOf(row.config))).toThrow(
          expect.objectContaining({ code: 'OUT_OF_RANGE' }),
        )
        continue
      }
      using queues = new MCAdvantage<number[]>(optionsOf(row.config))
      for (const [at, { trajectories }] of row.calls.entries()) {
        const given = trajectories.flatMap(
          ({ group, rewards }: { group: unknown; rewards: number[] }) =>
            queues.push(JSON.stringify(group), rewards, rewards) ?? [],
        ) as { item: number[]; advantage: Float64Array }[]
        const output = row.outputs[at] ?? { reward: [], advantage: [] }
        expectNear(
          given.flatMap(({ item }) => item),
          flat(output.reward),
        )
        expectNear(
          given.flatMap(({ advantage }) => [...advantage]),
          flat(output.advantage),
        )
      }
      const { writtenGroups, rescuedGroups, queuedTrajectories, trajectoryReturnMax } = queues.stats()
      expect([writtenGroups, rescuedGroups, queuedTrajectories]).toEqual([
        row.stats.written_groups,
        row.stats.rescued_groups,
        row.stats.queued_trajectories,
      ])
      if (trajectoryReturnMax !== null)
        expect(trajectoryReturnMax).toBeCloseTo(row.stats.trajectory_return_max, 6)
    }
  })

  it('asks a selector of ones own, with the items, and gives out its choice in its order', () => {
    using queues = new MCAdvantage<{ score: number }>({
      grpoSize: 2,
      trajectoryReturn: 'sum',
      candidateGroupSize: 3,
      candidateSelectionMinSize: 3,
      candidateSelector: ({ items, returns, groupSize }) => {
        expect([returns.length, groupSize]).toEqual([3, 2])
        return [...items.keys()].sort((a, b) => (items[b]?.score ?? 0) - (items[a]?.score ?? 0)).slice(0, 2)
      },
    })
    const push = (reward: number, score: number) => queues.push('group', [reward], { score })
    expect([push(0, 0), push(1, 2)]).toEqual([undefined, undefined])
    expect(push(3, 1)?.map(({ item }) => item.score)).toEqual([2, 1])
    expect(queues.stats()).toMatchObject({
      queuedGroups: 0,
      selectedTrajectories: 2,
      unselectedTrajectories: 1,
    })
  })

  it('gives back what waits, and counts from 0 again', () => {
    using queues = new MCAdvantage<string>({ grpoSize: 2 })
    queues.push('a', [1], 'first')
    expect(queues.clearQueues()).toEqual(['first'])
    expect(queues.stats()).toMatchObject({ completedTrajectories: 1, queuedTrajectories: 0 })
    queues.resetStats()
    expect(queues.stats().completedTrajectories).toBe(0)
    expect(queues.push('a', [1], 'second')).toBeUndefined()
  })

  it.each<[string, Partial<MCAdvantageOptions<string>>]>([
    ['one reward', {}],
    ['returns', { trajectoryReturn: 'sum', keepReturnBounds: [0.1, 0.9], candidateGroupSize: 5 }],
    [
      'a selector',
      {
        ...{ trajectoryReturn: 'sum', candidateGroupSize: 4, candidateSelectionMinSize: 4 },
        candidateSelector: ({ returns, items, groupSize }) => {
          expect(items).toHaveLength(returns.length)
          return [...items.keys()]
            .sort((a, b) => items[b]?.localeCompare(items[a] ?? '') ?? 0)
            .slice(0, groupSize)
        },
      },
    ],
  ])('goes on with half-filled groups after any push, as if nothing had been: %s', (_, options) => {
    const make = () => new MCAdvantage<string>({ grpoSize: 3, ...options })
    const pushes = Array.from(
      { length: 24 },
      (_, at) => [`${9 - (at % 4)}`, [(at * 7) % 3 ? 0 : 1], `item ${at}`] as const,
    )
    using whole = make()
    const wanted = pushes.map((push) => whole.push(...push))
    expect(wanted.filter((group) => group !== undefined).length).toBeGreaterThan(2)
    for (const cut of pushes.keys()) {
      using before = make()
      using after = make()
      const given = pushes.slice(0, cut).map((push) => before.push(...push))
      after.push('a group that is forgotten', [1], 'lost')
      after.loadStateDict(JSON.parse(JSON.stringify(before.stateDict())))
      expect([...given, ...pushes.slice(cut).map((push) => after.push(...push))]).toEqual(wanted)
      expect(after.stats()).toEqual(whole.stats())
      expect(after.stateDict()).toEqual(whole.stateDict())
    }
  })

  it('refuses what is no state of its own, and stays as it was', () => {
    using queues = new MCAdvantage<string>({ grpoSize: 2 })
    queues.push('a', [1], 'first')
    const state = queues.stateDict()
    using wide = new MCAdvantage<string>({ grpoSize: 9 })
    for (let at = 0; at < 5; at++) wide.push('a', [at], `${at}`)
    const broken: [unknown, string][] = [
      [null, 'MALFORMED'],
      [{ ...state, queues: 7 }, 'MALFORMED'],
      [{ ...state, items: [['0', 'first']] }, 'MALFORMED'],
      [{ ...state, item: [] }, 'UNKNOWN_NAME'],
      [{ ...state, queues: '{' }, 'CORRUPT'],
      [{ ...state, queues: state.queues.replace('1.0', '"one"') }, 'CORRUPT'],
      [{ ...state, items: [] }, 'CORRUPT'],
      [{ ...state, items: [[1, 'first']] }, 'CORRUPT'],
      [wide.stateDict(), 'CORRUPT'],
    ]
    for (const [bad, code] of broken)
      expect(() => queues.loadStateDict(bad as MCAdvantageState<string>)).toThrow(
        expect.objectContaining({ code }),
      )
    expect(queues.stateDict()).toEqual(state)
    expect(queues.push('a', [0], 'second')?.map(({ item }) => item)).toEqual(['first', 'second'])
  })

  it.each<[string, object, readonly number[]]>([
    ['OUT_OF_RANGE', { grpoSize: 1 }, [1]],
    ['OUT_OF_RANGE', { keepReturnBounds: [0, 1] }, [1]],
    ['UNKNOWN_NAME', { trajectoryReturn: 'min' }, [1]],
    ['UNKNOWN_NAME', { groupSize: 2 }, [1]],
    ['EMPTY', {}, []],
    ['NON_FINITE', {}, [Number.NaN]],
  ])('refuses with %s the options %j and rewards %j', (code, change, rewards) => {
    const run = () => new MCAdvantage<number>({ grpoSize: 2, ...change }).push('a', rewards, 0)
    expect(run).toThrow(expect.objectContaining({ code }))
  })
})

describe('MCAdvantageSelector', () => {
  it('refuses an unknown strategy when it is made, not when it first chooses', () => {
    const make = (options: object) => () => new MCAdvantageSelector(options)
    expect(make({ strategy: 'bset' })).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
    expect(make({ maxCombinations: 0 })).toThrow(expect.objectContaining({ name: 'FulmarError' }))
    expect(make({})).not.toThrow()
  })

  it('chooses as torchrl does', () => {
    for (const row of readRows('advantages', ({ kind }) => kind === 'selector')) {
      const { strategy, max_combinations: maxCombinations, group_size: groupSize } = row
      const selector = new MCAdvantageSelector({ strategy, maxCombinations })
      const bounds = row.keep_return_bounds && { keepReturnBounds: row.keep_return_bounds }
      const select = () => selector.select(row.returns, { groupSize, ...bounds })
      if (row.expected_error) expect(select).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
      else expect(select()).toEqual(row.selected ?? undefined)
    }
  })
})

describe('TopKRewardSelector', () => {
  it('keeps the rollouts of torchrl', () => {
    for (const row of readRows('advantages', ({ kind }) => kind === 'topk')) {
      const options = { totalDialogTurns: row.total_dialog_turns, topkSize: row.topk_size }
      if (row.expected_error) {
        expect(() => new TopKRewardSelector(options)).toThrow(
          expect.objectContaining({ code: 'OUT_OF_RANGE' }),
        )
        continue
      }
      using selector = new TopKRewardSelector<number>(options)
      const kept = row.items.map(({ prompt, reward }: { prompt: string; reward: number }) =>
        selector.push(prompt, reward, reward),
      )
      expect(kept).toEqual(row.outputs.map((output: number[] | null) => output ?? undefined))
    }
  })
})
