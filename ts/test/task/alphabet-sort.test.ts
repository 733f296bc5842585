import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ALPHABET_SORT_MAX } from '../../src/task/alphabet-sort.js'
import { alphabetScore, alphabetSort, sortedNames } from '../../src/task/index.js'
import { codeOf, promptOf, rewardOf, said, take } from './said.js'

const names = ['AliceZephyr', 'BobYang', 'CarolXu']
const block = (lines: readonly string[], tag = 'alphabetical_sorted') =>
  `<${tag}>\n${lines.join('\n')}\n</${tag}>`
const right = (sample: Parameters<typeof sortedNames>[0]) =>
  sample.batches.map((_, turn) =>
    block(sortedNames(sample, turn), turn === 0 ? undefined : 'combined_alphabetical_sorted'),
  )

describe('alphabetSort', () => {
  it('is fixed by its seed, covers all counts of turns, and never shows a name twice', () => {
    const samples = take(alphabetSort({ seed: 3 }), 'train', 300)
    expect(take(alphabetSort({ seed: 3 }), 'train', 300)).toEqual(samples)
    expect(new Set(samples.map(({ batches }) => batches.length))).toEqual(new Set([1, 2, 3]))
    expect(new Set(samples.flatMap(({ batches }) => batches.map((batch) => batch.length)))).toEqual(
      new Set([1, 2, 3, 4, 5]),
    )
    for (const { batches } of samples) expect(new Set(batches.flat()).size).toBe(batches.flat().length)
  })

  it('sorts by the chosen name, then by the other, and marks new names from the second turn on', () => {
    const tie = ['AliceZephyr', 'AliceYoung']
    for (const sortBy of ['first', 'last'] as const) {
      expect(sortedNames({ sortBy, batches: [tie] }, 0)).toEqual(['AliceYoung', 'AliceZephyr'])
    }
    const sample = { sortBy: 'last' as const, batches: [names.slice(0, 2), names.slice(2)] }
    expect(sortedNames(sample, 1)).toEqual(['CarolXu // new name!', 'BobYang', 'AliceZephyr'])
  })

  it.each([
    [['AliceZephyr', 'CarolXu', 'BobYang'], 0.245222],
    [['AliceZephyr', 'BobYang'], 0.4656966],
    [['Name1', 'Name2'], 0.00012277],
    [['alicezephyr', '', '  BobYang ', 'CarolXu'], 1],
  ])('scores %j %d', (lines, score) => {
    expect(alphabetScore(block(lines), names, 0)).toBeCloseTo(score, 6)
  })

  it('counts the last block of the right tag', () => {
    expect(alphabetScore(`${block(['x'])}${block(names)}`.toUpperCase(), names, 0)).toBe(1)
    expect(alphabetScore(block(names, 'combined_alphabetical_sorted'), names, 0)).toBe(0)
    expect(alphabetScore(names.join('\n'), names, 0)).toBe(0)
  })

  it('rewards the mean over all turns that should be there', async () => {
    const task = alphabetSort()
    const sample = { sortBy: 'first' as const, batches: [names.slice(0, 2), names.slice(2)] }
    const turns = right(sample)
    expect(await rewardOf(task, said(turns), sample)).toBe(1)
    expect(await rewardOf(task, said(turns.slice(0, 1)), sample)).toBe(0.5)
    expect([task.isSolved(said(turns), sample), task.isSolved(said(turns.slice(0, 1)), sample)]).toEqual([
      true,
      false,
    ])
  })

  it('asks again for each batch, whatever was said, and then is done', async () => {
    const task = alphabetSort()
    const sample = { sortBy: 'first' as const, batches: [['AdaKim'], ['BelaKim'], ['CarolKim']] }
    expect((await promptOf(task, sample))[0]?.content).toContain('<alphabetical_sorted>')
    const env = task.makeEnv(sample)
    const step = async () =>
      await env.step({ role: 'assistant', content: '?' }, { signal: new AbortController().signal })
    const contents = [await step(), await step()].map(({ envMessages }) => envMessages?.[0]?.content)
    expect(contents[0]).toContain('<combined_alphabetical_sorted>')
    expect(contents[0]).toContain('// new name!')
    expect(contents[1]).toContain('same format')
    expect(await step()).toEqual({ done: true })
  })

  it('gives the right answer of any sample the whole reward', async () => {
    const task = alphabetSort({ maxTurns: ALPHABET_SORT_MAX, maxNamesPerTurn: ALPHABET_SORT_MAX })
    for (const sample of take(task, 'validation', 40))
      expect(await rewardOf(task, said(right(sample)), sample)).toBe(1)
  })

  it('refuses bounds of nothing, too many and names that cannot be sorted', () => {
    expect(() => alphabetSort({ maxTurns: 0 })).toThrow('maxTurns must be >= 1')
    expect(codeOf(() => alphabetSort({ maxTurns: ALPHABET_SORT_MAX + 1 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => alphabetSort({ names }))).toBe('OUT_OF_RANGE')
    const wrong = [
      ['Alice'],
      ['alice Z'],
      ['AliceZ', 'AliceZ'],
      ['AliceZephyr', 'AliceZephyr'],
      [`A${'a'.repeat(20)}Bob`],
    ]
    expect(wrong.map((list) => codeOf(() => alphabetSort({ names: list })))).toEqual(
      wrong.map(() => 'MALFORMED'),
    )
    fc.assert(
      fc.property(fc.constantFrom(-1, 0.5, Number.NaN, 100), (maxNamesPerTurn) => {
        expect(codeOf(() => alphabetSort({ maxNamesPerTurn }))).toBe('OUT_OF_RANGE')
      }),
      { seed: 1, numRuns: 10 },
    )
  })
})
