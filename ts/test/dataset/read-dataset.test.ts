import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  D4RLExperienceReplay,
  MinariExperienceReplay,
  readD4RL,
  readMinari,
} from '../../src/dataset/index.js'
import type { TensorDict } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'
import {
  d4rlOptions,
  expectRows,
  golden,
  goldenBytes,
  isNative,
  minariOptions,
  rowsOf,
  type Wanted,
} from './golden-rows.js'

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/some\.hdf5/),
})

/** Errors of the text of `metadata.json`, which messages call `metadata`. */
const METADATA: Readonly<Record<string, string>> = {
  'metadata is no JSON': 'MALFORMED',
  'metadata without spaces': 'UNKNOWN_NAME',
}

/** The two files of a data set of Minari. */
const minariFiles = (folder: string) =>
  [
    goldenBytes(`${folder}/data/main_data.hdf5`),
    readFileSync(golden(`${folder}/data/metadata.json`), 'utf8'),
  ] as const

/** Fails unless rewards are those of TorchRL in one dimension less. */
function expectRewards(steps: TensorDict, want: unknown): void {
  const { k } = want as { readonly k: { readonly next: { readonly k: { readonly reward: Wanted } } } }
  const { shape, data } = steps.tensor(['next', 'reward'])
  expect(shape).toEqual([11, 1])
  expect([...data]).toEqual((k.next.k.reward.d as number[]).map(Math.fround))
}

describe('readD4RL', () => {
  for (const { id, dataset_id, source, options, ok } of rowsOf('datasets', 'D4RL').filter(({ ok }) => ok))
    it(`reads the bytes of ${dataset_id} as TorchRL (${id})`, () => {
      const { steps, metadata } = readD4RL(goldenBytes(source), {
        splitTrajs: options.split_trajs === true,
        useTruncatedAsDone: options.use_truncated_as_done !== false,
      })
      expectRows(steps, ok?.all)
      if (ok?.metadata.$td) expectRows(metadata, ok.metadata)
    })

  it.runIf(isNative)('reads what the opened buffer has', async () => {
    const [row] = rowsOf('datasets', 'D4RL')
    const buffer = await D4RLExperienceReplay.open('hopper-medium-v2', (await d4rlOptions()).options)
    const { steps, metadata } = readD4RL(goldenBytes(row?.source ?? ''))
    expect(steps.equals(buffer.readAllInOrder())).toBe(true)
    expect(metadata.equals(buffer.metadata)).toBe(true)
  })

  for (const row of rowsOf('broken', 'D4RL'))
    it(`of a file that has ${row.case}: ${row.must}`, () => {
      const read = () => readD4RL(goldenBytes(row.files[0] ?? ''), { name: 'some.hdf5' })
      if (row.must.startsWith('reads them as [N]')) expectRewards(read().steps, row.ok)
      else if (/^(?:loads$|one transition)/.test(row.must)) expectRows(read().steps, row.ok)
      else
        expect(read).toThrow(row.must.startsWith('LIMIT') ? failing('LIMIT_EXCEEDED', /some\.hdf5/) : named)
    })

  it('refuses other arguments', () => {
    expect(() => readD4RL('bytes' as never)).toThrow(failing('MALFORMED', /bytes/))
    const bytes = goldenBytes('broken/d4rl/good.hdf5')
    expect(() => readD4RL(bytes, { split: true } as never)).toThrow(failing('UNKNOWN_NAME', /splitTrajs/))
    expect(() => readD4RL(bytes, { splitTrajs: 'yes' as never })).toThrow(failing('MALFORMED', /splitTrajs/))
    expect(() => readD4RL(bytes, { name: 7 as never })).toThrow(failing('MALFORMED', /name/))
  })
})

describe('readMinari', () => {
  const whole = rowsOf('datasets', 'Minari').filter(({ ok, options }) => ok && !options.split_trajs)
  for (const { dataset_id, source, ok } of whole)
    it(`reads the bytes of ${dataset_id} as TorchRL`, () => {
      const { steps, metadata } = readMinari(...minariFiles(source))
      expectRows(steps, ok?.all)
      expect(metadata.total_steps).toBe(ok?.len)
    })

  it.runIf(isNative)('reads what the opened buffer has', async () => {
    const buffer = await MinariExperienceReplay.open('goal/nested-v0', await minariOptions())
    const { steps, metadata } = readMinari(...minariFiles('raw/minari/goal/nested-v0'))
    expect(steps.equals(buffer.readAllInOrder())).toBe(true)
    expect(metadata).toEqual(buffer.metadata)
  })

  for (const row of rowsOf('broken', 'Minari').filter(({ files }) => files))
    it(`of files with ${row.case}: ${row.must}`, () => {
      const folder = row.files[0]?.replace('/data/main_data.hdf5', '') ?? ''
      const read = () => readMinari(...minariFiles(folder), { name: 'some.hdf5' })
      if (row.must === 'loads') expect(read().steps.batchSize).toEqual([read().metadata.total_steps])
      else if (row.case.startsWith('metadata'))
        expect(read).toThrow(failing(METADATA[row.case] ?? '', /^metadata/))
      else expect(read).toThrow(named)
    })

  it('refuses other arguments', () => {
    const [bytes, text] = minariFiles('broken/minari/good/x-v0')
    expect(() => readMinari([] as never, text)).toThrow(failing('MALFORMED', /bytes/))
    expect(() => readMinari(bytes, {} as never)).toThrow(failing('MALFORMED', /metadata/))
    expect(() => readMinari(bytes, text, { nam: 'x' } as never)).toThrow(failing('UNKNOWN_NAME', /'name'/))
    expect(() => readMinari(bytes, text, { name: 7 as never })).toThrow(failing('MALFORMED', /name/))
  })
})
