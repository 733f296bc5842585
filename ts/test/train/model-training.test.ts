import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import { AdamW, Decoder } from '../../src/model/index.js'
import { GRPOLoss, type LossBatch, type Objective } from '../../src/objective/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { defineTask, reward } from '../../src/task/index.js'
import {
  createModel,
  dpo,
  expertIteration,
  grpo,
  type Model,
  SAMPLER_CORRECTION,
  sft,
} from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { failing } from '../torchrl/envs/chats.js'

const fresh = () => createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
/** Rewards answers that hold many lower-case letters, which a model learns within a few steps. */
const task = defineTask({
  name: 'letters',
  rows: ['a', 'b', 'c'],
  prompt: (row) => row,
  rewards: [reward<string>('letters', ({ text }) => text.replace(/[^a-z]/g, '').length / 8)],
  answer: (row) => row.repeat(4),
})
const rollouts = {
  task,
  groupSize: 4,
  promptsPerStep: 2,
  maxTokens: 8,
  steps: 3,
  seed: 5,
  learningRate: 0.01,
}

async function all<Step>(steps: AsyncIterable<Step>): Promise<Step[]> {
  const taken: Step[] = []
  for await (const step of steps) taken.push(step)
  return taken
}

describe('recipes with a model', () => {
  it('grpo takes the steps that its parts take, bit for bit', async () => {
    using model = fresh()
    const steps = await all(grpo({ model, ...rollouts }))
    using other = fresh()
    using optimizer = new AdamW(other.decoder, { learningRate: 0.01 })
    const { policy, renderer } = other
    const rollouter = new Rollouter({ policy, renderer, task, groupSize: 4, maxTokens: 8, seed: 5 })
    const byParts = await all(grpo({ policy, rollouter, optimizer, promptsPerStep: 2, steps: 3 }))
    expect(steps.map(({ metrics }) => metrics)).toEqual(byParts.map(({ metrics }) => metrics))
    expect(steps.some(({ update }) => update !== null)).toBe(true)
    expect(await model.decoder.toSafetensors()).toEqual(await other.decoder.toSafetensors())
  })

  it('takes the same steps with speculative tokens, bit for bit', async () => {
    const run = async (speculativeTokens: number) => {
      using model = fresh()
      const steps = await all(grpo({ model, ...rollouts, drawMethod: 'gumbelMax', speculativeTokens }))
      return [steps.map(({ metrics }) => metrics), await model.decoder.toSafetensors()]
    }
    expect(await run(3)).toEqual(await run(0))
  })

  it('takes the same steps with activations that sampling kept, bit for bit', async () => {
    const run = async (options: object) => {
      using model = fresh()
      const kept: number[] = []
      const metrics: object[] = []
      for await (const step of grpo({ model, ...rollouts, ...options })) {
        metrics.push(step.metrics)
        kept.push(model.decoder.numKeptRows)
      }
      return { kept, metrics, weights: await model.decoder.toSafetensors() }
    }
    const [plain, keeping] = [await run({}), await run({ activationBytesMax: 2 ** 28 })]
    expect(keeping.metrics).toEqual(plain.metrics)
    expect(keeping.weights).toEqual(plain.weights)
    expect(Math.max(...keeping.kept)).toBeGreaterThan(0)
    expect(plain.kept).toEqual(plain.kept.map(() => 0))
  })

  it.each([{ rolloutWeights: 'q8' }, { rolloutKvCacheDtype: 'bf16' }] as const)(
    'corrects for rollouts that were sampled by %j',
    async (rounded) => {
      using model = fresh()
      const steps = await all(grpo({ model, ...rollouts, steps: 30, ...rounded }))
      const updates = steps.flatMap(({ update }) => update ?? [])
      expect(updates.length).toBeGreaterThan(20)
      for (const { metrics } of updates) {
        // The old log-probs are the trainer's own, and the sampler's are near them.
        expect(metrics).toMatchObject({ ratioMean: 1, ratioMax: 1, clipFraction: 0 })
        expect(metrics.samplerKl).toBeGreaterThan(0)
        expect(metrics.samplerKl).toBeLessThan(0.01)
        expect(Math.abs((metrics.correctionMean ?? 0) - 1)).toBeLessThan(0.05)
      }
      const means = steps.map(({ reward: { mean } }) => mean)
      const meanOf = (part: number[]) => part.reduce((sum, value) => sum + value, 0) / part.length
      expect(meanOf(means.slice(-5))).toBeGreaterThan(meanOf(means.slice(0, 5)) + 0.2)
      using plain = fresh()
      const [step] = await all(grpo({ model: plain, ...rollouts, steps: 1 }))
      expect(step?.update?.metrics).not.toHaveProperty('samplerKl')
      using other = fresh()
      expect(
        await all(expertIteration({ model: other, ...rollouts, numExperts: 1, ...rounded })),
      ).toHaveLength(3)
    },
  )

  it('gives a loss both log-probs where it asks for the correction', async () => {
    using model = fresh()
    const seen: LossBatch[] = []
    const loss: Objective<LossBatch> = {
      forward(batch) {
        seen.push(batch)
        return new GRPOLoss({ corrections: [SAMPLER_CORRECTION] }).forward(batch)
      },
    }
    await all(grpo({ model, ...rollouts, loss, correctSampler: true }))
    expect(seen.length).toBeGreaterThan(0)
    for (const { logProb, oldLogProb, samplerLogProb, mask } of seen) {
      expect(oldLogProb).toEqual(logProb)
      // The sampler has the same weights here, so its log-probs are the same bits.
      const trained = (values?: Float32Array) => values?.filter((_, at) => mask[at] === 1)
      expect(trained(samplerLogProb)).toEqual(trained(logProb))
    }
  })

  it('trains an adapter alone, that lora describes', async () => {
    for (const recipe of [
      (model: Model) => grpo({ model, ...rollouts, lora: { rank: 2, targetModules: ['q_proj'] } }),
      (model: Model) =>
        expertIteration({ model, ...rollouts, numExperts: 1, lora: { rank: 2, targetModules: ['q_proj'] } }),
    ]) {
      using model = fresh()
      const before = await model.decoder.toSafetensors()
      expect((await all(recipe(model))).length).toBe(3)
      expect(await model.decoder.toSafetensors()).toEqual(before)
      // Two layers of one projection from 16 to 16 each.
      expect(model.decoder.numTrainable).toBe(2 * 2 * (16 + 16))
    }
  })

  it('trains the adapter that a model has, and refuses lora for a second one at once', async () => {
    using model = fresh()
    const lora = { rank: 2 }
    await all(sft({ model, task, steps: 1, lora }))
    const { version } = model.decoder
    await all(sft({ model, task, steps: 2 }))
    expect(model.decoder.version).toBe(version + 2)
    expect(() => sft({ model, task, steps: 1, lora })).toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE', argument: 'options.lora' }),
    )
  })

  it('sft goes through the rows of a list or a file as often as it is told', async () => {
    const rows = [
      { prompt: 'Tea?', completion: 'yes' },
      {
        messages: [
          { role: 'user', content: 'Hi' },
          { role: 'assistant', content: 'hello' },
        ],
      },
      { prompt: 'Coffee?', completion: 'no' },
    ]
    const file = join(await mkdtemp(join(tmpdir(), 'fulmar-rows-')), 'rows.jsonl')
    await writeFile(file, rows.map((row) => JSON.stringify(row)).join('\n'))
    const losses = []
    for (const examples of [rows, file]) {
      using model = fresh()
      const steps = await all(sft({ model, examples, batchSize: 2, epochs: 4, learningRate: 0.02 }))
      expect(steps.length).toBe(6)
      losses.push(steps.map(({ loss }) => loss))
    }
    expect(losses[0]).toEqual(losses[1])
    expect(losses[0]?.at(-1)).toBeLessThan(Number(losses[0]?.[0]))
  })

  it('sft imitates the worked examples of a task', async () => {
    using model = fresh()
    const steps = await all(sft({ model, task, steps: 30, batchSize: 3, learningRate: 0.02 }))
    expect(steps.at(-1)?.loss).toBeLessThan(0.5 * Number(steps[0]?.loss))
  })

  it('dpo stays near a copy of the model, or near the weights under a new adapter', async () => {
    const pairs = [{ prompt: 'Tea?', chosen: 'yes', rejected: 'no' }]
    for (const lora of [undefined, { rank: 2 }]) {
      using model = fresh()
      const steps = await all(
        dpo({ model, pairs, batchSize: 1, epochs: 5, learningRate: 0.02, ...(lora && { lora }) }),
      )
      expect(steps[0]?.loss).toBeCloseTo(Math.log(2), 5)
      expect(steps[4]?.loss).toBeLessThan(0.69)
    }
  })

  it('dpo reads pairs from a file, and takes a reference', async () => {
    using model = fresh()
    using reference = Decoder.fromSeed(model.decoder.config, { seed: 9 })
    const file = join(await mkdtemp(join(tmpdir(), 'fulmar-pairs-')), 'pairs.jsonl')
    await writeFile(file, '{"prompt":"Tea?","chosen":"yes","rejected":"no"}')
    const [step] = await all(dpo({ model, pairs: file, reference, batchSize: 1 }))
    expect(step?.loss).not.toBeCloseTo(Math.log(2), 3)
  })

  it('needs a number of steps where rows have no end', async () => {
    using model = fresh()
    await expect(all(sft({ model, task }))).rejects.toThrow(failing('MALFORMED', /options\.steps/))
    const examples = listDataset({ items: [{ prompt: 'a', completion: 'b' }] })
    expect((await all(sft({ model, examples, steps: 2, batchSize: 1 }))).length).toBe(2)
  })

  it('refuses at once what is no model, unknown options and examples beside a task', () => {
    using model = fresh()
    const examples = [{ prompt: 'a', completion: 'b' }]
    expect(() => grpo({ ...rollouts, model: {} } as never)).toThrow(failing('MALFORMED', /options\.model/))
    expect(() => grpo({ model, ...rollouts, group: 4 } as never)).toThrow(failing('UNKNOWN_NAME', /group/))
    expect(() => grpo({ model, ...rollouts, lora: { r: 4 } } as never)).toThrow(
      failing('UNKNOWN_NAME', /lora\.r/),
    )
    expect(() => grpo({ model, ...rollouts, optimizer: { learningRate: 1 } } as never)).toThrow(
      failing('UNKNOWN_NAME'),
    )
    expect(() => grpo({ model, task, groupSize: 0 })).toThrow(failing('OUT_OF_RANGE', /groupSize/))
    expect(() => sft({ model })).toThrow(failing('MALFORMED', /examples or a task/))
    expect(() => sft({ model, task, examples })).toThrow(failing('MALFORMED', /examples or a task/))
    expect(() => sft({ model, examples, decoder: model.decoder } as never)).toThrow(
      failing('UNKNOWN_NAME', /decoder/),
    )
    expect(() => sft({ model, task: { ...task, workedExample: undefined } as never, steps: 1 })).toThrow(
      failing('INCOMPATIBLE', /letters/),
    )
    expect(() => dpo({ model, pairs: [] as never, pear: 1 } as never)).toThrow(
      failing('UNKNOWN_NAME', /pear/),
    )
  })
})
