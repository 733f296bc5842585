/** Tasks of agents: programs and functions as rollouts, with rewards, deadlines, files and logs. */

import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type AgentCall, type AgentTaskOptions, agentTask } from '../../src/agent/index.js'
import type { Policy } from '../../src/policy/index.js'
import {
  MessageRollouter,
  Rollouter,
  type RollouterOptions,
  type RolloutGroup,
} from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { Sandbox } from '../../src/tools/index.js'
import { has } from '../needs.js'
import { chat, post } from './client.js'
import { gate, renderer, says, scripted, textOf, user } from './scripted.js'

interface Sample {
  readonly question: string
}

const hasNamespaces = has('bubblewrap', (await Sandbox.support({ backend: 'bubblewrap' })).isUsable)

const SAMPLE = { question: 'Why?' }

/** Asks once by `fetch`, and keeps the answer as `answer`. */
const ASK = `
const { OPENAI_BASE_URL: url, OPENAI_API_KEY: key, FULMAR_SAMPLE, FULMAR_FOLDER } = process.env
const send = (path, body) => fetch(url + path, {
  method: 'POST', headers: { authorization: 'Bearer ' + key }, body: JSON.stringify(body),
}).then((answer) => answer.json())
const ask = (content) => send('/chat/completions', { model: 'm', messages: [{ role: 'user', content }] })
const sample = JSON.parse(FULMAR_SAMPLE)
const answer = (await ask(sample.question)).choices?.[0].message.content
`

function command(code: string): readonly string[] {
  return [process.execPath, '--input-type=module', '-e', ASK + code]
}

/** Plays one group of a task of agents. */
async function group(
  options: Partial<AgentTaskOptions<Sample>>,
  policy: Policy = scripted('Because.'),
  rollouter: Partial<RollouterOptions<Sample>> = {},
): Promise<RolloutGroup<Sample>> {
  const task = agentTask<Sample>({ samples: [SAMPLE], ...options })
  const player = new Rollouter({ policy, task, renderer, groupSize: 1, maxTokens: 64, ...rollouter })
  return await player.runGroup({ sample: SAMPLE, groupId: 5 })
}

/** The only rollout of a group. */
async function only(...options: Parameters<typeof group>) {
  const { rollouts } = await group(...options)
  const [rollout] = rollouts
  if (!rollout) throw new Error('there is a rollout')
  return rollout
}

const ask = ({ baseURL, apiKey, sample }: AgentCall<Sample>) =>
  chat({ baseURL, apiKey }, { messages: [user(sample.question)] })

describe('a program', () => {
  it('is a rollout with its tokens, its exit code, its log and the reward that it posts', async () => {
    const code = `console.log('got ' + answer); await send('/fulmar/reward', { reward: 0.75 })`
    using played = await group({ command: command(code) })
    const [rollout] = played.rollouts
    expect(rollout).toMatchObject({
      groupId: 5,
      rolloutId: 0,
      status: 'completed',
      cause: null,
      reward: 0.75,
    })
    expect(rollout?.program).toMatchObject({ exitCode: 0, log: 'got Because.\n', posted: 0.75 })
    expect(rollout?.turns.map(({ id, completionIds }) => [id, textOf(completionIds)])).toEqual([
      [{ groupId: 5, rolloutId: 0, turnId: 0 }, 'Because.'],
    ])
    expect(rollout?.ledger.numTurns).toBe(1)
  })

  it('has a folder for its files, which is there until the score has read it', async () => {
    const code = `await (await import('node:fs/promises')).writeFile(FULMAR_FOLDER + '/answer.txt', answer)`
    let folder = ''
    const rollout = await only({
      command: command(code),
      score: async ({ program }) => {
        folder = program?.folder ?? ''
        return Number((await readFile(join(folder, 'answer.txt'), 'utf8')) === 'Because.')
      },
    })
    expect([rollout.reward, existsSync(folder)]).toEqual([1, false])
  })

  it('keeps its folder and its log in the folder of the option', async () => {
    const keepIn = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    const rollout = await only({ command: command(`console.error('seen')`), keepIn, score: () => 1 })
    expect(rollout.program?.folder).toBe(join(keepIn, 'group=5/rollout=0'))
    expect(await readFile(join(keepIn, 'group=5/rollout=0/agent.log'), 'utf8')).toBe('seen\n')
    await rm(keepIn, { recursive: true })
  })

  it('with another exit code is an error that keeps its tokens, and never a score of 0 by itself', async () => {
    const rollout = await only({ command: command(`console.error('no luck'); process.exit(3)`) })
    expect(rollout).toMatchObject({ status: 'error', reward: null, program: { exitCode: 3 } })
    expect(rollout.cause).toMatchObject({ stage: 'step', kind: 'user_code' })
    expect(rollout.cause?.message).toBe('agent must exit with code 0: got 3 (no luck)')
    expect([rollout.turns.length, rollout.ledger.numTurns]).toEqual([1, 1])
    expect(rollout.unscored.score?.code).toBe('DECLINED')
  })

  it('that meets a limit is truncated, though it fails', async () => {
    const code = `const again = await ask('More?'); if (again.error) throw new Error(again.error.code)`
    const rollout = await only({ command: command(code), score: () => 0.5 }, scripted('a'), { maxTurns: 1 })
    expect([rollout.status, rollout.cause, rollout.reward]).toEqual(['truncated_max_turns', null, 0.5])
    expect(rollout.program?.log).toContain('insufficient_quota')
  })

  it('that does not end is killed at its deadline, with all that it started', async () => {
    const clock = new ManualClock()
    const code = `
      const { spawn } = await import('node:child_process')
      console.log(spawn('sleep', ['1000'], { stdio: 'inherit' }).pid)
      ${ASK}
      setInterval(() => {}, 1_000)`
    let hasEnded = false
    const policy = scripted('a')
    const hangs = [process.execPath, '--input-type=module', '-e', code]
    const task = agentTask<Sample>({ samples: [SAMPLE], command: hangs, timeoutMs: 5_000 })
    const player = new Rollouter({ policy, task, renderer, groupSize: 1, maxTokens: 8, clock })
    const running = player.runGroup({ sample: SAMPLE, groupId: 0 }).finally(() => {
      hasEnded = true
    })
    await expect.poll(() => policy.requests.length, { timeout: 20_000 }).toBe(1)
    const passes = () => {
      clock.advance(1_000)
      return hasEnded
    }
    await expect.poll(passes, { timeout: 20_000 }).toBe(true)
    const [rollout] = (await running).rollouts
    expect(rollout).toMatchObject({ status: 'error_timeout', cause: { stage: 'rollout', kind: 'deadline' } })
    expect(rollout?.program?.exitCode).toBeNull()
    const pid = Number(rollout?.program?.log)
    expect(pid).toBeGreaterThan(0)
    await expect.poll(() => existsSync(`/proc/${pid}/exe`)).toBe(false)
  })

  it('that leaves processes behind does not leave them', async () => {
    const code = `
      const { spawn } = await import('node:child_process')
      const child = spawn('sleep', ['1000'], { stdio: 'ignore' })
      child.unref()
      console.log(child.pid)
      process.exit(0)`
    const rollout = await only({ command: command(code), score: () => 1 })
    const pid = Number(rollout.program?.log)
    expect([rollout.status, pid > 0]).toEqual(['completed', true])
    await expect.poll(() => existsSync(`/proc/${pid}/exe`)).toBe(false)
  })

  it.runIf(hasNamespaces)('in a namespace leaves nothing behind, in whatever session it is', async () => {
    // A connection of a process with a session of its own, which ends with the process.
    const [connected, ended] = [gate(), gate()]
    const listener = createServer((socket) => {
      connected.open()
      socket.on('close', ended.open).on('error', () => {})
      socket.resume()
    })
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
    const { port } = listener.address() as AddressInfo
    const daemon = `require('node:net').connect(${port}, '127.0.0.1'); setInterval(() => {}, 1_000)`
    const code = `
      const { spawn } = await import('node:child_process')
      spawn(process.execPath, ['-e', ${JSON.stringify(daemon)}], { stdio: 'ignore', detached: true }).unref()
      await (await import('node:fs/promises')).writeFile(FULMAR_FOLDER + '/answer.txt', await ask('More?').then(String))
      process.exit(7)`
    const policy = new ScriptedPolicy({
      reply: async (_, call) => {
        if (call === 1) await connected.passed
        return says('Because.')
      },
    })
    const rollout = await only({ command: command(code), processes: 'namespace', score: () => 1 }, policy)
    expect(rollout.program?.exitCode).toBe(7)
    expect(rollout.turns.length).toBe(2)
    await ended.passed
    listener.close()
  })

  it('that floods its output has the end of it', async () => {
    const code = `process.stdout.write('x'.repeat(1_000_000) + 'end\\n')`
    const { program } = await only({ command: command(code), score: () => 1 })
    expect([program?.log.length, program?.log.endsWith('xend\n')]).toEqual([65_536, true])
  })

  it('that cannot be started is an error of its own rollout', async () => {
    const rollout = await only({ command: ['./no-such-agent'], score: () => 1 })
    expect(rollout).toMatchObject({ status: 'error', turns: [], cause: { code: 'UNAVAILABLE' } })
    expect(rollout.cause?.message).toContain('./no-such-agent')
  })

  it('does not get a sample that is too large for a variable', async () => {
    const sample = { question: 'x'.repeat(100_000) }
    const task = agentTask({ samples: [sample], command: command('') })
    const player = new Rollouter({ policy: scripted('a'), task, renderer, groupSize: 1, maxTokens: 8 })
    const [rollout] = (await player.runGroup({ sample, groupId: 0 })).rollouts
    expect(rollout?.cause).toMatchObject({ code: 'LIMIT_EXCEEDED' })
  })

  it('is started again with a new key and new draws if the rollouter retries', async () => {
    const policy = scripted('a')
    const code = `if ((await import('node:path')).basename(FULMAR_FOLDER) === 'rollout=0') process.exit(1)`
    const keepIn = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    const rollout = await only({ command: command(code), keepIn, score: () => 1 }, policy, { retries: 1 })
    expect([rollout.status, rollout.attempt]).toEqual(['completed', 1])
    const [first, second] = policy.requests
    expect(first?.requestId).toBe('group=5/rollout=0/turn=0')
    expect(second?.requestId).toBe('group=5/rollout=0/attempt=1/turn=0')
    expect(first?.seed).not.toBe(second?.seed)
    await rm(keepIn, { recursive: true })
  })
})

describe('a function', () => {
  it('is an agent as a program is', async () => {
    const rollout = await only({
      run: async (call) => {
        await ask(call)
        await post(call, '/fulmar/reward', { reward: 1 })
      },
    })
    expect(rollout).toMatchObject({
      status: 'completed',
      reward: 1,
      program: { exitCode: null, log: '', posted: 1 },
    })
  })

  it('that throws is an error with its message', async () => {
    const rollout = await only({
      run: async (call) => {
        await ask(call)
        throw new Error('lost the way')
      },
    })
    expect(rollout).toMatchObject({ status: 'error', cause: { stage: 'step', message: 'lost the way' } })
    expect(rollout.turns.length).toBe(1)
  })

  it('that asks for nothing is an error, as there is nothing to train', async () => {
    const rollout = await only({ run: async () => {}, score: () => 1 })
    expect(rollout).toMatchObject({ status: 'error', cause: { kind: 'no_completion' } })
  })

  it('without a reward is unscored for that reason', async () => {
    const rollout = await only({ run: async (call) => void (await ask(call)) })
    expect([rollout.status, rollout.reward]).toEqual(['completed', null])
    expect(rollout.unscored.score?.message).toContain('it posted none')
  })

  it('samples as the rollouter says, whatever it asks for', async () => {
    const policy = scripted('a')
    const run = async ({ baseURL, apiKey }: AgentCall<Sample>) => {
      await chat(
        { baseURL, apiKey },
        { messages: [user('x')], temperature: 0, top_p: 0.1, max_tokens: 1_000 },
      )
    }
    await only({ run, score: () => 1 }, policy, { temperature: 0.7, maxTokens: 9 })
    expect(policy.requests[0]).toMatchObject({ temperature: 0.7, topP: 1, topK: 0, maxTokens: 9 })
  })

  it('runs with at most so many others at a time', async () => {
    let [now, most] = [0, 0]
    const go = gate()
    const run = async (call: AgentCall<Sample>) => {
      now += 1
      most = Math.max(most, now)
      if (now === 2) go.open()
      await go.passed
      await ask(call)
      now -= 1
    }
    using played = await group({ run, concurrency: 2, score: () => 1 }, scripted('a'), { groupSize: 6 })
    expect([most, played.rollouts.map(({ reward }) => reward)]).toEqual([2, Array(6).fill(1)])
  })

  it('is stopped with its run', async () => {
    const stop = new AbortController()
    const task = agentTask<Sample>({
      samples: [SAMPLE],
      run: ({ signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason))
          stop.abort()
        }),
    })
    const player = new Rollouter({ policy: scripted('a'), task, renderer, groupSize: 1, maxTokens: 8 })
    const running = player.runGroup({ sample: SAMPLE, groupId: 0, signal: stop.signal })
    await expect(running).rejects.toMatchObject({ code: 'ABORTED' })
  })

  it('has the same draws again in an evaluation of the same seed', async () => {
    const seeds = async () => {
      const policy = scripted('a')
      const task = agentTask<Sample>({
        samples: [SAMPLE, { question: 'How?' }],
        run: async (call) => void (await ask(call)),
        score: () => 1,
      })
      const player = new Rollouter({ policy, task, renderer, seed: 3, maxTokens: 8 })
      const { passRate } = await player.evaluate({ numProblems: 2, numAnswers: 2 })
      expect(passRate).toBe(1)
      return policy.requests.map(({ requestId, seed }) => `${requestId} ${seed}`).sort()
    }
    const first = await seeds()
    expect(new Set(first.map((line) => line.split(' ')[1])).size).toBe(4)
    expect(await seeds()).toEqual(first)
  })
})

describe('a task of agents', () => {
  const run = async () => {}
  it.each([
    ['samples', { run }, 'MALFORMED'],
    ['samples', { run, samples: [] }, 'EMPTY'],
    ['validationSamples', { run, samples: [1], validationSamples: [] }, 'EMPTY'],
    ['command', { samples: [1], command: [] }, 'EMPTY'],
    ['neither', { samples: [1] }, 'MALFORMED'],
    ['both', { samples: [1], run, command: ['x'] }, 'MALFORMED'],
    ['command', { samples: [1], command: [1] }, 'MALFORMED'],
    ['env', { samples: [1], run, env: { A: 1 } }, 'MALFORMED'],
    ['run', { samples: [1], run: 'x' }, 'MALFORMED'],
    ['score', { samples: [1], run, score: 1 }, 'MALFORMED'],
    ['timeoutMs', { samples: [1], run, timeoutMs: 0 }, 'OUT_OF_RANGE'],
    ['concurrency', { samples: [1], run, concurrency: 1.5 }, 'OUT_OF_RANGE'],
    ['timeout', { samples: [1], run, timeout: 1 }, 'UNKNOWN_NAME'],
    ['processes', { samples: [1], command: ['x'], processes: 'cgroup' }, 'UNKNOWN_NAME'],
    ['processes', { samples: [1], run, processes: 'namespace' }, 'MALFORMED'],
  ])('needs valid options: %s', (name, options, code) => {
    const make = () => agentTask(options as unknown as AgentTaskOptions<number>)
    expect(make).toThrow(expect.objectContaining({ code, message: expect.stringContaining(name) }))
  })

  it('cannot be evaluated by messages alone', async () => {
    const task = agentTask<Sample>({ samples: [SAMPLE], run, score: () => 1 })
    const message = { role: 'assistant', content: 'a' }
    const reply = async () => ({
      message,
      finishReason: 'stop' as const,
      numPromptTokens: 1,
      numCompletionTokens: 1,
    })
    const player = new MessageRollouter({ policy: { reply }, task })
    const { samples } = await player.evaluate({ numProblems: 1 })
    expect(samples[0]).toMatchObject({ status: 'error', cause: { stage: 'init', code: 'INCOMPATIBLE' } })
  })
})
