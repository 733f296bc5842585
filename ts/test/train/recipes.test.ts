/** The recipes `sft`, `grpo` and `trainStep`: they share their parts. */

import { describe, expect, it } from 'vitest'
import { windowedFifo } from '../../src/collect/index.js'
import { describeBuild } from '../../src/core/index.js'
import { listDataset } from '../../src/data/index.js'
import { AdamW, Decoder } from '../../src/model/index.js'
import type { GRPOLoss } from '../../src/objective/index.js'
import {
  type GrpoOptions,
  type GrpoStep,
  grpo,
  type SftExample,
  type SftOptions,
  sft,
  trainStep,
} from '../../src/train/index.js'
import { EMPTY_STEPS_MAX } from '../../src/train/rollout-training.js'
import { TINY } from '../model/tiny.js'
import { makeParts } from './parts.js'

const result = { metrics: {}, denominators: {} }
const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })

async function collect<T>(steps: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const step of steps) all.push(step)
  return all
}

describe('sft', () => {
  const items = [
    [
      { role: 'user', content: 'say' },
      { role: 'assistant', content: 'hello' },
    ],
  ]

  it('makes worked answers likely', async () => {
    using parts = makeParts()
    const steps = await collect(
      sft({ ...parts.forSft, examples: listDataset({ items }), batchSize: 4, steps: 40 }),
    )
    expect(steps.at(-1)?.loss).toBeLessThan(0.2)
    const options = { requestId: 'a', seed: 0, maxTokens: 8, temperature: 0, stopIds: parts.renderer.stopIds }
    const prompt = parts.renderer.render([{ role: 'user', content: 'say' }], { addGenerationPrompt: true })
    const { ids } = await parts.policy.generate({ ...options, promptIds: prompt.ids })
    expect(parts.renderer.parse(ids).content).toBe('hello')
  })

  it('refuses examples without an answer and an empty dataset', async () => {
    using parts = makeParts()
    const silent = listDataset({ items: [[{ role: 'user', content: 'say' }]] })
    await expect(collect(sft({ ...parts.forSft, examples: silent, batchSize: 1, steps: 1 }))).rejects.toThrow(
      code('EMPTY'),
    )
    expect(() => listDataset({ items: [] })).toThrow(code('EMPTY'))
  })

  it('takes every form of a row, in a list or a data set, and trains the same tokens', async () => {
    const conversation = items[0] ?? []
    const [question, answer] = [conversation.slice(0, 1), conversation.slice(1)]
    const run = async (examples: SftOptions['examples']) => {
      using parts = makeParts()
      const steps = await collect(sft({ ...parts.forSft, examples, batchSize: 2, steps: 3 }))
      return steps.map(({ loss, numTokens }) => [loss, numTokens])
    }
    const wanted = await run(listDataset({ items }))
    expect(await run([conversation])).toEqual(wanted)
    expect(await run([{ messages: conversation }])).toEqual(wanted)
    expect(await run([{ prompt: question, completion: answer }])).toEqual(wanted)
    expect(await run([{ prompt: 'say', completion: 'hello' }])).toEqual(wanted)
    expect(await run(listDataset({ items: [{ prompt: 'say', completion: answer }] }))).toEqual(wanted)
  })

  it('trains a completion alone, where a conversation trains all that the assistant says', async () => {
    using parts = makeParts()
    const say = (content: string) => ({ role: 'assistant', content })
    const ask = { role: 'user', content: 'say' }
    const numTrained = async (example: SftExample) => {
      const [step] = await collect(sft({ ...parts.forSft, examples: [example], batchSize: 1, steps: 1 }))
      return step?.metrics.numTokens
    }
    const whole = await numTrained({ messages: [ask, say('abc'), ask, say('de')] })
    const last = await numTrained({ prompt: [ask, say('abc'), ask], completion: [say('de')] })
    expect([whole, last]).toEqual([7, 3])
  })

  it('goes on in a list where a run was left', async () => {
    const examples = ['a', 'bb', 'ccc', 'dddd', 'eeeee'].map((completion) => ({ prompt: 'say', completion }))
    const tokens = async (firstStep: number) => {
      using parts = makeParts()
      const steps = await collect(sft({ ...parts.forSft, examples, batchSize: 2, steps: 4, firstStep }))
      return steps.map(({ numTokens }) => numTokens)
    }
    expect(await tokens(2)).toEqual((await tokens(0)).slice(2))
  })

  it('refuses rows of another form, and counts that cannot be, by name', async () => {
    using parts = makeParts()
    const run = (examples: unknown, more = {}) =>
      collect(sft({ ...parts.forSft, examples: examples as never, batchSize: 1, steps: 1, ...more }))
    const refused = (value: string, message: RegExp) =>
      expect.objectContaining({ code: value, message: expect.stringMatching(message) })
    const forms =
      /^example 0 of the batch must be a list of messages, { messages } or { prompt, completion }: got an object with text$/
    await expect(run([{ text: 'x' }])).rejects.toThrow(refused('MALFORMED', forms))
    await expect(run([7])).rejects.toThrow(refused('MALFORMED', /got 7$/))
    await expect(run([{ prompt: 3, completion: 'x' }])).rejects.toThrow(
      refused('MALFORMED', /^prompt of example 0 .*got 3$/),
    )
    for (const messages of [[], [{ content: 'no role' }], [{ role: 5, content: 'x' }]])
      await expect(run([{ messages }])).rejects.toThrow(refused('MALFORMED', /^messages of example 0/))
    for (const [examples, more, value, message] of [
      [[], {}, 'EMPTY', /^options\.examples/],
      ['text', {}, 'MALFORMED', /^options.examples must be a list of rows or a data set: got "text"/],
      [items, { batchSize: 0 }, 'OUT_OF_RANGE', /^options.batchSize must be >= 1: got 0/],
      [items, { steps: 1.5 }, 'MALFORMED', /^options.steps must be an integer: got 1.5/],
      [items, { firstStep: -1 }, 'OUT_OF_RANGE', /^options.firstStep/],
      [items, { lr: 1 }, 'UNKNOWN_NAME', /^options.lr must be a known key/],
    ] as const)
      expect(() =>
        sft({ ...parts.forSft, examples: examples as never, batchSize: 1, steps: 1, ...more }),
      ).toThrow(refused(value, message))
  })

  it('stops before the next step once its signal fires', async () => {
    using parts = makeParts()
    const controller = new AbortController()
    const examples = listDataset({ items })
    const seen: number[] = []
    const run = async () => {
      for await (const step of sft({
        ...parts.forSft,
        examples,
        batchSize: 1,
        steps: 9,
        signal: controller.signal,
      })) {
        seen.push(step.index)
        if (step.index === 2) controller.abort()
      }
    }
    await expect(run()).rejects.toThrow(code('ABORTED'))
    expect(seen).toEqual([0, 1, 2])
  })
})

describe('grpo', () => {
  it('raises the reward', async () => {
    using parts = makeParts()
    const steps = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 4, steps: 40 }))
    const mean = (part: GrpoStep[]) => part.reduce((sum, { reward }) => sum + reward.mean, 0) / part.length
    expect(mean(steps.slice(-5))).toBeGreaterThan(mean(steps.slice(0, 5)) + 0.3)
  })

  it('is on-policy to the bit: every ratio of a first update is exactly 1', async () => {
    using parts = makeParts()
    const [step] = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 4, steps: 1 }))
    expect(step?.update?.metrics).toMatchObject({
      ratioMean: 1,
      ratioMax: 1,
      clipFraction: 0,
      kl: 0,
      numNonFinite: 0,
    })
  })

  it('takes the same steps from the same seed', async () => {
    const run = async () => {
      using parts = makeParts({ seed: 4 })
      const steps = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 2, steps: 4 }))
      return steps.map(({ seconds: _, ...step }) => step)
    }
    expect(await run()).toEqual(await run())
  })

  it('raises the reward with rollouts that run ahead, no older than they may be, and measures it', async () => {
    using parts = makeParts()
    const staleness = windowedFifo({ groupsPerStep: 4, offPolicySteps: 2 })
    const steps = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 4, steps: 40, staleness }))
    const mean = (part: GrpoStep[]) => part.reduce((sum, { reward }) => sum + reward.mean, 0) / part.length
    expect(mean(steps.slice(-5))).toBeGreaterThan(mean(steps.slice(0, 5)) + 0.3)
    const ages = steps.map(({ metrics }) => metrics['train_batch/policy_age/max'] ?? 0)
    expect(Math.max(...ages)).toBeLessThanOrEqual(staleness.maxAge)
    expect(Math.max(...ages)).toBeGreaterThan(0)
    expect(steps.map(({ metrics }) => metrics.onPolicy)).toContain(0)
  })

  it('takes the same update in one pass and in several', async () => {
    const update = async (batching: GrpoOptions<string>['batching']) => {
      using parts = makeParts()
      const [step] = await collect(
        grpo({ ...parts.forGrpo, promptsPerStep: 4, steps: 1, ...(batching && { batching }) }),
      )
      return { step, weights: await parts.decoder.toSafetensors() }
    }
    const [whole, split] = [await update(undefined), await update({ seqLen: 64, rowsPerMicrobatch: 1 })]
    expect(split.step?.metrics['train_batch/num_microbatches/mean']).toBeGreaterThan(2)
    for (const name of ['policyLoss', 'numTokens', 'numSequences', 'ratioMax', 'ratioMean', 'entropy']) {
      expect(split.step?.metrics[name]).toBeCloseTo(whole.step?.metrics[name] ?? Number.NaN, 5)
    }
    expect(split.step?.update?.loss).toBeCloseTo(whole.step?.update?.loss ?? Number.NaN, 5)
    expect(split.step?.update?.gradientNorm).toBeCloseTo(whole.step?.update?.gradientNorm ?? Number.NaN, 4)
  })

  it('draws further groups until enough of them have different rewards', async () => {
    using parts = makeParts({ score: (text) => Number(text.includes('a')) })
    const steps = await collect(
      grpo({ ...parts.forGrpo, promptsPerStep: 3, steps: 2, dynamicSampling: true }),
    )
    for (const { metrics, update } of steps) {
      expect(metrics['train_batch/num_rollout_groups/mean']).toBe(3)
      expect(update?.metrics.numSequences).toBe(12)
    }
  })

  it('goes on from the state of a step with the steps that would have come', async () => {
    const timeless = ({ seconds: _, ...step }: GrpoStep) => step
    using parts = makeParts()
    const first = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 2, steps: 2 }))
    const state = JSON.parse(JSON.stringify(first.at(-1)?.state))
    using whole = makeParts()
    const all = await collect(grpo({ ...whole.forGrpo, promptsPerStep: 2, steps: 4 }))
    const options = { promptsPerStep: 2, steps: 4, firstStep: 2, state }
    const rollouter = parts.newRollouter()
    const rest = await collect(grpo({ ...parts.forGrpo, rollouter, ...options }))
    expect(rest.map(timeless)).toEqual(all.slice(2).map(timeless))
  })

  it('leaves steps out whose loss is NaN, counts them, and gives up after too many in a row', async () => {
    using parts = makeParts()
    const broken = { forward: () => ({ ...result, loss: Number.NaN, gradLogProb: new Float32Array(0) }) }
    const loss = broken as unknown as GRPOLoss
    const steps: GrpoStep[] = []
    const run = async () => {
      for await (const step of grpo({
        ...parts.forGrpo,
        loss,
        promptsPerStep: 4,
        steps: 9,
        maxSkippedSteps: 2,
      }))
        steps.push(step)
    }
    await expect(run()).rejects.toThrow(code('NON_FINITE'))
    expect(steps.map(({ metrics }) => metrics['loss/num_skipped_steps'])).toEqual([1, 2])
    expect(parts.decoder.version).toBe(0)
  })

  it('refuses rewards that are NaN, by the name of their function', async () => {
    using parts = makeParts({ score: () => Number.NaN })
    const running = collect(grpo({ ...parts.forGrpo, promptsPerStep: 1, steps: 1 }))
    await expect(running).rejects.toThrow(code('NON_FINITE'))
    await expect(collect(grpo({ ...parts.forGrpo, promptsPerStep: 1, steps: 1 }))).rejects.toThrow(/letters/)
  })

  it('leaves single rollouts out whose reward is NaN, and counts them', async () => {
    let calls = 0
    using parts = makeParts({ score: (text) => (calls++ === 0 ? Number.NaN : text.length) })
    const [step] = await collect(grpo({ ...parts.forGrpo, promptsPerStep: 1, steps: 1 }))
    expect(step?.metrics['rollout/unscored_rate/mean']).toBe(0.25)
    expect(step?.update?.metrics.numSequences).toBe(3)
  })

  it('gives up a run that has nothing to learn from, with the reason', async () => {
    using parts = makeParts({ score: () => 1 })
    const running = collect(grpo({ ...parts.forGrpo, promptsPerStep: 1, steps: EMPTY_STEPS_MAX + 2 }))
    await expect(running).rejects.toThrow(/num_groups_dropped_zero_std/)
    const steps = collect(grpo({ ...parts.forGrpo, promptsPerStep: 1, steps: EMPTY_STEPS_MAX }))
    expect(await steps).toHaveLength(EMPTY_STEPS_MAX)
  })

  it('stops between steps once its signal fires, and while it samples', async () => {
    using parts = makeParts()
    const controller = new AbortController()
    const steps = grpo({ ...parts.forGrpo, promptsPerStep: 2, steps: 9, signal: controller.signal })
    expect((await steps.next()).done).toBe(false)
    const next = steps.next()
    controller.abort()
    await expect(next).rejects.toThrow(code('ABORTED'))
  })
})

describe('trainStep', () => {
  const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }

  it('refuses a loss or a gradient that is not finite and leaves the weights as they were', async () => {
    using parts = makeParts()
    const before = await parts.decoder.toSafetensors()
    const step = (loss: number, gradient: number) =>
      trainStep({
        ...parts.forStep,
        batch,
        loss: () => ({ ...result, loss, gradLogProb: Float32Array.of(0, gradient) }),
      })
    await expect(step(Number.NaN, 1)).rejects.toThrow(code('NON_FINITE'))
    await expect(step(1, Number.NaN)).rejects.toThrow(code('NON_FINITE'))
    expect(Buffer.compare(await parts.decoder.toSafetensors(), before)).toBe(0)
    await step(1, -1)
    expect(Buffer.compare(await parts.decoder.toSafetensors(), before)).not.toBe(0)
  })

  it('joins the metrics of several batches as if they had been one', async () => {
    using parts = makeParts()
    const told = [
      { metrics: { ratioMax: 5, numTokens: 3, policyLoss: 1, entropy: 2 }, denominators: { entropy: 3 } },
      { metrics: { ratioMax: 4, numTokens: 1, policyLoss: 2, entropy: 6 }, denominators: { entropy: 1 } },
    ]
    const { loss, metrics } = await trainStep({
      ...parts.forStep,
      batch: [batch, batch],
      loss: (_, index) => ({ loss: 1, gradLogProb: Float32Array.of(0, -1), ...told[index] }),
    })
    expect(loss).toBe(2)
    expect(metrics).toEqual({ ratioMax: 5, numTokens: 4, policyLoss: 3, entropy: 3 })
  })

  it('leaves timers running while the addon computes', async () => {
    const shape = { ...TINY, hidden_size: 128, intermediate_size: 512, num_attention_heads: 4 }
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    using optimizer = new AdamW(decoder)
    const offsets = Uint32Array.from({ length: 65 }, (_, index) => index * 60)
    const mask = new Uint8Array(64 * 60).map((_, index) => Number(index % 60 > 0))
    const ids = new Uint32Array(mask.length).map((_, index) => (index * 7) % 23)
    const gradLogProb = new Float32Array(mask.length).fill(-1e-3)
    let ticks = 0
    const timer = setInterval(() => {
      ticks += 1
    }, 1)
    await trainStep({
      decoder,
      optimizer,
      batch: { ids, offsets, mask },
      loss: () => ({ ...result, loss: 1, gradLogProb }),
    })
    clearInterval(timer)
    if (describeBuild().backend === 'native') expect(ticks).toBeGreaterThan(3)
  })
})
