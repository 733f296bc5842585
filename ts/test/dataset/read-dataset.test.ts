import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import {
  D4RLExperienceReplay,
  MinariExperienceReplay,
  readD4RL,
  readMinari,
  readNpz,
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
  const whole = rowsOf('datasets', 'Minari').filter(({ ok, options }) => ok?.all && !options.split_trajs)
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

describe('readNpz', () => {
  /** An archive with one stored array: its own header, and the list of the archive, state the same. */
  const archive = (name: string, array: Uint8Array, listed = name): Uint8Array => {
    const [local, central] = [new TextEncoder().encode(name), new TextEncoder().encode(listed)]
    const u16 = (value: number) => [value & 255, value >> 8]
    const u32 = (value: number) => [...u16(value & 0xffff), ...u16(value >>> 16)]
    const about = [
      ...u16(0),
      ...u16(0),
      ...u32(0),
      ...u32(crc32(array)),
      ...u32(array.length),
      ...u32(array.length),
    ]
    const head = [80, 75, 3, 4, ...u16(20), ...about, ...u16(local.length), 0, 0, ...local, ...array]
    const list = [80, 75, 1, 2, ...u16(20), ...u16(20), ...about, ...u16(central.length)]
    list.push(...new Array(12).fill(0), ...u32(0), ...central)
    const end = [80, 75, 5, 6, 0, 0, 0, 0, 1, 0, 1, 0, ...u32(list.length), ...u32(head.length), 0, 0]
    return Uint8Array.from([...head, ...list, ...end])
  }
  const numbers = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n", [7, 0, 0, 1])

  it('reads arrays by their names', () => {
    const arrays = readNpz(archive('x.npy', numbers))
    expect(arrays.keys()).toEqual(['x'])
    expect([arrays.tensor('x').dtype, [...arrays.tensor('x').data]]).toEqual(['i16', [7, 256]])
  })

  it('refuses a list that names another member, names that lead out, and objects', () => {
    expect(() => readNpz(archive('x.npy', numbers, 'y.npy'), { name: 'some.npz' })).toThrow(
      failing('CORRUPT', /some\.npz: .*as it is listed/),
    )
    expect(() => readNpz(archive('../x.npy', numbers))).toThrow(failing('FORBIDDEN', /bytes: .*\.\.\/x\.npy/))
    const objects = npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n", [1, 2])
    expect(() => readNpz(archive('x.npy', objects))).toThrow(failing('INCOMPATIBLE', /"x"/))
    expect(() => readNpz('bytes' as never)).toThrow(failing('MALFORMED', /bytes/))
    expect(() => readNpz(numbers, { nam: 'x' } as never)).toThrow(failing('UNKNOWN_NAME', /'name'/))
  })

  for (const row of rowsOf('broken', 'VD4RL').filter(({ files }) => files?.[0]?.endsWith('.npz')))
    it(`of an archive that has ${row.case}`, () => {
      try {
        expect(readNpz(goldenBytes(row.files[0] ?? '')).keys().length).toBeGreaterThan(0)
      } catch (error) {
        expect(error).toMatchObject({ name: 'FulmarError', message: expect.stringMatching(/^bytes/) })
      }
    })
})

/** An array of NumPy. */
function npy(header: string, elements: readonly number[]): Uint8Array {
  const text = new TextEncoder().encode(header)
  return Uint8Array.from([0x93, 78, 85, 77, 80, 89, 1, 0, text.length, 0, ...text, ...elements])
}
