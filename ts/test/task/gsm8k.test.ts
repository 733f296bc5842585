import { describe, expect, it } from 'vitest'
import type { GSM8KRow } from '../../src/reward/index.js'
import { gsm8kTruth } from '../../src/reward/index.js'
import { gsm8k, readRows } from '../../src/task/index.js'
import { codeOf, promptOf, rewardOf, said, take } from './said.js'

const rows = (await readRows(
  new URL('../../../tests/golden/reward/gsm8k.jsonl', import.meta.url).pathname,
)) as unknown as GSM8KRow[]

describe('gsm8k', () => {
  it('asks every question of its rows in each pass, in an order that its seed fixes', () => {
    expect(rows).toHaveLength(200)
    const pass = take(gsm8k({ rows, seed: 1 }), 'train', 200)
    expect(new Set(pass.map(({ question }) => question)).size).toBe(200)
    expect(take(gsm8k({ rows, seed: 1 }), 'train', 200)).toEqual(pass)
    expect(take(gsm8k({ rows, seed: 2 }), 'train', 200)).not.toEqual(pass)
    expect(take(gsm8k({ rows }), 'validation', 200)).toEqual(rows)
  })

  it('rewards the right answer of every row', async () => {
    const task = gsm8k({ rows, validationRows: rows.slice(0, 50) })
    for (const sample of take(task, 'validation', 50)) {
      const right = said([`<think>x</think><answer>${gsm8kTruth(sample.answer)}</answer>`])
      expect(await rewardOf(task, right, sample)).toBe(1)
      expect(task.isSolved(right, sample)).toBe(true)
      expect(await rewardOf(task, said(['<answer>-1</answer>']), sample)).toBe(0.1)
      expect(task.isSolved(said([sample.answer]), sample)).toBe(false)
    }
  })

  it('judges the completion only: an answer in the prompt is worth nothing', async () => {
    const task = gsm8k({ rows })
    const sample = { question: '<answer>4</answer>?', answer: '#### 4' }
    expect(await rewardOf(task, { status: 'completed', turns: [] }, sample)).toBe(0)
    const [system, user] = await promptOf(task, sample)
    expect([system?.role, user?.content]).toEqual(['system', sample.question])
    expect(await promptOf(gsm8k({ rows, systemPrompt: null }), sample)).toHaveLength(1)
  })

  it('rewards the form beside the answer where it has a weight', () => {
    const { signal } = new AbortController()
    const { rewardFns } = gsm8k({ rows, formWeight: 0.5 })
    expect(rewardFns.map(({ name, weight }) => [name, weight])).toEqual([
      ['gsm8k', undefined],
      ['form', 0.5],
    ])
    const sample = { question: '2 + 2?', answer: '#### 4' }
    const form = (text: string) => rewardFns[1]?.score(said([text]), sample, { signal })
    const whole = '<think>2 + 2</think><answer>5</answer>'
    expect([whole, '<think>2 + 2</think>', '4', ''].map(form)).toEqual([1, 0.5, 0, 0])
    expect(form('<think><think>a</think></think><answer>4</answer>')).toBe(0.5)
    expect(form('<answer>'.repeat(100_000))).toBe(0)
    expect(gsm8k({ rows, formWeight: 0 }).rewardFns).toHaveLength(1)
    for (const formWeight of [-1, Number.NaN, Number.POSITIVE_INFINITY, '1' as unknown as number])
      expect(codeOf(() => gsm8k({ rows, formWeight }))).toBe('OUT_OF_RANGE')
  })

  it('shows every row worked out in the form that it rewards in full, behind the prompt that a rollout begins with', async () => {
    const task = gsm8k({ rows, formWeight: 1 })
    const { signal } = new AbortController()
    for (const sample of take(task, 'validation', 200)) {
      const messages = task.workedExample(sample)
      expect(messages.slice(0, -1)).toEqual(await promptOf(task, sample))
      const text = String(messages.at(-1)?.content)
      const scores = task.rewardFns.map((rewardFn) => rewardFn.score(said([text]), sample, { signal }))
      expect(scores).toEqual([1, 1])
      expect(text).not.toMatch(/<<|####/)
    }
    expect(gsm8k({ rows, systemPrompt: null }).workedExample({ question: '?', answer: '#### 4' })).toEqual([
      { role: 'user', content: '?' },
      { role: 'assistant', content: '<think></think>\n<answer>4</answer>' },
    ])
  })

  it('goes on where a checkpoint stood', () => {
    const dataset = gsm8k({ rows }).makeDataset('train')
    for (let taken = 0; taken < 250; taken++) dataset.next()
    const state = dataset.stateDict()
    const next = [dataset.next(), dataset.next()]
    const resumed = gsm8k({ rows }).makeDataset('train')
    resumed.loadStateDict(state)
    expect([resumed.next(), resumed.next()]).toEqual(next)
  })

  it('refuses rows without a right answer before anything runs, and says which', () => {
    const [good] = rows
    const load = (row: unknown) => codeOf(() => gsm8k({ rows: [...(good ? [good] : []), row as GSM8KRow] }))
    expect(load({ question: 'a', answer: '4' })).toBe('MALFORMED')
    expect(load({ question: 'a' })).toBe('MALFORMED')
    expect(load({ answer: '#### 4' })).toBe('MALFORMED')
    expect(() => gsm8k({ rows: [{ question: 'a', answer: '4' }] })).toThrow(/^rows\[0\]: answer must hold/)
    expect(codeOf(() => gsm8k({ rows: [] }))).toBe('EMPTY')
    expect(codeOf(() => gsm8k({ rows, validationRows: [] }))).toBe('EMPTY')
    // @ts-expect-error an unknown key
    expect(codeOf(() => gsm8k({ rows, sead: 1 }))).toBe('UNKNOWN_NAME')
  })
})
