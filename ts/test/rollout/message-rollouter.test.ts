import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { listDataset } from '../../src/data/index.js'
import type { Task } from '../../src/env/index.js'
import type { MessagePolicy, MessageReply, MessageRequest } from '../../src/policy/index.js'
import type { EvaluationSample } from '../../src/rollout/evaluation.js'
import { MessageRollouter, type MessageRollouterOptions } from '../../src/rollout/message-rollouter.js'
import type { Rollout } from '../../src/rollout/rollout.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { failing } from '../torchrl/envs/chats.js'

/** Asks `count row`, answers each message with `more`, and ends after `count` of them. Counts what is open. */
function counting(rows: readonly string[]) {
  const open = { now: 0 }
  const task: Task<string> = {
    name: 'counting',
    makeDataset: () => listDataset({ items: rows }),
    makeEnv: (row) => {
      let turns = 0
      return {
        init: () => {
          open.now += 1
          const tools = [{ type: 'function', function: { name: 'now', parameters: {} } }]
          return { initPromptMessages: [{ role: 'user', content: row }], tools }
        },
        step: ({ content }) => {
          turns += 1
          if (content === 'throw') throw new Error('the environment broke')
          const done = turns >= Number(row.split(' ')[0])
          return { done, envMessages: [{ role: 'user', content: 'more' }], envRewards: { turns } }
        },
        close: () => {
          open.now -= 1
        },
      }
    },
    rewardFns: [{ name: 'turns', score: ({ turns }) => turns.length }],
    isSolved: ({ reward }) => (reward ?? 0) >= 2,
  }
  return { task, open }
}

const says = (content: string, more: Partial<MessageReply> = {}): MessageReply => ({
  message: { role: 'assistant', content },
  ...{ finishReason: 'stop', numPromptTokens: 10, numCompletionTokens: 4, ...more },
})

/** A policy that answers by a function and keeps its requests. */
function scripted(reply: (request: MessageRequest) => MessageReply | Promise<MessageReply>) {
  const requests: MessageRequest[] = []
  const policy: MessagePolicy = {
    reply: async (request) => {
      requests.push(request)
      return await reply(request)
    },
  }
  return { policy, requests }
}

const evaluated = async (
  policy: MessagePolicy,
  rows: readonly string[],
  options: Partial<MessageRollouterOptions<string>> = {},
) => {
  const { task, open } = counting(rows)
  const rollouts: Rollout[] = []
  const evaluation = await new MessageRollouter({ policy, task, ...options }).evaluate({
    numProblems: rows.length,
    onAnswer: (_, rollout) => rollouts.push(rollout),
  })
  expect(open.now).toBe(0)
  return { evaluation, rollouts }
}

describe('MessageRollouter', () => {
  it('holds whole conversations, and counts the tokens that the server tells', async () => {
    const { policy, requests } = scripted(({ messages }) => says(`${messages.length}`))
    const { evaluation, rollouts } = await evaluated(policy, ['2 a'], { maxTokens: 7, temperature: 0.5 })
    const [answer] = evaluation.samples
    expect(answer).toMatchObject({ status: 'completed', reward: 2, isSolved: true, cause: null })
    expect(answer).toMatchObject({ numPromptTokens: 20, numCompletionTokens: 8, answerIndex: 0 })
    const contents = answer?.messages.map(({ content }) => content)
    expect(contents).toEqual(['2 a', '1', 'more', '3', 'more'])
    expect(rollouts[0]?.turns.map(({ envRewards }) => envRewards.turns)).toEqual([1, 2])
    const [first, second] = requests
    expect(first).toMatchObject({ requestId: 'group=0/rollout=0/turn=0', maxTokens: 7, temperature: 0.5 })
    expect(first?.tools).toHaveLength(1)
    expect(second?.sessionId).toBe(first?.sessionId)
    expect(second?.seed).not.toBe(first?.seed)
  })

  it('gives rollouts that cannot be trained on', async () => {
    const { policy } = scripted(() => says('yes'))
    const { rollouts } = await evaluated(policy, ['1 a'])
    const [turn] = rollouts[0]?.turns ?? []
    expect(turn).toMatchObject({ usage: { numPromptTokens: 10, numCompletionTokens: 4 } })
    expect(turn?.completionIds).toHaveLength(0)
  })

  it('leaves what is not given to the server', async () => {
    const { policy, requests } = scripted(() => says('yes', { numCompletionTokens: null }))
    const { evaluation } = await evaluated(policy, ['1 a'])
    expect(requests[0]).not.toHaveProperty('maxTokens')
    expect(requests[0]).not.toHaveProperty('temperature')
    expect(evaluation.samples[0]).toMatchObject({ numPromptTokens: 10, numCompletionTokens: null })
  })

  it.each([
    ['a token limit', () => says('a', { finishReason: 'length' }), 'truncated_length', null],
    ['a cut-off answer', () => says('a', { finishReason: 'abort' }), 'error_abort', 'abort'],
    ['an environment that throws', () => says('throw'), 'error', 'user_code'],
    ['no message', () => ({}) as MessageReply, 'error', 'no_completion'],
  ] as const)('ends at %s, and keeps what was said', async (_, reply, status, kind) => {
    const { policy } = scripted(reply)
    const { evaluation, rollouts } = await evaluated(policy, ['2 a'])
    expect(evaluation.samples[0]?.status).toBe(status)
    expect(evaluation.samples[0]?.cause?.kind ?? null).toBe(kind)
    expect(rollouts[0]?.turns).toHaveLength(kind === 'no_completion' ? 0 : 1)
  })

  it('continues after a token limit, and ends after the last turn, where it is asked to', async () => {
    const { policy } = scripted(() => says('a', { finishReason: 'length' }))
    const options = { onTruncation: 'continue', maxTurns: 3 } as const
    const { evaluation } = await evaluated(policy, ['9 a'], options)
    expect(evaluation.samples[0]).toMatchObject({ status: 'truncated_max_turns', reward: 3 })
  })

  it("keeps the code of a server's error apart, and scores no failure 0", async () => {
    const { policy } = scripted(({ messages }) => {
      if (messages[0]?.content === '1 bad') throw new FulmarError('UNAVAILABLE', 'the server is down')
      return says('yes')
    })
    const { evaluation } = await evaluated(policy, ['1 bad', '1 good'], { onError: 'drop' })
    expect(evaluation).toMatchObject({ meanReward: 1, numScored: 1, numErrors: 1, numUnscored: 0 })
    expect(evaluation.samples[0]).toMatchObject({
      ...{ reward: null, isSolved: false, status: 'error' },
      cause: { stage: 'generate', code: 'UNAVAILABLE', message: 'the server is down' },
    })
  })

  it('retries a failed rollout with new seeds', async () => {
    const { policy, requests } = scripted(({ requestId }) => {
      if (!requestId.includes('attempt=1')) throw new Error('once')
      return says('yes')
    })
    const { evaluation } = await evaluated(policy, ['1 a'], { retries: 1 })
    expect(evaluation.samples[0]?.status).toBe('completed')
    expect(new Set(requests.map(({ seed }) => seed)).size).toBe(2)
  })

  it.each([
    ['a reply', { generateTimeoutMs: 50 }, 'generate'],
    ['a rollout', { rolloutTimeoutMs: 50 }, 'rollout'],
  ] as const)('ends %s at its deadline', async (_, options, stage) => {
    const clock = new ManualClock()
    let aborts = 0
    const { policy } = scripted(({ signal }) => {
      signal?.addEventListener('abort', () => (aborts += 1))
      queueMicrotask(() => clock.advance(50))
      return new Promise<never>(() => {})
    })
    const { evaluation } = await evaluated(policy, ['1 a'], { clock, ...options })
    expect(evaluation.samples[0]).toMatchObject({
      status: 'error_timeout',
      cause: { stage, kind: 'deadline' },
    })
    expect(aborts).toBe(1)
  })

  it('stops with ABORTED, and closes its environments', async () => {
    const { task, open } = counting(['1 a', '1 b'])
    const stop = new AbortController()
    const { policy } = scripted(() => {
      stop.abort()
      return new Promise<never>(() => {})
    })
    const evaluating = new MessageRollouter({ policy, task }).evaluate({
      numProblems: 2,
      signal: stop.signal,
    })
    await expect(evaluating).rejects.toThrow(failing('ABORTED'))
    expect(open.now).toBe(0)
  })

  it('samples only answers that are not known, with the seeds that they would have had', async () => {
    const run = async (known: readonly EvaluationSample<string>[]) => {
      const { policy, requests } = scripted(({ seed }) => says(String(seed)))
      const rollouter = new MessageRollouter({ policy, task: counting(['1 a', '1 b']).task })
      const evaluation = await rollouter.evaluate({ numProblems: 2, numAnswers: 3, known })
      return { evaluation, requests }
    }
    const whole = await run([])
    const { samples } = whole.evaluation
    expect(whole.requests).toHaveLength(6)
    const rest = await run(samples.filter((_, index) => index !== 1 && index !== 5))
    expect(rest.requests.map(({ requestId }) => requestId)).toEqual([
      'group=0/rollout=1/turn=0',
      'group=1/rollout=2/turn=0',
    ])
    expect(rest.evaluation).toEqual(whole.evaluation)
    expect((await run(samples)).requests).toHaveLength(0)
    const rollouter = new MessageRollouter({
      policy: scripted(() => says('')).policy,
      task: counting(['1 a']).task,
    })
    const fewer = await rollouter.evaluate({ numProblems: 1, numAnswers: 1, known: samples })
    expect(fewer.samples).toHaveLength(1)
  })

  it('refuses other policies, unknown options and impossible numbers', () => {
    const { task } = counting(['1 a'])
    const { policy } = scripted(() => says(''))
    const make = (options: object) => () => new MessageRollouter({ policy, task, ...options })
    expect(make({ policy: {} })).toThrow(failing('MALFORMED', /function reply/))
    expect(make({ maxToken: 3 })).toThrow(failing('UNKNOWN_NAME', /maxTokens/))
    expect(make({ topK: 3 })).toThrow(failing('UNKNOWN_NAME'))
    expect(make({ maxTokens: 0 })).toThrow(failing('OUT_OF_RANGE', /maxTokens/))
    expect(make({ maxTurns: 0.5 })).toThrow(failing('OUT_OF_RANGE', /maxTurns/))
    expect(make({ concurrency: 0 })).toThrow(failing('OUT_OF_RANGE', /concurrency/))
  })
})
