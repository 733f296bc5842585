import { appendFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { TAIL_LINE_BYTES_MAX } from '../../src/dashboard/line-tail.js'
import { RUN_EVENTS_MAX, RUN_NOTES_MAX, RUN_ROLLOUTS_MAX, RunTail } from '../../src/dashboard/run-tail.js'
import { madeRun, newFolder } from './run-folders.js'

const stepLine = (step: number) =>
  `${JSON.stringify({ event: 'step', phase: 'grpo', step, numSteps: 4, metrics: { reward: step } })}\n`

const sampleLine = (groupId: number, content = 'x') =>
  JSON.stringify({
    groupId,
    rolloutId: 0,
    status: 'completed',
    reward: 1,
    turns: [{ completionMessage: { content } }],
  })

async function stepsOf(run: RunTail): Promise<number[]> {
  await run.refresh()
  return run.events.flatMap((event) => (event.event === 'step' ? [event.step] : []))
}

describe('RunTail', () => {
  it('reads a run, and then only what was appended', async () => {
    const folder = await madeRun()
    const run = await RunTail.open(folder)
    expect(run.rollouts.map(({ groupId, rolloutId, reward }) => [groupId, rolloutId, reward])).toEqual([
      [1, 0, 0],
      [1, 1, 1],
      [2, 0, 0],
      [2, 1, 1],
    ])
    const { revision } = run
    expect(await stepsOf(run)).toEqual([1, 2])
    expect(run.revision).toBe(revision)
    await appendFile(join(folder, 'log.jsonl'), stepLine(3))
    expect(await stepsOf(run)).toEqual([1, 2, 3])
    expect(run.revision).toBeGreaterThan(revision)
    expect(run.notes).toEqual([])
  })

  it('waits for the end of a line that is cut', async () => {
    const folder = await madeRun()
    const run = await RunTail.open(folder)
    const line = stepLine(3)
    await appendFile(join(folder, 'log.jsonl'), line.slice(0, 20))
    expect(await stepsOf(run)).toEqual([1, 2])
    await appendFile(join(folder, 'log.jsonl'), line.slice(20))
    expect(await stepsOf(run)).toEqual([1, 2, 3])
    expect(run.notes).toEqual([])
  })

  it('begins anew where a resumed run has cut its log, though it has grown since', async () => {
    const folder = await madeRun()
    const run = await RunTail.open(folder)
    await truncate(join(folder, 'log.jsonl'), 0)
    for (const step of [1, 2, 3, 4, 5, 6]) await appendFile(join(folder, 'log.jsonl'), stepLine(step))
    expect(await stepsOf(run)).toEqual([1, 2, 3, 4, 5, 6])
    await writeFile(join(folder, 'samples.jsonl'), `${sampleLine(9)}\n`)
    await run.refresh()
    expect(run.rollouts.map(({ groupId }) => groupId)).toEqual([9])
  })

  it('keeps what it has when the folder vanishes, and goes on when it comes back', async () => {
    const folder = await madeRun()
    const run = await RunTail.open(folder)
    await rename(folder, `${folder}-away`)
    expect(await stepsOf(run)).toEqual([1, 2])
    expect(run.isHere).toBe(false)
    const [first] = run.rollouts
    if (first) await expect(run.rolloutLine(first)).rejects.toMatchObject({ code: 'IO' })
    await rename(`${folder}-away`, folder)
    expect(await stepsOf(run)).toEqual([1, 2])
    expect(run.isHere).toBe(true)
  })

  it('skips a line above the limit with a note, takes one at the limit, and goes on behind it', async () => {
    const folder = await madeRun()
    const path = join(folder, 'samples.jsonl')
    const padding = TAIL_LINE_BYTES_MAX - sampleLine(10, '').length
    await appendFile(
      path,
      `${sampleLine(10, 'a'.repeat(padding))}\n${sampleLine(11, 'a'.repeat(padding + 1))}\n`,
    )
    await appendFile(path, `${sampleLine(12, 'b'.repeat(10 * 2 ** 20))}\n${sampleLine(13)}\n`)
    const run = await RunTail.open(folder)
    expect(run.rollouts.slice(4).map(({ groupId }) => groupId)).toEqual([10, 13])
    expect(run.notes).toEqual([
      `line 6 of samples.jsonl has ${TAIL_LINE_BYTES_MAX + 1} bytes, more than ${TAIL_LINE_BYTES_MAX}, and is skipped`,
      expect.stringMatching(/^line 7 of samples.jsonl has \d+ bytes, more than/),
    ])
    const last = run.rollouts.at(-1)
    expect(last && (await run.rolloutLine(last))).toMatchObject({ groupId: 13 })
  })

  it('skips lines that are no JSON or of another form, with a bounded number of notes', async () => {
    const folder = await madeRun()
    await appendFile(join(folder, 'log.jsonl'), `${'{"event":\n'.repeat(40)}[]\n${stepLine(3)}`)
    const run = await RunTail.open(folder)
    expect(await stepsOf(run)).toEqual([1, 2, 3])
    expect(run.notes).toHaveLength(RUN_NOTES_MAX)
    expect(run.notes[0]).toBe('line 4 of log.jsonl is not JSON, and is skipped')
  })

  it('keeps as many events and rollouts as it may, and notes that there are more', async () => {
    const folder = await newFolder()
    const event = '{"event":"result","metrics":{}}\n'
    const rollout = '{"groupId":1,"rolloutId":0,"turns":[]}\n'
    await writeFile(join(folder, 'log.jsonl'), event.repeat(RUN_EVENTS_MAX))
    await writeFile(join(folder, 'samples.jsonl'), rollout.repeat(RUN_ROLLOUTS_MAX))
    const run = await RunTail.open(folder)
    expect(run.notes).toEqual([])
    await appendFile(join(folder, 'log.jsonl'), event)
    await appendFile(join(folder, 'samples.jsonl'), rollout)
    await run.refresh()
    expect([run.events.length, run.rollouts.length]).toEqual([RUN_EVENTS_MAX, RUN_ROLLOUTS_MAX])
    expect(run.notes).toEqual([
      `log.jsonl has more than ${RUN_EVENTS_MAX} events: later ones are left out`,
      `there are more than ${RUN_ROLLOUTS_MAX} rollouts: later ones are left out`,
    ])
  })

  it('refuses what is no run', async () => {
    const folder = await newFolder()
    await expect(RunTail.open(folder)).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(RunTail.open(join(folder, 'absent'))).rejects.toMatchObject({ code: 'IO' })
  })

  it.skipIf(process.platform === 'win32')(
    'does not follow a link out of the folder, but one to the folder',
    async () => {
      const [folder, other] = [await madeRun(), await madeRun()]
      const [path, linked] = [join(folder, 'samples.jsonl'), join(await newFolder(), 'run')]
      await symlink(folder, linked)
      const run = await RunTail.open(linked)
      expect([run.rollouts.length, run.notes]).toEqual([4, []])
      await rm(path)
      await symlink(join(other, 'samples.jsonl'), path)
      await rm(join(folder, 'config.json'))
      await symlink('/etc/hostname', join(folder, 'config.json'))
      await run.refresh()
      expect(run.notes).toEqual([
        'config.json is a link that leads out of the folder, and is not read',
        'samples.jsonl is a link that leads out of the folder, and is not read',
      ])
      const [first] = run.rollouts
      if (first) await expect(run.rolloutLine(first)).rejects.toMatchObject({ code: 'IO' })
      const anew = await RunTail.open(folder)
      expect([anew.rollouts.length, anew.config]).toEqual([0, undefined])
    },
  )

  it('notes a file that is replaced by a folder, and a rollout that is not there any more', async () => {
    const folder = await madeRun()
    const run = await RunTail.open(folder)
    await writeFile(join(folder, 'samples.jsonl'), 'x'.repeat(2_000))
    const [first] = run.rollouts
    if (first) await expect(run.rolloutLine(first)).rejects.toMatchObject({ code: 'CORRUPT' })
    await rm(join(folder, 'config.json'))
    await writeFile(join(folder, 'config.json'), '{')
    await run.refresh()
    expect(run.notes.join()).toContain('config.json cannot be read')
  })
})
