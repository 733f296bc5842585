import { execFileSync } from 'node:child_process'
import { appendFile, readFile, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  isRunEvent,
  JSON_LINE_BYTES_MAX,
  JSON_LINES_BYTES_MAX,
  JsonLinesFile,
  LINES_BUFFER_LENGTH_MAX,
  RUN_CONFIG_BYTES_MAX,
  RunLog,
  readJsonLines,
  readRun,
  type StepEvent,
} from '../../src/telemetry/index.js'
import { temporaryFolder } from './folder.js'

const step = (number: number): StepEvent => ({
  event: 'step',
  phase: 'grpo',
  step: number,
  numSteps: 9,
  metrics: { reward: number / 10 },
})

async function logOf(folder: string, ...steps: number[]): Promise<void> {
  using log = await RunLog.open({ folder, config: { seed: 7 } })
  for (const number of steps) log.append(step(number))
}

describe('RunLog', () => {
  it('writes a folder that reads back as it was', async () => {
    const folder = join(await temporaryFolder(), 'runs', 'one')
    const log = await RunLog.open({ folder, config: { seed: 7, note: 'naïve' } })
    log.append(step(1))
    log.samples.append({ reward: 1 })
    log.close()
    log.close()
    expect(await readRun(folder)).toEqual({
      config: { seed: 7, note: 'naïve' },
      events: [step(1)],
      samples: [{ reward: 1 }],
    })
  })

  it('begins anew in the folder of another run', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1, 2)
    await logOf(folder, 1)
    expect((await readRun(folder)).events).toEqual([step(1)])
  })

  it('drops the steps behind a checkpoint when a run is resumed, so none stands there twice', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1, 2, 3, 4)
    const keepEvent = (event: unknown) => isRunEvent(event) && event.event === 'step' && event.step <= 2
    using log = await RunLog.open({ folder, config: {}, keepEvent })
    log.append(step(3))
    log.flush()
    expect((await readRun(folder)).events).toEqual([step(1), step(2), step(3)])
  })

  it('cuts off a last line that a crash tore, wherever it tore it', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1, 2)
    const path = join(folder, 'log.jsonl')
    const whole = await readFile(path)
    const lines = fc.nat({ max: whole.length - 1 })
    await fc.assert(
      fc.asyncProperty(lines, async (length) => {
        await writeFile(path, whole.subarray(0, length))
        using log = await RunLog.open({ folder, config: {}, keepEvent: () => true })
        log.append(step(3))
        log.flush()
        const survivors = length < whole.indexOf(10) + 1 ? [] : [step(1)]
        expect((await readRun(folder)).events).toEqual([...survivors, step(3)])
      }),
      { numRuns: 30 },
    )
  })

  it('trusts nothing behind a line that is not JSON', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1)
    await appendFile(join(folder, 'log.jsonl'), `\0\0\0\n${JSON.stringify(step(2))}\n`)
    expect((await readRun(folder)).events).toEqual([step(1)])
  })

  it('leaves lines out of reports that are no events of this version', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1)
    await appendFile(join(folder, 'log.jsonl'), '{"event":"later"}\n7\nnull\n{"event":"step","phase":"x"}\n')
    expect((await readRun(folder)).events).toEqual([step(1)])
  })

  it('refuses a folder that is none, and a config that is not JSON', async () => {
    const folder = await temporaryFolder()
    await expect(readRun(join(folder, 'nowhere'))).rejects.toMatchObject({ code: 'IO' })
    await writeFile(join(folder, 'config.json'), 'seed: 7')
    await expect(readRun(folder)).rejects.toMatchObject({ code: 'CORRUPT' })
    await writeFile(join(folder, 'file'), '')
    await expect(RunLog.open({ folder: join(folder, 'file'), config: {} })).rejects.toMatchObject({
      code: 'IO',
    })
  })
})

describe('readRun', () => {
  const refusal = (value: string, name: string) =>
    expect.objectContaining({ name: 'FulmarError', code: value, message: expect.stringContaining(name) })

  it.each(['config.json', 'log.jsonl', 'samples.jsonl'])(
    'refuses a pipe or a device as %s at once',
    async (name) => {
      const folder = await temporaryFolder()
      await logOf(folder, 1)
      const path = join(folder, name)
      execFileSync('sh', ['-c', 'rm "$0" && mkfifo "$0"', path])
      await expect(readRun(folder)).rejects.toThrow(refusal('CORRUPT', name))
      if (name !== 'config.json') expect(() => new JsonLinesFile(path)).toThrow(refusal('CORRUPT', name))
      execFileSync('rm', [path])
      await symlink('/dev/zero', path)
      await expect(readRun(folder)).rejects.toThrow(refusal('CORRUPT', name))
    },
  )

  it.each(['log.jsonl', 'samples.jsonl'])(
    'does not take zeros or another file for an empty %s',
    async (name) => {
      const folder = await temporaryFolder()
      await logOf(folder, 1)
      const path = join(folder, name)
      for (const bytes of [
        new Uint8Array(1),
        new Uint8Array(3_000_000),
        'PAR1....',
        '\n\n',
        'hello\n{"a":1}\n',
      ]) {
        await writeFile(path, bytes)
        await expect(readRun(folder)).rejects.toThrow(refusal('CORRUPT', name))
        expect(() => new JsonLinesFile(path)).toThrow(refusal('CORRUPT', name))
        expect((await readFile(path)).length).toBe(bytes.length)
      }
      await writeFile(path, '')
      await readRun(folder)
      await logOf(folder, 2)
      expect((await readRun(folder)).events).toEqual([step(2)])
    },
  )

  it('reads files up to their limits, and refuses larger ones before it takes memory', async () => {
    const folder = await temporaryFolder()
    await logOf(folder, 1)
    const log = join(folder, 'log.jsonl')
    await truncate(log, JSON_LINES_BYTES_MAX + 1)
    await expect(readRun(folder)).rejects.toThrow(refusal('LIMIT_EXCEEDED', 'log.jsonl'))
    expect(() => new JsonLinesFile(log)).toThrow(refusal('LIMIT_EXCEEDED', 'log.jsonl'))
    await truncate(join(folder, 'config.json'), RUN_CONFIG_BYTES_MAX + 1)
    await expect(readRun(folder)).rejects.toThrow(refusal('LIMIT_EXCEEDED', 'config.json'))
    await truncate(join(folder, 'config.json'), RUN_CONFIG_BYTES_MAX)
    await expect(readRun(folder)).rejects.toThrow(refusal('CORRUPT', 'config.json'))
  })

  it('writes and reads lines up to their limit', async () => {
    const path = join(await temporaryFolder(), 'lines.jsonl')
    const longest = 'x'.repeat(JSON_LINE_BYTES_MAX - 3)
    using file = new JsonLinesFile(path)
    file.append(longest)
    expect(() => file.append(`${longest}x`)).toThrow(refusal('LIMIT_EXCEEDED', 'line'))
    file.flush()
    expect((await readJsonLines(path)).length).toBe(1)
    await writeFile(path, `"${longest}xxx`)
    await expect(readJsonLines(path)).rejects.toThrow(refusal('LIMIT_EXCEEDED', 'lines.jsonl'))
  })
})

describe('JsonLinesFile', () => {
  it('keeps lines in memory until they fill its buffer or it is flushed', async () => {
    const path = join(await temporaryFolder(), 'lines.jsonl')
    using file = new JsonLinesFile(path)
    file.append({ short: 1 })
    expect((await stat(path)).size).toBe(0)
    const overhead = JSON.stringify({ short: 1 }).length + 1 + '""\n'.length
    file.append('x'.repeat(LINES_BUFFER_LENGTH_MAX - overhead - 1))
    expect((await stat(path)).size).toBe(0)
    file.append(0)
    expect((await stat(path)).size).toBeGreaterThanOrEqual(LINES_BUFFER_LENGTH_MAX)
    file.append({ tail: 1 })
    file.flush()
    expect((await readJsonLines(path)).at(-1)).toEqual({ tail: 1 })
  })

  it('refuses lines after it was closed', async () => {
    const file = new JsonLinesFile(join(await temporaryFolder(), 'lines.jsonl'))
    file.close()
    expect(() => file.append({})).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    expect(() => file.flush()).toThrow(expect.objectContaining({ code: 'CLOSED' }))
  })
})
