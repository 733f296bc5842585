import { describe, expect, it } from 'vitest'
import type { IFEvalRow } from '../../src/reward/ifeval/index.js'
import { ifeval } from '../../src/task/ifeval.js'
import { readRows } from '../../src/task/index.js'
import { codeOf, promptOf, rewardOf, said, take } from './said.js'

const rows = (await readRows(
  new URL('../../../tests/golden/reward/ifeval.jsonl', import.meta.url).pathname,
)) as unknown as IFEvalRow[]

describe('ifeval', () => {
  it('has a check for every instruction of every prompt', () => {
    const prompts = take(ifeval({ rows }), 'validation', rows.length)
    expect(prompts).toHaveLength(541)
    expect(prompts.map(({ prompt }) => prompt)).toEqual(rows.map(({ prompt }) => prompt))
  })

  it('rewards the first answer and its form, or all that was said', async () => {
    const row = { prompt: 'p', instruction_id_list: ['punctuation:no_comma'], kwargs: [{}] }
    const [tagged, whole] = [ifeval({ rows: [row] }), ifeval({ rows: [row], form: 'whole' })]
    const [sample] = take(tagged, 'train', 1)
    if (sample === undefined) throw new Error('no sample')
    expect(await rewardOf(tagged, said(['<think>a, b</think><answer>yes</answer>']), sample)).toBeCloseTo(
      1.15,
      12,
    )
    expect(await rewardOf(tagged, said(['yes']), sample)).toBe(0)
    expect(await rewardOf(whole, said(['yes']), sample)).toBeCloseTo(1, 12)
    expect(await rewardOf(whole, said(['yes, sure']), sample)).toBe(0)
    expect([tagged, whole].map((task) => task.isSolved(said(['yes']), sample))).toEqual([false, true])
    expect(await promptOf(whole, sample)).toEqual([{ role: 'user', content: 'p' }])
  })

  it('refuses prompts that nobody can check, and says which', () => {
    const load = (row: Partial<IFEvalRow>) =>
      codeOf(() => ifeval({ rows: [{ prompt: 'p', instruction_id_list: [], kwargs: [], ...row }] }))
    expect(load({ instruction_id_list: ['keywords:existence'], kwargs: [{}] })).toBe('MALFORMED')
    expect(load({ instruction_id_list: ['a:b'], kwargs: [{}] })).toBe('UNKNOWN_NAME')
    expect(load({ instruction_id_list: ['punctuation:no_comma'] })).toBe('SHAPE_MISMATCH')
    expect(load({ prompt: '' })).toBe('MALFORMED')
    // @ts-expect-error an unknown form
    expect(codeOf(() => ifeval({ rows, form: 'free' }))).toBe('UNKNOWN_NAME')
  })
})
