import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import { inspect } from '../../src/dashboard/index.js'
import { Decoder } from '../../src/model/index.js'
import { TensorStorageCheckpointer } from '../../src/replay/checkpointer.js'
import { LazyTensorStorage, ReplayBuffer } from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { saveCheckpoint } from '../../src/train/index.js'
import { fulmar } from '../cli/fake-io.js'
import { madeRollout, madeRun, newFolder } from './run-folders.js'

const isNative = process.env.FULMAR_TEST_BACKEND !== 'wasm'

describe('fulmar inspect', () => {
  it('shows the state of a run and its rollouts', async () => {
    const folder = await madeRun()
    const { code, stdout } = await fulmar(['inspect', folder])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^kind +run$/m)
    expect(stdout).toMatch(/^state +grpo step 2 of 4$/m)
    expect(stdout).toMatch(/^task +capitals$/m)
    expect(stdout).toMatch(/^rollouts +4$/m)
    expect(stdout).toMatch(/^lastStep.reward +0.5$/m)
    const finished = JSON.parse(
      (await fulmar(['inspect', await madeRun({ isFinished: true }), '--json'])).stdout,
    )
    expect(finished).toMatchObject({
      kind: 'run',
      facts: {
        state: 'finished',
        seed: 7,
        meanReward: 0.5,
        statuses: { completed: 4 },
        result: { passRateAfter: 0.75 },
      },
    })
  })

  it('counts the tokens of a ledger by origin, in both of its forms', async () => {
    const folder = await newFolder()
    const { ledger } = madeRollout({})
    ledger.recordTurn({
      ...{ promptIds: Uint32Array.of(1, 9), completionIds: Uint32Array.of(4), policyVersion: 8 },
      ...{ logProbs: Float32Array.of(-1), sampledLogProbs: Float32Array.of(-1) },
    })
    await writeFile(join(folder, 'a.bin'), ledger.toBytes())
    await writeFile(join(folder, 'a.json'), JSON.stringify(ledger))
    const facts = {
      ...{ tokens: 6, turns: 2, branches: 2, origins: { env: 3, sampled: 3 }, forks: { history_edit: 1 } },
      ...{ oldestVersion: 7, newestVersion: 8 },
    }
    expect(await inspect(join(folder, 'a.bin'))).toMatchObject({ kind: 'ledger', facts })
    expect(await inspect(join(folder, 'a.json'))).toMatchObject({ kind: 'ledger', facts })
    const empty = join(folder, 'empty.bin')
    await writeFile(empty, new Ledger().toBytes())
    expect(await inspect(empty)).toMatchObject({ facts: { tokens: 0, oldestVersion: null } })
  })

  it('lists the files of a checkpoint', async () => {
    const folder = join(await newFolder(), 'checkpoint')
    const shape = {
      model_type: 'llama',
      vocab_size: 5,
      hidden_size: 4,
      intermediate_size: 8,
      num_hidden_layers: 1,
      num_attention_heads: 2,
    } as const
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    await saveCheckpoint({ folder, decoder, state: { step: 3, phase: 'grpo' } })
    const { kind, facts } = await inspect(folder)
    expect(kind).toBe('checkpoint')
    expect(facts).toMatchObject({ step: 3, phase: 'grpo', hasOptimizer: false, model: { hidden_size: 4 } })
    expect(facts.bytes).toMatchObject({ 'model.safetensors': expect.any(Number) })
  })

  it.runIf(isNative)('counts the rows of a buffer', async () => {
    const folder = join(await newFolder(), 'buffer')
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
    buffer.extend(TensorDict.from({ a: Tensor.from(Float32Array.of(1, 2, 3)) }, { batchSize: [3] }))
    buffer.dumps(folder, new TensorStorageCheckpointer())
    expect(await inspect(folder)).toMatchObject({
      kind: 'buffer',
      facts: { rows: 3, capacity: 10, writes: 3, form: 'fulmar', leaves: ['a: float32 [10]'] },
    })
  })

  it('shows escapes of terminals and marks of direction as text', async () => {
    const folder = await newFolder()
    const name = 'red \u001b[31m\u009b2J \u202etxt\nline'
    await writeFile(join(folder, 'config.json'), JSON.stringify({ task: { name } }))
    await writeFile(join(folder, 'log.jsonl'), '')
    const { stdout } = await fulmar(['inspect', folder])
    expect(stdout).toContain('red \\u001b[31m\\u009b2J \\u202etxt\\nline')
    expect(stdout.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\u202e]/u)
  })

  it('refuses what it does not know, with the path', async () => {
    const folder = await newFolder()
    await writeFile(join(folder, 'notes.txt'), 'hello')
    await mkdir(join(folder, 'manifest.json'))
    await expect(inspect(join(folder, 'notes.txt'))).rejects.toMatchObject({
      code: 'CORRUPT',
      message: expect.stringContaining('notes.txt'),
    })
    await expect(inspect(join(folder, 'absent'))).rejects.toMatchObject({ code: 'IO' })
    await expect(inspect(folder)).rejects.toMatchObject({ code: 'CORRUPT' })
    await expect(inspect(await newFolder())).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(inspect('')).rejects.toMatchObject({ code: 'MALFORMED' })
  })
})
