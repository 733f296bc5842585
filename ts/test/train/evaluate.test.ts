import { describe, expect, it } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import { defineTask, reward } from '../../src/task/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { createModel, evaluate } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { failing } from '../torchrl/envs/chats.js'

const rows = ['one', 'two', 'three']
const task = defineTask({
  rows,
  prompt: (row) => row,
  rewards: [reward<string>('same', ({ text, sample }) => text === sample)],
})

describe('evaluate', () => {
  it('measures a model on the same samples with the same draws each time', async () => {
    using model = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
    const options = { model, task, numProblems: 3, numAnswers: 2, maxTokens: 4 }
    const measured = await evaluate(options)
    expect(await evaluate(options)).toEqual(measured)
    expect(measured.samples.map(({ sample, problemIndex }) => [sample, problemIndex])).toEqual(
      rows.flatMap((row, index) => [
        [row, index],
        [row, index],
      ]),
    )
    expect(measured.samples[0]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
  })

  it('measures a policy with a renderer', async () => {
    using tokenizer = new CharTokenizer()
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const policy = new ScriptedPolicy({
      reply: (_, call) => [...tokenizer.encode(rows[call] ?? '').ids, renderer.stopIds[0] ?? 0],
    })
    const measured = await evaluate({ model: { policy, renderer }, task, numProblems: 3, concurrency: 1 })
    expect(measured).toMatchObject({ passRate: 1, meanReward: 1, numProblems: 3, passAt: { 1: 1 } })
    expect(measured.samples.map(({ rewardBreakdown }) => rewardBreakdown)).toEqual(
      rows.map(() => ({ same: 1 })),
    )
  })

  it('refuses what is no model, unknown options and impossible numbers', async () => {
    using model = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
    await expect(evaluate({ model: {}, task } as never)).rejects.toThrow(
      failing('MALFORMED', /options\.model/),
    )
    await expect(evaluate({ model, task, numProblem: 3 } as never)).rejects.toThrow(
      failing('UNKNOWN_NAME', /numProblems/),
    )
    await expect(evaluate({ model, task, numProblems: 0 })).rejects.toThrow(
      failing('OUT_OF_RANGE', /numProblems/),
    )
    await expect(evaluate({ model, task, numAnswers: 0.5 })).rejects.toThrow(
      failing('OUT_OF_RANGE', /numAnswers/),
    )
  })
})
