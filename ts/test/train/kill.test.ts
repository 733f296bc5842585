/** Files of a process that is killed at any moment: `runTraining` continues from them with the same steps. */

import { spawn } from 'node:child_process'
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/index.js'
import { readRun } from '../../src/telemetry/index.js'
import { timeless } from './timeless.js'

const { backend } = describeBuild()
const program = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url))
const conditions = backend === 'wasm' ? ['--conditions=fulmar-wasm'] : []

async function makeConfig(change: object): Promise<{ path: string; runDir: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-kill-'))
  const config = {
    seed: 5,
    backend,
    runDir: join(folder, 'run'),
    model: {
      hidden_size: 16,
      intermediate_size: 32,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      ...change,
    },
    sft: { steps: 20, batchSize: 8, learningRate: 0.02 },
    grpo: { steps: 30, promptsPerStep: 2, groupSize: 4, maxTokens: 12 },
    eval: { numProblems: 4, everySteps: 0 },
    checkpointEverySteps: 3,
  }
  const path = join(folder, 'config.json')
  await writeFile(path, JSON.stringify(config))
  return { path, runDir: config.runDir }
}

/** Starts `fulmar train`; kills it once the log holds `numLines` lines, if it lasts that long. */
function train(path: string, runDir: string, numLines = Number.POSITIVE_INFINITY): Promise<number | null> {
  const child = spawn(process.execPath, [...conditions, program, 'train', path, '--resume'], {
    stdio: 'ignore',
  })
  const watch = async () => {
    const log = await readFile(join(runDir, 'log.jsonl'), 'utf8').catch(() => '')
    if (log.split('\n').length > numLines) child.kill('SIGKILL')
  }
  const timer = setInterval(() => void watch(), 2)
  return new Promise((resolve) =>
    child.on('close', (code) => {
      clearInterval(timer)
      resolve(code)
    }),
  )
}

describe('a killed run', () => {
  it.each([
    { dtype: 'f32' },
    { dtype: 'bf16', matmulPrecision: 'bf16' },
    { lora: { r: 2, target_modules: 'all-linear' } },
  ])('goes on with the same steps, bit for bit, with %o', async (change) => {
    const [whole, killed] = [await makeConfig(change), await makeConfig(change)]
    expect(await train(whole.path, whole.runDir)).toBe(0)
    let numKills = 0
    for (const numLines of [7, 16, 24, 31, 40]) {
      if ((await train(killed.path, killed.runDir, numLines)) === null) numKills += 1
    }
    expect(await train(killed.path, killed.runDir)).toBe(0)
    expect(numKills).toBeGreaterThan(0)
    const [expected, resumed] = [await readRun(whole.runDir), await readRun(killed.runDir)]
    expect(timeless(resumed.events)).toEqual(timeless(expected.events))
    for (const name of await readdir(join(whole.runDir, 'policy'))) {
      const read = ({ runDir }: typeof whole) => readFile(join(runDir, 'policy', name))
      expect(await read(killed), name).toEqual(await read(whole))
    }
  })
})
