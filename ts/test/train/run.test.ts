import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/index.js'
import type { Task } from '../../src/env/index.js'
import { Decoder } from '../../src/model/index.js'
import type { RolloutSample } from '../../src/rollout/index.js'
import { sumDigits } from '../../src/task/index.js'
import { type RunEvent, readRun, systemClock } from '../../src/telemetry/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import {
  checkTrainConfig,
  evaluateRun,
  loadCheckpoint,
  runTraining,
  type TaskFactory,
  type TrainConfig,
} from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { timeless } from './timeless.js'

const { backend } = describeBuild()
const PHASE_OF: Readonly<Record<string, string>> = { s: 'sft', d: 'dpo', g: 'grpo' }

async function makeConfig(change: object = {}): Promise<TrainConfig> {
  return checkTrainConfig({
    seed: 3,
    backend,
    runDir: await mkdtemp(join(tmpdir(), 'fulmar-run-')),
    model: { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 },
    sft: { steps: 30, batchSize: 8, learningRate: 0.02 },
    grpo: { steps: 24, promptsPerStep: 2, groupSize: 4, maxTokens: 12 },
    eval: { numProblems: 5, everySteps: 10 },
    checkpointEverySteps: 4,
    ...change,
  })
}

/** Runs until `isTime`, then stops as abruptly as a process can be stopped from inside. */
async function runUntil(config: TrainConfig, isTime: (event: RunEvent) => boolean): Promise<void> {
  const controller = new AbortController()
  const onEvent = (event: RunEvent) => isTime(event) && controller.abort()
  await expect(runTraining(config, { onEvent, resume: true, signal: controller.signal })).rejects.toThrow(
    expect.objectContaining({ code: 'ABORTED' }),
  )
}

describe('runTraining', () => {
  it('fills a run folder from which the policy can be measured again', async () => {
    const config = await makeConfig()
    const result = await runTraining(config)
    const names = await readdir(config.runDir)
    expect(names).toEqual(
      expect.arrayContaining([
        'checkpoint',
        'config.json',
        'log.jsonl',
        'policy',
        'result.json',
        'samples.jsonl',
        'warm-start',
      ]),
    )
    const { events, samples } = await readRun(config.runDir)
    expect(events.filter(({ event }) => event === 'step')).toHaveLength(54)
    expect(events.at(-1)).toMatchObject({ event: 'result', metrics: { passRateAfter: result.passRateAfter } })
    expect(samples.length).toBeGreaterThan(0)
    expect(await evaluateRun(config, { numProblems: 5 })).toMatchObject({ passRate: result.passRateAfter })
  })

  it('takes the same steps, bit for bit, when it is stopped anywhere and resumed', async () => {
    const whole = await makeConfig()
    await runTraining(whole)
    const parts = { ...whole, runDir: (await makeConfig()).runDir }
    const isKept = async (expected: object) => {
      const { decoder, state } = await loadCheckpoint(join(parts.runDir, 'checkpoint'))
      decoder[Symbol.dispose]()
      expect(state).toMatchObject(expected)
    }
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'sft' && event.step === 11)
    await isKept({ phase: 'sft', step: 8 })
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 3)
    await isKept({ phase: 'grpo', step: 0 })
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 14)
    await isKept({ phase: 'grpo', step: 12 })
    await runTraining(parts, { resume: true })
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(parts.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    expect(resumed.samples).toEqual(expected.samples)
  })

  it.each([{ rolloutWeights: 'q8' }, { rolloutKvCacheDtype: 'bf16' }])(
    'samples by %j where the configuration says so, and measures with its own',
    async (rounded) => {
      const grpo = { steps: 4, promptsPerStep: 2, groupSize: 4, maxTokens: 12, ...rounded }
      const config = await makeConfig({ grpo, eval: { numProblems: 5 } })
      const result = await runTraining(config)
      const { events } = await readRun(config.runDir)
      const metrics = events.flatMap((event) =>
        event.event === 'step' && event.phase === 'grpo' ? [event.metrics] : [],
      )
      const updated = metrics.filter((one) => Object.keys(one).some((name) => name.includes('samplerKl')))
      expect(updated.length).toBeGreaterThan(0)
      expect(await evaluateRun(config, { numProblems: 5 })).toMatchObject({ passRate: result.passRateAfter })
    },
  )

  it('samples with speculative tokens where the configuration says so, to the same log', async () => {
    const steps = async (options: object) => {
      const grpo = { steps: 3, promptsPerStep: 2, groupSize: 4, maxTokens: 12, drawMethod: 'gumbelMax' }
      const config = await makeConfig({ grpo: { ...grpo, ...options }, eval: { numProblems: 5 } })
      await runTraining(config)
      const { events } = await readRun(config.runDir)
      return events.flatMap((event) =>
        event.event === 'step'
          ? [Object.entries(event.metrics).filter(([name]) => !/second/i.test(name))]
          : [],
      )
    }
    expect(await steps({ speculativeTokens: 4 })).toEqual(await steps({}))
    const both = { speculativeTokens: 4, rolloutWeights: 'q8' }
    await expect(steps(both)).rejects.toMatchObject({
      code: 'OUT_OF_RANGE',
      argument: 'config.grpo.speculativeTokens',
    })
  })

  it('splits the update of a step into passes of at most tokensPerPass', async () => {
    const numPasses = async (tokensPerPass: number) => {
      const grpo = { steps: 4, promptsPerStep: 2, groupSize: 4, maxTokens: 12, tokensPerPass }
      const config = await makeConfig({ grpo, eval: { numProblems: 1 } })
      await runTraining(config)
      const steps = (await readRun(config.runDir)).events.filter(({ event }) => event === 'step')
      const name = 'train_batch/num_microbatches/mean'
      return Math.max(...steps.map((step) => ('metrics' in step ? (step.metrics[name] ?? 0) : 0)))
    }
    expect(await numPasses(0)).toBe(1)
    expect(await numPasses(128)).toBeGreaterThan(1)
  })

  it('trains the adapter that the configuration asks for, beside weights that stay, and goes on with it', async () => {
    const lora = { r: 2, lora_alpha: 4, target_modules: ['q_proj', 'down_proj'] }
    const shape = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 }
    const [whole, parts] = [
      await makeConfig({ model: { ...shape, lora } }),
      await makeConfig({ model: { ...shape, lora } }),
    ]
    await runTraining(whole)
    await runUntil(parts, (event) => event.event === 'step' && event.step === 7)
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 9)
    const other = { ...parts, model: { ...parts.model, lora: { ...lora, r: 4 } } }
    await expect(runTraining(other, { resume: true })).rejects.toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE', message: expect.stringContaining('"r":4') }),
    )
    const { lora: _, ...none } = parts.model
    await expect(runTraining({ ...parts, model: none }, { resume: true })).rejects.toThrow(/got no adapter/)
    await runTraining(parts, { resume: true })
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(parts.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    for (const name of ['adapter_model.safetensors', 'adapter_config.json', 'model.safetensors'])
      expect(await readFile(join(parts.runDir, 'policy', name))).toEqual(
        await readFile(join(whole.runDir, 'policy', name)),
      )
    using first = Decoder.fromSeed(
      {
        model_type: 'qwen2',
        num_key_value_heads: 2,
        max_position_embeddings: 1024,
        ...shape,
        vocab_size: new CharTokenizer().vocabSize,
      },
      { seed: 3 },
    )
    const kept = await readFile(join(whole.runDir, 'policy', 'model.safetensors'))
    expect(new Uint8Array(kept)).toEqual(await first.toSafetensors())
  })

  it('measures the distance to the base where nothing trained the adapter before', async () => {
    const config = await makeConfig({
      model: {
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        lora: {},
      },
      sft: { steps: 0 },
      grpo: {
        steps: 3,
        promptsPerStep: 1,
        groupSize: 2,
        maxTokens: 4,
        loss: { klToRef: { coefficient: 0.1 } },
      },
    })
    await runTraining(config)
    const { events } = await readRun(config.runDir)
    const kls = events.flatMap((event) => (event.event === 'step' ? [event.metrics.kl] : []))
    expect(kls[0]).toBe(0)
    expect(kls).toHaveLength(3)
  })

  it('begins anew without resume, whatever the folder holds', async () => {
    const config = await makeConfig({
      sft: { steps: 2, batchSize: 2 },
      grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 },
    })
    await runTraining(config)
    await runTraining(config)
    expect((await readRun(config.runDir)).events.filter(({ event }) => event === 'step')).toHaveLength(3)
  })

  it('never resumes from what another run left in the folder', async () => {
    const config = await makeConfig({
      sft: { steps: 4, batchSize: 2 },
      grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 },
    })
    await runTraining(config)
    const controller = new AbortController()
    controller.abort()
    const anew = runTraining({ ...config, seed: 4 }, { signal: controller.signal })
    await expect(anew).rejects.toThrow(expect.objectContaining({ code: 'ABORTED' }))
    expect(await readdir(config.runDir)).not.toContain('checkpoint')
  })

  it('refuses to continue from a checkpoint of another architecture', async () => {
    const config = await makeConfig({
      sft: { steps: 2, batchSize: 2 },
      grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 },
    })
    await runTraining(config)
    const wider = { ...config, model: { ...config.model, intermediate_size: 64 } }
    await expect(runTraining(wider, { resume: true })).rejects.toThrow(/config\.model\.intermediate_size/)
    const halves = { ...config, model: { ...config.model, dtype: 'bf16' as const } }
    await expect(runTraining(halves, { resume: true })).rejects.toThrow(/config\.model\.dtype/)
    const rounded = { ...config, model: { ...config.model, matmulPrecision: 'bf16' as const } }
    await expect(runTraining(rounded, { resume: true })).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringContaining(
        'config.model.matmulPrecision must be that of the checkpoint (f32): got bf16',
      ),
    })
  })

  it('goes on with what was begun and not trained when rollouts run ahead, and loses no problem', async () => {
    const grpo = { steps: 12, promptsPerStep: 2, groupSize: 4, maxTokens: 12, offPolicySteps: 2 }
    const config = await makeConfig({ grpo, checkpointEverySteps: 1 })
    await runUntil(config, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 5)
    await runTraining(config, { resume: true })
    const { events, samples } = await readRun(config.runDir)
    const steps = events.flatMap((event) => (event.event === 'step' && event.phase === 'grpo' ? [event] : []))
    expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: 12 }, (_, index) => index + 1))
    const groups = new Set(samples.map((sample) => (sample as RolloutSample).groupId))
    expect([...groups].sort((a, b) => a - b)).toEqual(Array.from({ length: 12 }, (_, index) => 2 * index))
    const ages = steps.map(({ metrics }) => metrics['train_batch/policy_age/max'] ?? 0)
    expect(Math.max(...ages)).toBeLessThanOrEqual(3)
  })

  it('learns from pairs of a file between the two phases, and resumes there', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-pairs-'))
    const say = (content: string) => [{ role: 'assistant', content }]
    const rows = ['[ANSWER] 1', '[ANSWER] 2'].map((answer) => ({
      prompt: [{ role: 'user', content: 'Sum of digits: [10]' }],
      chosen: say(answer),
      rejected: say('no'),
    }))
    const pairs = join(folder, 'pairs.jsonl')
    await writeFile(pairs, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
    const small = {
      sft: { steps: 3, batchSize: 2 },
      grpo: { steps: 2, promptsPerStep: 1, groupSize: 2, maxTokens: 4 },
    }
    const change = {
      ...small,
      dpo: { steps: 6, batchSize: 1, pairs, learningRate: 0.01 },
      checkpointEverySteps: 1,
    }
    const whole = await makeConfig(change)
    const begunMs = systemClock.nowMs()
    await runTraining(whole)
    const secondsMax = (systemClock.nowMs() - begunMs) / 1000
    const parts = { ...whole, runDir: (await makeConfig()).runDir }
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'dpo' && event.step === 3)
    await runTraining(parts, { resume: true })
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(parts.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    const steps = expected.events.flatMap((event) => (event.event === 'step' ? [event] : []))
    expect(steps.map(({ phase }) => phase)).toEqual(
      [...'sss', ...'dddddd', ...'gg'].map((one) => PHASE_OF[one]),
    )
    const losses = steps.filter(({ phase }) => phase === 'dpo').map(({ metrics }) => metrics.loss ?? 0)
    const seconds = steps.map(({ metrics }) => metrics.seconds ?? Number.NaN)
    expect(seconds.reduce((sum, value) => sum + value, 0)).toBeLessThanOrEqual(secondsMax)
    expect(losses[0]).toBeCloseTo(Math.log(2), 5)
    expect(losses.at(-1)).toBeLessThan(0.6)
    await writeFile(pairs, '{"prompt": [], "chosen": "yes"}\n')
    await expect(runTraining(whole)).rejects.toThrow(/prompt of line 1 of .* must be a list of messages/)
  })

  it('learns from the best of its groups instead, if it is told to, and resumes that too', async () => {
    const grpo = {
      recipe: 'expertIteration',
      numExperts: 2,
      steps: 6,
      promptsPerStep: 2,
      groupSize: 4,
      maxTokens: 12,
    }
    const whole = await makeConfig({ grpo, checkpointEverySteps: 1 })
    await runTraining(whole)
    const parts = { ...whole, runDir: (await makeConfig()).runDir }
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 3)
    await runTraining(parts, { resume: true })
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(parts.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    const losses = expected.events.flatMap((event) =>
      event.event === 'step' && event.phase === 'grpo' ? [event.metrics.nllLoss] : [],
    )
    expect(losses.some((loss) => loss !== undefined && loss > 0)).toBe(true)
  })

  it('trains a task of the caller by its name, with its options, and measures it again', async () => {
    const make: TaskFactory = (options, { seed }) => {
      expect([options, seed]).toEqual([{ size: 3 }, 3])
      return { ...sumDigits({ seed }), name: 'mine' } as unknown as Task<unknown>
    }
    const small = { sft: { steps: 0 }, grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 } }
    const config = await makeConfig({ ...small, task: { name: 'mine', size: 3 } })
    const result = await runTraining(config, { tasks: { mine: make } })
    const again = await evaluateRun(config, { numProblems: 5, tasks: { mine: make } })
    expect(again.passRate).toBe(result.passRateAfter)
  })

  it('names the nearest task, and refuses a warm start for a task without worked examples', async () => {
    const unknown = await makeConfig({ task: { name: 'mime' } })
    const mine = { mine: () => sumDigits() as unknown as Task<unknown> }
    await expect(runTraining(unknown, { tasks: mine })).rejects.toThrow(/did you mean 'mine'/)
    const { workedExample: _, ...bare } = sumDigits()
    const config = await makeConfig({ task: { name: 'bare' } })
    const tasks = { bare: () => bare as unknown as Task<unknown> }
    await expect(runTraining(config, { tasks })).rejects.toThrow(
      'config.sft.steps must be 0 for a task without worked examples: got sumDigits',
    )
  })

  it('ends early once a measurement is good enough, and stays there when it is resumed', async () => {
    const solved = { ...sumDigits({ seed: 3 }), isSolved: () => true } as unknown as Task<unknown>
    const small = { sft: { steps: 0 }, task: { name: 'solved' }, checkpointEverySteps: 1 }
    const eval_ = { numProblems: 2, everySteps: 2, stopAtPassRate: 0.5 }
    const config = await makeConfig({
      ...small,
      eval: eval_,
      grpo: { steps: 9, promptsPerStep: 1, maxTokens: 4 },
    })
    for (const resume of [false, true]) {
      await runTraining(config, { tasks: { solved: () => solved }, resume })
      const { events } = await readRun(config.runDir)
      expect(events.filter(({ event }) => event === 'step')).toHaveLength(0)
    }
  })

  it.skipIf(backend === 'wasm')('trains a model of a folder, and writes one that is whole', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-model-'))
    const words = ['<unk>', '<|im_start|>', '<|im_end|>', 'user', 'assistant', '[ANSWER]', '10']
    const special = words.slice(1, 3).map((content, index) => ({ id: index + 1, content, special: true }))
    const model = {
      type: 'WordLevel',
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
      unk_token: '<unk>',
    }
    const tokenizer = {
      version: '1.0',
      added_tokens: special,
      pre_tokenizer: { type: 'WhitespaceSplit' },
      model,
    }
    const shape = { ...TINY, vocab_size: words.length }
    using decoder = Decoder.fromSeed(shape, { seed: 5 })
    await decoder.saveFolder(folder)
    await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer))
    const config = await makeConfig({
      model: { path: folder },
      renderer: { name: 'chatml' },
      sft: { steps: 2, batchSize: 2 },
      grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 },
    })
    const result = await runTraining(config)
    const policy = join(config.runDir, 'policy')
    expect(await readFile(join(policy, 'tokenizer.json'), 'utf8')).toBe(JSON.stringify(tokenizer))
    using trained = await Decoder.fromFolder(policy)
    expect(trained.config.vocab_size).toBe(words.length)
    expect(result.numProblems).toBe(5)
    const missing = await makeConfig({ model: { path: join(folder, 'nowhere') } })
    await expect(runTraining(missing)).rejects.toThrow(expect.objectContaining({ code: 'IO' }))
    expect(() => checkTrainConfig({ model: { path: folder, hidden_size: 8 } })).toThrow(/hidden_size/)
  })

  it('refuses a configuration for the other backend', async () => {
    const other = await makeConfig({ backend: backend === 'native' ? 'wasm' : 'native' })
    await expect(runTraining(other)).rejects.toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
  })
})
