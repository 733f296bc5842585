/** Tasks of machine learning in a configuration: its checks, its schema, and a whole run. */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Validator } from '@cfworker/json-schema'
import { describe, expect, it } from 'vitest'
import { Sandbox } from '../../src/tools/index.js'
import { checkTrainConfig, trainConfigSchema } from '../../src/train/index.js'
import { makeTask } from '../../src/train/task-factory.js'
import { fulmar } from '../cli/fake-io.js'
import { has } from '../needs.js'
import { temporaryFolder } from '../telemetry/folder.js'

const task = { kind: 'mlgym', tasks: ['fitTable', { name: 'fitTable', seed: 3 }] }
const { isUsable } = await Sandbox.support({ backend: 'bubblewrap' })
const hasSandbox = has('bubblewrap', isUsable)

describe('a configuration with tasks of machine learning', () => {
  it('is checked', () => {
    const { task: read, runDir } = checkTrainConfig({ task })
    expect(read).toEqual({ ...task, name: 'mlgym', tasks: [{ name: 'fitTable' }, task.tasks[1]] })
    expect(runDir).toBe('runs/mlgym-seed0')
    expect(checkTrainConfig({ task: read }).task).toEqual(read)
    const all = {
      ...{ maxSteps: 3, maxRetries: 0, budgetMs: 1_000, maxChars: 100, failureReward: null },
      ...{ rewardWrongFormat: -0.5, bwrap: '/usr/bin/bwrap', limits: { timeoutMs: 5 }, scoreLimits: {} },
    }
    expect(checkTrainConfig({ task: { ...task, ...all } }).task).toMatchObject(all)
  })

  it.each([
    [{ kind: 'mlgim' }, 'UNKNOWN_NAME', /did you mean 'mlgym'/],
    [{ taks: [] }, 'UNKNOWN_NAME', /did you mean 'tasks'/],
    [{ tasks: undefined }, 'MALFORMED', /config.task.tasks must be/],
    [{ tasks: [] }, 'EMPTY', /config.task.tasks must hold a task/],
    [{ tasks: ['fitTabel'] }, 'UNKNOWN_NAME', /config.task.tasks\[0\].*did you mean 'fitTable'/],
    [{ tasks: [{ seed: 1 }] }, 'MALFORMED', /config.task.tasks\[0\] must have either a name or a folder/],
    [{ tasks: [{ name: 'fitTable', folder: 'x' }] }, 'MALFORMED', /either a name or a folder/],
    [{ tasks: [{ folder: 'x', seed: 1 }] }, 'MALFORMED', /tasks\[0\].seed/],
    [{ tasks: [{ folder: 'x', path: 'y' }] }, 'UNKNOWN_NAME', /config.task.tasks\[0\]/],
    [{ tasks: [7] }, 'MALFORMED', /config.task.tasks\[0\]/],
    [{ maxSteps: 0 }, 'OUT_OF_RANGE', /config.task.maxSteps/],
    [{ limits: { timeout: 5 } }, 'UNKNOWN_NAME', /did you mean 'timeoutMs'/],
    [{ failureReward: 'none' }, 'MALFORMED', /config.task.failureReward/],
    [{ baseline: 1 }, 'UNKNOWN_NAME', /config.task/],
  ])('refuses %j', (more, code, message) => {
    const read = () => checkTrainConfig({ task: { ...task, ...more } })
    expect(read).toThrow(expect.objectContaining({ code }))
    expect(read).toThrow(message)
  })

  it('has its schema', () => {
    const validator = new Validator(JSON.parse(JSON.stringify(trainConfigSchema())), '2020-12')
    expect(validator.validate({ task }).valid).toBe(true)
    expect(validator.validate({ task: { ...task, tasks: [{ folder: 'a' }] } }).valid).toBe(true)
    expect(validator.validate({ task: { ...task, taks: 1 } }).valid).toBe(false)
    expect(validator.validate({ task: { kind: 'mlgym' } }).valid).toBe(false)
  })

  it('makes the tasks: shipped ones by their seeds, and those of folders', async () => {
    const folder = await temporaryFolder()
    for (const name of ['files', 'scorer']) await mkdir(join(folder, name))
    const about = { name: 'guess', submission: ['guess.txt'], scorer: ['python3', 'score.py'] }
    await writeFile(join(folder, 'task.json'), JSON.stringify(about))
    await writeFile(join(folder, 'instructions.md'), 'Guess.')
    await writeFile(join(folder, 'files', 'guess.txt'), '3')
    const { task: read } = checkTrainConfig({
      task: { ...task, name: 'gym', validationTasks: [{ folder }, { name: 'fitTable', seed: 3 }] },
    })
    const made = await makeTask(read, 0)
    expect(made.name).toBe('gym')
    const held = made.makeDataset('validation')
    const [guess, table] = [held.next(), held.next()] as { name: string; files: Record<string, unknown> }[]
    expect([guess?.name, table?.name]).toEqual(['guess', 'fitTable'])
    const trained = made.makeDataset('train')
    const tables = [trained.next(), trained.next()] as { files: Record<string, unknown> }[]
    expect(tables.map(({ files }) => files)).toContainEqual(table?.files)
    expect(tables[0]?.files).not.toEqual(tables[1]?.files)
    const missing = checkTrainConfig({ task: { ...task, tasks: [{ folder: join(folder, 'none') }] } })
    await expect(makeTask(missing.task, 0)).rejects.toMatchObject({ code: 'IO' })
  })
})

describe.runIf(hasSandbox)('fulmar', () => {
  it('trains and evaluates an agent at work on a table, from JSON alone', async () => {
    const folder = await temporaryFolder()
    const runDir = join(folder, 'run')
    const model = {
      ...{ hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 },
      ...{ num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 2048 },
    }
    // A rollout that is cut off is unscored; a letter comes soon, and ends the answer.
    const stopStrings = [...'abcdefghijklmnopqrstuvwxyz']
    const sampling = { maxTokens: 64, stopStrings }
    const grpo = { steps: 1, promptsPerStep: 1, groupSize: 2, ...sampling, reference: false }
    const gym = { kind: 'mlgym', tasks: ['fitTable'], maxRetries: 0 }
    const json = { runDir, model, grpo, task: gym, sft: { steps: 0 }, eval: { numProblems: 1 } }
    const config = join(folder, 'config.json')
    await writeFile(config, JSON.stringify(json))
    const trained = await fulmar(['train', config])
    expect([trained.code, trained.stderr]).toEqual([0, expect.stringMatching(/grpo step 1: pass rate/)])
    // A model that wrote no code leaves the first submission, whose score is the baseline.
    const baseline = { numScored: 2, numErrors: 0, numUnscored: 0, meanReward: 0, passRate: 0 }
    const ofRun = await fulmar(['eval', runDir, '-n', '1', '-r', '2', '--json'])
    expect(JSON.parse(ofRun.stdout)).toMatchObject(baseline)
    const args = JSON.stringify({ tasks: ['fitTable'], maxRetries: 0 })
    const ofTask = await fulmar([
      'eval',
      'mlgym',
      ...[
        '-m',
        runDir,
        '-a',
        args,
        '-n',
        '1',
        '-r',
        '2',
        '-t',
        '64',
        '-S',
        JSON.stringify({ stop: stopStrings }),
      ],
      '--json',
    ])
    expect([ofTask.code, ofTask.stderr]).toEqual([0, expect.any(String)])
    expect(JSON.parse(ofTask.stdout)).toMatchObject(baseline)
    const wrong = await fulmar(['eval', 'mlgym', '-m', runDir, '-a', '{"taks": []}'])
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringMatching(/did you mean 'tasks'/)])
  })
})
