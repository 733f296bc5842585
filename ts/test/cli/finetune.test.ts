import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createModel, loadModel } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'

/** A folder with a small model in it and rows of both kinds. */
async function prepared() {
  const folder = await temporaryFolder()
  using model = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
  await model.save(join(folder, 'base'))
  const rows = join(folder, 'rows.jsonl')
  await writeFile(rows, '{"prompt":"Tea?","completion":"yes"}\n{"prompt":"Milk?","completion":"no"}\n')
  const pairs = join(folder, 'pairs.jsonl')
  await writeFile(pairs, '{"prompt":"Tea?","chosen":"yes","rejected":"no"}\n')
  return { base: join(folder, 'base'), rows, pairs, out: join(folder, 'out') }
}

describe('fulmar sft', () => {
  it('trains on a file of rows and writes a model that chats', async () => {
    const { base, rows, out } = await prepared()
    const flags = ['--epochs', '40', '--batch-size', '2', '--learning-rate', '0.02']
    const trained = await fulmar(['sft', '--model', base, '--data', rows, '--out', out, ...flags])
    expect(trained).toMatchObject({ code: 0 })
    expect(trained.stdout).toMatch(/steps +40\n/)
    expect(trained.stderr).toMatch(/sft 40\/40 .*\n/)
    const chatted = await fulmar(['chat', out, '--temperature', '0', '--max-tokens', '5'], {
      stdin: 'Tea?\nMilk?\n',
    })
    expect(chatted).toMatchObject({ code: 0 })
    expect(chatted.stdout.split('\n')[0]).toBe('yes')
    expect(chatted.stdout.split('\n').length).toBe(3)
  })

  it('trains an adapter, and prints one line of JSON', async () => {
    const { base, rows, out } = await prepared()
    const { code, stdout } = await fulmar([
      'sft',
      '--model',
      base,
      '--data',
      rows,
      '--out',
      out,
      '--lora-rank',
      '2',
      '--steps',
      '1',
      '--json',
    ])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({
      steps: 1,
      firstLoss: expect.any(Number),
      lastLoss: expect.any(Number),
      out,
      data: rows,
    })
    using model = await loadModel(out)
    expect(model.decoder.hasAdapter).toBe(true)
  })

  it('ends with 2 without a model, and with one sentence for a model or rows that are not there', async () => {
    const { base, out } = await prepared()
    expect(await fulmar(['sft', '--data', 'x', '--out', out])).toMatchObject({ code: 2 })
    const missing = await fulmar(['sft', '--model', '/no/such', '--data', 'x', '--out', out])
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^fulmar: model must be .* \(IO\)\n$/),
    })
    const rows = await fulmar(['sft', '--model', base, '--data', '/no/rows', '--out', out])
    expect(rows).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^fulmar: .*\/no\/rows.* \(IO\)\n$/),
    })
  })
})

describe('fulmar dpo', () => {
  it('trains on a file of pairs', async () => {
    const { base, pairs, out } = await prepared()
    const flags = [
      '--epochs',
      '3',
      '--batch-size',
      '1',
      '--learning-rate',
      '0.02',
      '--lora-rank',
      '2',
      '--json',
    ]
    const { code, stdout } = await fulmar(['dpo', '--model', base, '--data', pairs, '--out', out, ...flags])
    expect(code).toBe(0)
    const { steps, firstLoss, lastLoss } = JSON.parse(stdout)
    expect(steps).toBe(3)
    expect(lastLoss).toBeLessThan(firstLoss)
  })
})
