import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { writeTensorBoard } from '../../src/dashboard/index.js'
import { tensorBoardBytes } from '../../src/dashboard/tensor-board.js'
import type { RunEvent } from '../../src/telemetry/index.js'
import { fulmar } from '../cli/fake-io.js'
import { madeRun, newFolder } from './run-folders.js'

const EVENTS: readonly RunEvent[] = [
  { event: 'eval', phase: 'grpo', step: 0, passRate: 0.25, numProblems: 4 },
  {
    event: 'step',
    phase: 'grpo',
    step: 300,
    numSteps: 400,
    metrics: { reward: -0.1, täg: 1e-9, seconds: 1.5 },
  },
]

/** The same events by `RecordWriter`, `Event` and `Summary` of tensorboard 2.21.0 with protobuf 7.36.2. */
const GOLDEN =
  '1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110' +
  '2100000000000000017becf60900002040fc54d9412a160a140a0d6772706f2f7061737352617465' +
  '150000803ece1eada5490000000000000036250ea30900008040fc54d94110ac022a3b0a120a0b67' +
  '72706f2f72657761726415cdccccbd0a100a096772706f2f74c3a467155f7089300a130a0c677270' +
  '6f2f7365636f6e6473150000c03f9da46ab9'

describe('writeTensorBoard', () => {
  it('writes the bytes of TensorBoard’s own writer', () => {
    expect(Buffer.from(tensorBoardBytes(EVENTS, 1_700_000_000.5)).toString('hex')).toBe(GOLDEN)
  })

  it('writes results behind the last step, and nothing for an event without metrics', () => {
    const empty = tensorBoardBytes([], 7)
    expect(tensorBoardBytes([{ event: 'result', metrics: {} }], 7)).toEqual(empty)
    const result = tensorBoardBytes([...EVENTS, { event: 'result', metrics: { gain: 1 } }], 1_700_000_000.5)
    const last = Buffer.from(result).subarray(GOLDEN.length / 2 + 12)
    expect(last.subarray(9, 12).toString('hex')).toBe('10ac02')
    expect(last.toString('latin1')).toContain('result/gain')
  })

  it('writes a run that goes on, from the terminal too, and replaces its file', async () => {
    const run = await madeRun()
    await utimes(join(run, 'config.json'), 1_600_000_000, 1_600_000_000)
    const { code, stdout } = await fulmar(['export', 'tensorboard', run])
    const path = join(run, 'tensorboard', 'events.out.tfevents.1600000000.fulmar')
    expect([code, stdout]).toEqual([0, `${path}\n`])
    await writeTensorBoard({ run })
    expect(await readdir(join(run, 'tensorboard'))).toHaveLength(1)
    expect((await readFile(path)).toString('latin1')).toMatch(
      /grpo\/passRate.*grpo\/reward.*grpo\/rollout\/output_tokens\/mean/s,
    )
    const out = join(await newFolder(), 'a', 'b')
    const printed = await fulmar(['export', 'tensorboard', run, '--out', out, '--json'])
    expect(JSON.parse(printed.stdout).path).toBe(join(out, 'events.out.tfevents.1600000000.fulmar'))
  })

  it('refuses what is no run, a time that cannot be, and a folder that cannot be made', async () => {
    const run = await madeRun()
    await expect(writeTensorBoard({ run: '/no/such/run' })).rejects.toMatchObject({ code: 'IO' })
    await expect(writeTensorBoard({ run, startSeconds: -1 })).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
    await expect(writeTensorBoard({ run, startSeconds: Number.NaN })).rejects.toMatchObject({
      code: 'OUT_OF_RANGE',
    })
    const file = join(await newFolder(), 'file')
    await writeFile(file, '')
    await expect(writeTensorBoard({ run, folder: join(file, 'x') })).rejects.toMatchObject({ code: 'IO' })
    const taken = await newFolder()
    await mkdir(join(taken, 'events.out.tfevents.1.fulmar'))
    await expect(writeTensorBoard({ run, folder: taken, startSeconds: 1 })).rejects.toMatchObject({
      code: 'IO',
    })
  })
})
