import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createModel } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'

/** The smallest run that goes through every phase. */
const tiny = (runDir: string) => ({
  runDir,
  model: {
    hidden_size: 16,
    intermediate_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
  },
  sft: { steps: 2, batchSize: 2 },
  grpo: { steps: 1, promptsPerStep: 1, groupSize: 2, maxTokens: 4 },
  eval: { numProblems: 3 },
})

describe('fulmar train', () => {
  it('trains, measures, reports, and can be measured again', async () => {
    const folder = await temporaryFolder()
    const runDir = join(folder, 'run')
    const config = join(folder, 'config.json')
    await writeFile(config, JSON.stringify(tiny(runDir)))

    const trained = await fulmar(['train', config])
    expect(trained).toMatchObject({ code: 0 })
    expect(trained.stdout).toMatch(/held-out problems +3\n/)
    expect(trained.stdout).toContain(join(runDir, 'report.html'))
    expect(trained.stderr.split('\n')[0]).toBe(`run folder ${runDir}, 3 held-out problems before and after`)
    expect(trained.stderr).toMatch(/sft 2\/2 .*\n/)
    expect(trained.stderr).toMatch(/grpo step 1: pass rate \d[\d.]* % of \d+, mean reward \d\.\d{3}/)
    expect(await readFile(join(runDir, 'report.html'), 'utf8')).toContain('<svg')

    const again = await fulmar(['train', config])
    expect(again.code).toBe(1)
    expect(again.stderr).toContain(
      `${runDir} holds a run: continue it by --resume, replace it by --overwrite`,
    )
    expect((await fulmar(['train', config, '--overwrite'])).code).toBe(0)

    const measured = await fulmar(['eval', runDir, '--num-problems', '5', '--json'])
    expect(measured).toMatchObject({ code: 0 })
    expect(JSON.parse(measured.stdout)).toMatchObject({ numProblems: 5, passRate: expect.any(Number) })
    expect((await fulmar(['eval', runDir])).stdout).toMatch(/pass rate +\d/)
    expect((await fulmar(['eval', runDir, '--num-problems', 'many'])).stderr).toContain('(OUT_OF_RANGE)')

    const report = await fulmar(['report', runDir, '--json'])
    expect(JSON.parse(report.stdout)).toEqual({ report: join(runDir, 'report.html') })
  })

  it("trains and measures a task of the user's own, from a module", async () => {
    const folder = await temporaryFolder()
    const file = join(folder, 'task.mjs')
    await writeFile(
      file,
      `export default ({ seed }) => ({
        name: 'mine',
        makeDataset: () => ({ next: () => 'a' + seed, stateDict: () => ({ position: 0 }), loadStateDict: () => {} }),
        makeEnv: (row) => ({
          init: () => ({ initPromptMessages: [{ role: 'user', content: row }] }),
          step: () => ({ done: true }),
          close: () => {},
        }),
        rewardFns: [{ name: 'one', score: () => 1 }],
        isSolved: () => true,
      })`,
    )
    const runDir = join(folder, 'run')
    const stdin = JSON.stringify({
      ...tiny(runDir),
      sft: { steps: 0 },
      grpo: { ...tiny(runDir).grpo, steps: 0 },
    })
    const trained = await fulmar(['train', '-', '--task', file, '--json'], { stdin })
    expect(trained).toMatchObject({ code: 0, stderr: expect.not.stringContaining('fulmar:') })
    expect(JSON.parse(trained.stdout)).toMatchObject({ passRateAfter: 1 })
    const measured = await fulmar(['eval', runDir, '--task', file, '--json'])
    expect(JSON.parse(measured.stdout)).toMatchObject({ passRate: 1, interval: [expect.any(Number), 1] })
    expect((await fulmar(['train', '--task', '/no/task.mjs'])).stderr).toMatch(/\/no\/task\.mjs .*\(IO\)\n$/)
    await writeFile(file, 'export default 7')
    expect((await fulmar(['train', '--task', `${file}`])).code).toBe(1)
  })

  // WebAssembly reads no folders of models.
  it.skipIf(process.env.FULMAR_TEST_BACKEND === 'wasm')(
    'trains a pretrained model on a task without worked examples by flags alone, and talks to the run',
    async () => {
      const folder = await temporaryFolder()
      using model = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
      await model.save(join(folder, 'base'))
      const entry = new URL('../../src/index.ts', import.meta.url)
      await writeFile(
        join(folder, 'task.mjs'),
        `import { defineTask, reward } from '${entry}'
      export default defineTask({ rows: [{}], prompt: () => 'a', rewards: [reward('one', () => 1)] })`,
      )
      const config = { runDir: join(folder, 'run'), grpo: { promptsPerStep: 1, groupSize: 2, maxTokens: 2 } }
      const stdin = JSON.stringify({ ...config, eval: { numProblems: 1 } })
      const flags = ['--task', join(folder, 'task.mjs'), '--model', join(folder, 'base'), '--lora-rank', '2']
      const trained = await fulmar(['train', '-', ...flags, '--steps', '1', '--json'], { stdin })
      expect(trained).toMatchObject({ code: 0, stderr: expect.not.stringContaining('fulmar:') })
      const written: unknown = JSON.parse(await readFile(join(folder, 'run', 'config.json'), 'utf8'))
      expect(written).toMatchObject({
        model: { path: join(folder, 'base'), lora: { r: 2 } },
        sft: { steps: 0 },
        grpo: { steps: 1, learningRate: 1e-5 },
      })
      const chatted = await fulmar(['chat', join(folder, 'run'), '--max-tokens', '2'], { stdin: 'Tea?\n' })
      expect(chatted).toMatchObject({ code: 0, stderr: '' })
    },
  )

  it('reads its configuration from standard input and prints the result as the last line', async () => {
    const runDir = join(await temporaryFolder(), 'run')
    const { code, stdout } = await fulmar(['train', '-', '--json'], { stdin: JSON.stringify(tiny(runDir)) })
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ runDir, numProblems: 3, passRateAfter: expect.any(Number) })
  })

  it('refuses an unknown key by its place and names the nearest one', async () => {
    const stdin = JSON.stringify({ grpo: { groupsize: 8 } })
    const { code, stderr } = await fulmar(['train', '-'], { stdin })
    expect(code).toBe(1)
    expect(stderr).toBe(
      "fulmar: config.grpo.groupsize must be a known key: did you mean 'groupSize'? (UNKNOWN_NAME)\n",
    )
  })

  it('refuses a build of the core that is not the loaded one', async () => {
    const other = process.env.FULMAR_TEST_BACKEND === 'wasm' ? 'native' : 'wasm'
    const { code, stderr } = await fulmar(['train', '-'], { stdin: JSON.stringify({ backend: other }) })
    expect(code).toBe(1)
    expect(stderr).toContain('(INCOMPATIBLE)')
  })

  it('ends with 130 when the user stops it', async () => {
    const runDir = join(await temporaryFolder(), 'run')
    const signal = AbortSignal.abort()
    const { code, stderr } = await fulmar(['train', '-'], { stdin: JSON.stringify(tiny(runDir)), signal })
    expect(code).toBe(130)
    expect(stderr).toContain('(ABORTED)')
  })
})
