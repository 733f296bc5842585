import { mkdtemp, readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/index.js'
import { type RunEvent, readRun } from '../../src/telemetry/index.js'
import { checkTrainConfig, evaluateRun, runTraining, type TrainConfig } from '../../src/train/index.js'
import { timeless } from './timeless.js'

const { backend } = describeBuild()

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
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'sft' && event.step === 11)
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 3)
    await runUntil(parts, (event) => event.event === 'step' && event.phase === 'grpo' && event.step === 14)
    await runTraining(parts, { resume: true })
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(parts.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    expect(resumed.samples).toEqual(expected.samples)
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

  it('refuses to go on from a checkpoint of another architecture', async () => {
    const config = await makeConfig({
      sft: { steps: 2, batchSize: 2 },
      grpo: { steps: 1, promptsPerStep: 1, maxTokens: 4 },
    })
    await runTraining(config)
    const wider = { ...config, model: { ...config.model, intermediate_size: 64 } }
    await expect(runTraining(wider, { resume: true })).rejects.toThrow(/config\.model\.intermediate_size/)
  })

  it('refuses a configuration for the other backend', async () => {
    const other = await makeConfig({ backend: backend === 'native' ? 'wasm' : 'native' })
    await expect(runTraining(other)).rejects.toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
  })
})
