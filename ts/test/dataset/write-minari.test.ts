import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  D4RLExperienceReplay,
  MinariExperienceReplay,
  readMinari,
  writeMinari,
} from '../../src/dataset/index.js'
import { NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { d4rlOptions, isNative, minariOptions, rowsOf } from './golden-rows.js'

const WHOLE = rowsOf('datasets', 'Minari').filter(({ ok, options }) => ok?.all && !options.split_trajs)

/** Three steps of two episodes. */
function steps(): TensorDict {
  const column = (values: number[]) => Tensor.from(values, { shape: [3, 1] })
  const next = { observation: column([1, 2, 5]), reward: column([0, 1, 0]), done: column([0, 1, 0]) }
  return TensorDict.from(
    {
      observation: column([0, 1, 4]),
      action: Tensor.from(BigInt64Array.of(0n, 2n, 1n)),
      task: new NonTensorStack(['a', 'a', 'b']),
      next: TensorDict.from(next, { batchSize: [3] }),
    },
    { batchSize: [3] },
  )
}

async function bytesIn(folder: string) {
  const bytes = new Uint8Array(await readFile(join(folder, 'data', 'main_data.hdf5')))
  return [bytes, await readFile(join(folder, 'data', 'metadata.json'), 'utf8')] as const
}

describe('writeMinari', () => {
  for (const { dataset_id } of WHOLE)
    it.runIf(isNative)(`writes ${dataset_id} as it was read`, async () => {
      const buffer = await MinariExperienceReplay.open(dataset_id, await minariOptions())
      const minariRoot = await temporaryFolder()
      const folder = await writeMinari(buffer, dataset_id, { minariRoot })
      expect(folder).toBe(join(minariRoot, ...dataset_id.split('/')))
      const again = await MinariExperienceReplay.open(dataset_id, {
        ...{ root: await temporaryFolder(), minariRoot, loadFromLocalMinari: true },
      })
      expect(again.readAllInOrder().equals(buffer.readAllInOrder())).toBe(true)
      const { dataset_size: _, jpeg_encoding: __, ...metadata } = buffer.metadata
      expect(again.metadata).toMatchObject(metadata)
      expect((await readdir(folder, { recursive: true })).sort()).toEqual([
        'data',
        join('data', 'main_data.hdf5'),
        join('data', 'metadata.json'),
      ])
    })

  it.runIf(isNative)('writes rows of D4RL, without what is at the root of the step before', async () => {
    const buffer = await D4RLExperienceReplay.open('hopper-medium-v2', (await d4rlOptions()).options)
    const rows = buffer.readAllInOrder()
    const folder = await writeMinari(buffer, 'd4rl/hopper-v0', { minariRoot: await temporaryFolder() })
    const { steps, metadata } = readMinari(...(await bytesIn(folder)))
    for (const key of [
      'observation',
      'action',
      ['next', 'observation'],
      ['next', 'reward'],
      ['next', 'done'],
    ])
      expect(steps.tensor(key).equals(rows.tensor(key))).toBe(true)
    expect(metadata).toMatchObject({ total_steps: rows.batchSize[0], dataset_id: 'd4rl/hopper-v0' })
  })

  it('counts episodes by their ends, and describes spaces by the rows', async () => {
    const minariRoot = await temporaryFolder()
    const options = { minariRoot, metadata: { author: ['A'], env_spec: { id: 'Toy-v0' } } }
    const folder = await writeMinari(steps(), 'a/b/toy-v0', options)
    const [bytes, text] = await bytesIn(folder)
    const { steps: again, metadata } = readMinari(bytes, text)
    expect(Array.from(again.tensor('episode').data, Number)).toEqual([0, 0, 1])
    expect(again.value('task')).toEqual(['a', 'a', 'b'])
    expect(again.tensor(['next', 'terminated']).equals(again.tensor(['next', 'done']))).toBe(true)
    expect(metadata).toMatchObject({
      total_episodes: 2,
      total_steps: 3,
      author: ['A'],
      env_spec: { id: 'Toy-v0' },
      observation_space: {
        type: 'Box',
        dtype: 'float32',
        shape: [1],
        low: ['-Infinity'],
        high: ['Infinity'],
      },
      action_space: { type: 'Discrete', start: 0, n: 3 },
    })
    expect(text).toContain('\\"low\\": [-Infinity]')
    expect((await readdir(join(minariRoot, 'a'))).sort()).toEqual(['b', 'namespace_metadata.json'])
  })

  it('refuses what the format cannot hold, and leaves nothing', async () => {
    const minariRoot = await temporaryFolder()
    const refuse = async (change: (rows: TensorDict) => unknown, code: string, message: RegExp) => {
      const rows = steps()
      change(rows)
      await expect(writeMinari(rows, 'toy-v0', { minariRoot })).rejects.toThrow(failing(code, message))
    }
    const column = (values: number[]) => Tensor.from(values, { shape: [3, 1] })
    await refuse(
      (rows) => rows.set(['next', 'observation'], column([9, 2, 5])),
      'INCOMPATIBLE',
      /"observations".*differs/,
    )
    await refuse((rows) => rows.set(['next', 'done'], column([0, 2, 0])), 'OUT_OF_RANGE', /"done".*got 2/)
    await refuse((rows) => rows.set(['next', 'task2'], column([0, 0, 0])), 'INCOMPATIBLE', /"task2"/)
    await refuse((rows) => rows.set('episode', column([0, 1, 0])), 'INCOMPATIBLE', /"episode".*row 2/)
    await refuse((rows) => rows.delete('action'), 'UNKNOWN_NAME', /action/)
  })

  it('refuses other arguments, and to replace what is there', async () => {
    const minariRoot = await temporaryFolder()
    const refuse = async (rows: unknown, id: string, options: object, code: string) =>
      await expect(writeMinari(rows as never, id, { minariRoot, ...options })).rejects.toThrow(failing(code))
    await refuse(7, 'toy-v0', {}, 'MALFORMED')
    await refuse(steps(), '../toy-v0', {}, 'MALFORMED')
    await refuse(steps(), 'toy', {}, 'MALFORMED')
    await refuse(steps(), 'toy-v0', { metadata: 7 }, 'MALFORMED')
    await refuse(steps(), 'toy-v0', { minariRoot: 7 }, 'MALFORMED')
    await refuse(steps(), 'toy-v0', { root: '/x' }, 'UNKNOWN_NAME')
    expect(await readdir(minariRoot)).toEqual([])
    await writeMinari(steps(), 'toy-v0', { minariRoot })
    await refuse(steps(), 'toy-v0', {}, 'INCOMPATIBLE')
  })
})
