import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AdamW } from '../../src/model/index.js'
import { BradleyTerryLoss, type RewardPairs } from '../../src/objective/index.js'
import { createModel, loadModel, type Model, rewardModel } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'

const fresh = () => createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
const pairs = ['Tea?', 'Coffee?', 'Milk?', 'Bread?'].map((prompt) => ({
  prompt,
  chosen: 'yes',
  rejected: 'no',
}))
const answered = (prompt: string, content: string) => [
  { role: 'user', content: prompt },
  { role: 'assistant', content },
]

async function all<Step>(steps: AsyncIterable<Step>): Promise<Step[]> {
  const taken: Step[] = []
  for await (const step of steps) taken.push(step)
  return taken
}

const rewardOf = async (judge: Model, prompt: string, answer: string) =>
  Number((await judge.rewards([answered(prompt, answer)]))[0])

describe('rewardModel', () => {
  it('ranks the chosen answer first, also behind a prompt that it was not trained on, and is loaded as it was saved', async () => {
    using model = fresh()
    using judge = await model.withScalarHead({ seed: 2 })
    const steps = await all(
      rewardModel({ model: judge, pairs, batchSize: 4, epochs: 20, learningRate: 0.01 }),
    )
    expect(steps.length).toBe(20)
    expect(steps.at(-1)?.accuracy).toBe(1)
    expect(Number(steps.at(-1)?.loss)).toBeLessThan(Number(steps[0]?.loss))
    expect(await rewardOf(judge, 'Rice?', 'yes')).toBeGreaterThan(await rewardOf(judge, 'Rice?', 'no'))
    const folder = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'judge')
    await judge.save(folder)
    using again = await loadModel(folder)
    expect(await rewardOf(again, 'Rice?', 'yes')).toBe(await rewardOf(judge, 'Rice?', 'yes'))
    await expect(model.chat('Tea?', { maxTokens: 2 })).resolves.toMatchObject({ role: 'assistant' })
  })

  it('gives the loss the numbers at the last tokens of whole conversations, and one step is that by hand', async () => {
    using model = fresh()
    using judge = await model.withScalarHead({ seed: 2 })
    using byHand = await model.withScalarHead({ seed: 2 })
    const seen: RewardPairs[] = []
    const own = new BradleyTerryLoss()
    const loss = {
      forward: (batch: RewardPairs) => {
        seen.push(batch)
        return own.forward(batch)
      },
    }
    const before = [await rewardOf(judge, 'Tea?', 'yes'), await rewardOf(judge, 'Tea?', 'no')]
    const options = { pairs: pairs.slice(0, 1), batchSize: 1, steps: 1, learningRate: 0.01 }
    const [step] = await all(rewardModel({ model: judge, loss, ...options }))
    expect([seen[0]?.chosen[0], seen[0]?.rejected[0]]).toEqual(before)
    expect(step?.accuracy).toBe(Number(Number(before[0]) > Number(before[1])))
    const { decoder, renderer } = byHand
    using optimizer = new AdamW(decoder, { learningRate: 0.01 })
    const { learningRate: _, ...parts } = options
    await all(rewardModel({ decoder, renderer, optimizer, ...parts }))
    expect(await rewardOf(byHand, 'Tea?', 'yes')).toBe(await rewardOf(judge, 'Tea?', 'yes'))
  })

  it('reads pairs from a file of JSON lines', async () => {
    using model = fresh()
    using judge = await model.withScalarHead({ seed: 2 })
    const file = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'pairs.jsonl')
    await writeFile(file, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(''))
    const steps = await all(rewardModel({ model: judge, pairs: file, batchSize: 2 }))
    expect(steps.map(({ index, numSteps }) => [index, numSteps])).toEqual([
      [0, 2],
      [1, 2],
    ])
  })

  it('refuses a model without the head, an adapter, pairs of another form, and stops by its signal', async () => {
    using model = fresh()
    using judge = await model.withScalarHead({ seed: 2 })
    await expect(all(rewardModel({ model, pairs }))).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
    await expect(model.rewards([answered('Tea?', 'yes')])).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
    expect(() => rewardModel({ model: judge, pairs, lora: { rank: 2 } } as never)).toThrow(
      expect.objectContaining({ code: 'UNKNOWN_NAME' }),
    )
    expect(() => rewardModel({ model: judge, pairs: [] })).not.toThrow()
    await expect(all(rewardModel({ model: judge, pairs: [], steps: 1 }))).rejects.toMatchObject({
      code: 'EMPTY',
    })
    const wrong = [{ prompt: 'Tea?', chosen: 7, rejected: 'no' }]
    await expect(all(rewardModel({ model: judge, pairs: wrong as never }))).rejects.toMatchObject({
      code: 'MALFORMED',
    })
    const signal = AbortSignal.abort()
    await expect(all(rewardModel({ model: judge, pairs, signal }))).rejects.toMatchObject({ code: 'ABORTED' })
    expect(await judge.rewards([])).toEqual(new Float32Array())
    await expect(judge.rewards('Tea?' as never)).rejects.toMatchObject({ code: 'MALFORMED' })
  })
})
