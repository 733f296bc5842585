import { chmod, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../../src/telemetry/index.js'
import { fitTable, MLGymEnv } from '../../../src/torchrl/index.js'
import { worksHere } from '../../tools/sandbox-here.js'
import { assistant, failing } from './chats.js'
import { block, context, play, timesTask } from './ml-gym.js'

const isUsable = await worksHere()

describe.runIf(isUsable)('MLGymEnv', () => {
  it('runs commands, code and edits in one folder, and scores it against its beginning', async () => {
    const edit = '<<<<<<<\na note\n=======\nanother\nnote\n>>>>>>>'
    const { answers, result, signals } = await play(timesTask(), [
      `First a look.\n${block('bash', 'cat n.txt notes/a.txt; echo oops >&2; exit 3')}`,
      `${block('edit notes/a.txt', edit)}\n${block('bash', 'cat notes/a.txt')}`,
      block('python', 'open("n.txt", "w").write("4")'),
      `${block('write extra.txt', 'more')}\n${block('submit')}`,
    ])
    expect(answers[0]).toBe('Tool bash executed successfully:\nexit code 3\n1a note\n\nstderr:\noops\n')
    expect(answers[1]).toContain('exit code 0\nanother\nnote\n')
    expect(answers.at(-1)).toContain('The score is 40; at the beginning it was 10.')
    expect(result).toEqual({ status: 'scored', score: 40, baseline: 10, reward: 30 })
    expect(signals).toEqual({ score: 40, baseline: 10, improvement: 30 })
  })

  it('asks again for a reply without code, and scores the folder after too many', async () => {
    const env = new MLGymEnv(timesTask(), { maxRetries: 1 })
    await env.init(context)
    const again = await env.step(assistant('I would write 4.\n```json\n{}\n```'), context)
    expect(again).toMatchObject({ envRewards: { retry: 1 } })
    expect(again.done).toBeUndefined()
    expect(String(again.envMessages?.[0]?.content)).toMatch(/no block that can be run/)
    expect(env.result).toBeNull()
    const last = await env.step(assistant(''), context)
    expect(last).toMatchObject({ done: true, envRewards: { retry: 1, improvement: 0 } })
    await expect(env.step(assistant(''), context)).rejects.toThrow(failing('CLOSED'))
    env.close()
  })

  it('ends after its steps, and takes calls of tools as well as blocks', async () => {
    const env = new MLGymEnv(timesTask(), { maxSteps: 2 })
    await env.init(context)
    const args = JSON.stringify({ path: 'n.txt', content: '2' })
    const call = { id: 'c', type: 'function', function: { name: 'write', arguments: args } }
    const first = await env.step({ role: 'assistant', content: null, tool_calls: [call] }, context)
    expect(first.envMessages).toEqual([
      {
        role: 'tool',
        content: 'Tool write executed successfully:\nn.txt was written',
        name: 'write',
        tool_call_id: 'c',
      },
    ])
    expect(await env.step(assistant(block('bash', 'true')), context)).toMatchObject({ done: true })
    expect(env.result).toMatchObject({ score: 20, reward: 10 })
    env.close()
  })

  it('ends a command at its deadline, and the episode when the budget is used up', async () => {
    const clock = new ManualClock()
    const env = new MLGymEnv(timesTask(), { clock, budgetMs: 10_000, limits: { timeoutMs: 6_000 } })
    await env.init(context)
    const says = async (code: string, ms: number) => {
      const step = env.step(assistant(block('bash', code)), context)
      // The deadlines of the call and of the sandbox.
      while (clock.numTimers < 2) await new Promise(setImmediate)
      clock.advance(ms)
      return await step
    }
    const late = await says('echo 7 > n.txt; sleep 1000', 6_000)
    expect(String(late.envMessages?.[0]?.content)).toContain('ended by its deadline of 6000 ms')
    expect(late.done).toBeUndefined()
    const last = await says('sleep 1000', 4_000)
    expect(String(last.envMessages?.[0]?.content)).toContain('ended by its deadline of 4000 ms')
    expect(last.done).toBe(true)
    expect(env.result).toMatchObject({ score: 10, reward: 0 })
    env.close()
  })

  it('cuts what the agent sees, and ends a flood of output', async () => {
    const { answers } = await play(
      timesTask(),
      [
        block('bash', 'echo begin; head -c 50000 /dev/zero | tr "\\0" x; echo end'),
        block('python', 'while True: print("flood")'),
      ],
      { maxChars: 100 },
    )
    expect(answers[0]).toMatch(/exit code 0\nbegin\nx+\n\[49910 characters left out\]\nx+end\n/)
    expect(answers[1]).toMatch(/ended by the limit of output; the folder is as it was before/)
    expect(answers[1]?.length).toBeLessThan(400)
  })

  it('answers an edit of a text that is not there once, and one without its marks', async () => {
    const edit = (old: string, path = 'notes/a.txt') =>
      block(`edit ${path}`, `<<<<<<<\n${old}\n=======\nb\n>>>>>>>`)
    const { answers } = await play(
      timesTask({ files: { ...timesTask().files, 'b.txt': 'tt' } }),
      [edit('zzz'), edit('t', 'b.txt'), edit(''), block('edit n.txt', 'what')],
      {},
    )
    expect(answers[0]).toContain('not at all')
    expect(answers[1]).toContain('must be in b.txt once')
    expect(answers[2]).toContain('not at all')
    expect(answers[3]).toContain('on lines of their own')
  })

  it.each([
    ['removes it', 'rm n.txt', /n\.txt must be a regular file: got no file/],
    ['puts a link to a secret in its place', 'ln -sf /etc/passwd n.txt', /got link/],
    ['puts a link to the scorer in its place', 'ln -sf ../secret.txt n.txt', /got link/],
    ['puts a folder in its place', 'rm n.txt; mkdir n.txt', /got other/],
    ['puts a pipe in its place', 'rm n.txt; mkfifo n.txt', /got other/],
    ['makes it unreadable', 'chmod 000 n.txt', /n\.txt must be /],
    ['fills it up', 'head -c 2000000 /dev/zero > n.txt', /at most 1048576 bytes: got 2000000/],
    ['adds a link', 'ln -s /usr/bin/env extra.txt', /extra\.txt must be a regular file: got link/],
  ])('has no submission of an agent that %s', async (_, command, reason) => {
    const { result, signals } = await play(timesTask(), [`${block('bash', command)}\n${block('submit')}`], {
      baseline: async () => 0,
    })
    expect(result).toMatchObject({ status: 'no_submission', reason: expect.stringMatching(reason) })
    expect(signals).toEqual({ failed: 1 })
  })

  it('tells a submission that is invalid from a scorer that fails, and neither is a score of 0', async () => {
    const invalid = await play(timesTask(), [`${block('write n.txt', 'four')}\n${block('submit')}`])
    expect(invalid.result).toMatchObject({
      status: 'submission_failed',
      reason: expect.stringMatching(/no number/),
    })
    expect(invalid.signals).toEqual({ failed: 1 })
    for (const [score, reason] of [
      ['print("{")', /must print/],
      ['print(\'{"score": NaN}\')', /must print/],
      ['print(\'{"score": "9"}\')', /must print/],
      ['raise SystemExit("boom")', /exit code 1: boom/],
      ['while True: print("x" * 1000)', /too much output/],
    ] as const) {
      const scorer = { command: ['python3', '-I', 'score.py'], files: { 'score.py': score } }
      const { result, signals } = await play(timesTask({ scorer }), [block('submit')], {
        baseline: async () => 0,
      })
      expect(result).toMatchObject({ status: 'scorer_failed', reason: expect.stringMatching(reason) })
      expect(signals).toEqual({ unscored: 1 })
    }
  })

  it('has no submission of an agent whose folder takes too long to read', async () => {
    const clock = new ManualClock()
    const env = new MLGymEnv(timesTask(), { clock, maxSteps: 1, baseline: async () => 0 })
    await env.init(context)
    const step = env.step(assistant(block('submit')), context)
    while (env.result === null) {
      clock.advance(60_000)
      await new Promise(setImmediate)
    }
    expect(await step).toMatchObject({ done: true, envRewards: { failed: 1 } })
    expect(env.result).toMatchObject({
      status: 'no_submission',
      reason: expect.stringMatching(/got timeout/),
    })
    env.close()
  })

  it('says so when the sandbox is gone', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    const bwrap = join(folder, 'bwrap')
    try {
      // Programs of root run as another user.
      await chmod(folder, 0o755)
      await symlink('/usr/bin/bwrap', bwrap)
      const env = new MLGymEnv(timesTask(), { bwrap })
      await env.init(context)
      const other = new MLGymEnv(timesTask(), { bwrap, maxSteps: 1, baseline: async () => 0 })
      await other.init(context)
      await rm(bwrap)
      await writeFile(bwrap, '#!/bin/sh\necho "bwrap: no namespaces are left" >&2\nexit 1\n', { mode: 0o755 })
      expect(await other.step(assistant(block('bash', 'true')), context)).toMatchObject({
        envRewards: { unscored: 1 },
      })
      expect(other.result).toMatchObject({
        status: 'sandbox_failed',
        reason: expect.stringMatching(/namespaces/),
      })
      other.close()
      await rm(bwrap)
      const step = await env.step(assistant(block('bash', 'true')), context)
      expect(step).toMatchObject({ done: true, envRewards: { unscored: 1 } })
      expect(env.result).toMatchObject({
        status: 'sandbox_failed',
        reason: expect.stringMatching(/bubblewrap/),
      })
      env.close()
      await expect(new MLGymEnv(timesTask(), { bwrap: join(folder, 'none') }).init(context)).rejects.toThrow(
        failing('UNAVAILABLE'),
      )
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('refuses a task without a baseline, and stops by the signal', async () => {
    const none = timesTask({ files: {} })
    await expect(new MLGymEnv(none).init(context)).rejects.toThrow(failing('INCOMPATIBLE', /no_submission/))
    const words = timesTask({ files: { 'n.txt': 'words' } })
    await expect(new MLGymEnv(words).init(context)).rejects.toThrow(
      failing('INCOMPATIBLE', /submission_failed/),
    )
    const env = new MLGymEnv(timesTask())
    await env.init(context)
    const stop = new AbortController()
    const step = env.step(assistant(block('bash', 'sleep 1000')), { signal: stop.signal })
    stop.abort()
    await expect(step).rejects.toThrow(failing('ABORTED'))
    env.close()
  })

  it('keeps hidden rows and answers from every program of the agent', async () => {
    const search =
      'cat rows.csv answers.txt score.py ../rows.csv /sandbox/answers.txt; ls -R / 2>/dev/null | grep -c answers.txt'
    const spy = [
      'import os, sys',
      'found = [os.path.join(a, f) for a, _, c in os.walk("/") for f in c if f in ("answers.txt", "score.py")]',
      'assert not found, found',
      'for number in open("/proc/self/environ").read(), os.listdir("/proc/1"): pass',
      'print("\\n".join("0" for _ in open("rows.csv").read().split()[1:]))',
    ].join('\n')
    const { answers, result } = await play(fitTable({ seed: 3 }), [
      block('bash', search),
      `${block('write predict.py', spy)}\n${block('submit')}`,
    ])
    expect(answers[0]).toMatch(/exit code 1\n0\n/)
    expect(result?.status).toBe('scored') // the trial found the rows, and no answers
  })

  it.each([
    ['floods its output', 'while True: print(1)', /too much output/],
    ['crashes', 'raise ValueError("no")', /exit code 1: .*ValueError: no/s],
    ['prints too little', 'print(1)', /150 predictions: got 1/],
    ['prints no numbers', 'print("{\\"score\\": 9}")', /must be numbers/],
    ['prints what is not finite', 'print("nan\\n" * 150)', /must be finite/],
  ])('does not score a program that %s', async (_, code, reason) => {
    const { result } = await play(fitTable(), [`${block('write predict.py', code)}\n${block('submit')}`], {
      baseline: async () => 0,
    })
    expect(result).toMatchObject({ status: 'submission_failed', reason: expect.stringMatching(reason) })
  })

  it('ends a program that runs past the time of its trial', async () => {
    const code = 'import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(1000)'
    const scoreLimits = { timeoutMs: 2_000 }
    const { result } = await play(fitTable(), [`${block('write predict.py', code)}\n${block('submit')}`], {
      scoreLimits,
    })
    expect(result).toMatchObject({ status: 'submission_failed', reason: expect.stringMatching(/deadline/) })
  })
})

describe('MLGymEnv', () => {
  it('refuses options and tasks that do not fit', () => {
    expect(() => new MLGymEnv(timesTask(), { maxStep: 1 } as never)).toThrow(failing('UNKNOWN_NAME'))
    for (const options of [
      { maxSteps: 0 },
      { maxRetries: -1 },
      { budgetMs: 0.5 },
      { maxChars: 0 },
      { limits: { numFiles: 0 } },
    ])
      expect(() => new MLGymEnv(timesTask(), options)).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new MLGymEnv(timesTask(), { maxRetries: 0, maxSteps: 1 })).not.toThrow()
    for (const changes of [
      { name: '' },
      { instructions: 1 },
      { files: { '../a': '' } },
      { files: { '/a': '' } },
      { files: { a: 1 } },
      { submission: ['a/./b'] },
      { submission: 'n.txt' },
      { scorer: { command: [1], files: {} } },
    ])
      expect(() => new MLGymEnv(timesTask(changes as never))).toThrow(failing('MALFORMED'))
    expect(() => new MLGymEnv(timesTask({ submission: [] }))).toThrow(failing('EMPTY'))
    expect(() => new MLGymEnv(timesTask({ scorers: {} } as never))).toThrow(failing('UNKNOWN_NAME'))
  })

  it('refuses a step ahead of its beginning', async () => {
    await expect(new MLGymEnv(timesTask()).step(assistant('a'), context)).rejects.toThrow(failing('CLOSED'))
  })
})
