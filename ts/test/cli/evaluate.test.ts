import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import { createModel } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'

/** A folder with a module whose task has four rows, and one with a tiny model. */
async function taskAndModel() {
  const folder = await temporaryFolder()
  const task = join(folder, 'task.mjs')
  await writeFile(
    task,
    `const rows = ['a', 'b', 'c', 'd']
    const dataset = () => {
      let position = 0
      return { next: () => rows[position++ % rows.length], stateDict: () => ({ position }), loadStateDict: () => {} }
    }
    export default ({ bonus = 0 }) => ({
      name: 'letters',
      makeDataset: dataset,
      makeEnv: (row) => ({
        init: () => ({ initPromptMessages: [{ role: 'user', content: row }] }),
        step: () => ({ done: true }),
        close: () => {},
      }),
      rewardFns: [
        { name: 'same', score: ({ turns }, row) => turns.at(-1).completionMessage.content === row ? 1 + bonus : bonus },
        { name: 'judge', weight: 0, score: ({ turns }, row) => {
          const { content } = turns.at(-1).completionMessage
          if (content === 'unclear') return { unscored: 'nothing to judge' }
          if (content === 'crash') throw new Error('the judge broke')
          return 1
        } },
      ],
      isSolved: ({ reward }) => reward >= 1,
    })`,
  )
  const model = join(folder, 'model')
  const made = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
  await made.save(model)
  made[Symbol.dispose]()
  return { folder, task, model }
}

type Answer = (body: { readonly messages: readonly { readonly content: string }[] }, count: number) => unknown

/** A stub of OpenAI's server; an answer that is a function writes the response itself. */
async function withEndpoint<T>(
  answer: Answer,
  use: (url: string, requests: unknown[]) => Promise<T>,
): Promise<T> {
  const requests: {
    readonly path: string | undefined
    readonly key: string | undefined
    readonly body: unknown
  }[] = []
  const reply = async (request: IncomingMessage, response: ServerResponse) => {
    let text = ''
    for await (const chunk of request) text += chunk
    const body = JSON.parse(text)
    requests.push({ path: request.url, key: request.headers.authorization, body })
    const given = answer(body, requests.length - 1)
    if (typeof given === 'function') return void given(response)
    const choices = [{ message: { role: 'assistant', content: given }, finish_reason: 'stop' }]
    response.end(JSON.stringify({ choices, usage: { prompt_tokens: 5, completion_tokens: 2 } }))
  }
  const server = createServer((request, response) => void reply(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

const last: Answer = ({ messages }) => messages.at(-1)?.content ?? ''

const linesOf = async (folder: string) =>
  (await readFile(join(folder, 'results.jsonl'), 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

describe('fulmar eval TASK', () => {
  it('measures a local model: the same seeds give the same bytes, and whole rollouts', async () => {
    const { folder, task, model } = await taskAndModel()
    const run = (name: string, ...more: string[]) =>
      fulmar(['eval', task, '-m', model, '-n', '4', '-r', '2', '-t', '4', '-s', join(folder, name), ...more])
    const { code, stdout, stderr } = await run('one')
    expect({ code, stderr: stderr.includes('eval 8/8') }).toEqual({ code: 0, stderr: true })
    expect(stdout).toMatch(/pass rate +0\.0 % \(95 %: 0\.0 % to \d/)
    expect(stdout).toMatch(/pass@2 +0\.0 %/)
    expect(stdout).toMatch(/answers +8 scored, 0 ended with an error, 0 unscored/)
    expect(stdout).toContain(join(folder, 'one', 'results.jsonl'))
    await run('two', '-c', '1')
    await run('other', '--seed', '5')
    const [one, two, other] = await Promise.all(
      ['one', 'two', 'other'].map((name) => readFile(join(folder, name, 'results.jsonl'), 'utf8')),
    )
    expect(two).toBe(one)
    expect(other).not.toBe(one)
    const lines = await linesOf(join(folder, 'one'))
    const places = lines.map(({ problemIndex, answerIndex }) => [problemIndex, answerIndex])
    expect(places).toEqual([0, 1, 2, 3].flatMap((problem) => [0, 1].map((answer) => [problem, answer])))
    expect(lines[2]).toMatchObject({ sample: 'b', isTrainable: true, turns: [{ numPromptMessages: 1 }] })
    using ledger = Ledger.fromJSON(lines[2].ledger)
    expect(ledger.numTurns).toBe(1)
    expect(ledger.samples()[0]?.mask.filter(Boolean)).toHaveLength(lines[2].numCompletionTokens)
    const summary = JSON.parse(await readFile(join(folder, 'one', 'summary.json'), 'utf8'))
    expect(summary).toMatchObject({ numProblems: 4, numAnswers: 2, numScored: 8, passRate: 0, numFresh: 8 })
    expect(summary.numCompletionTokens).toBe(
      lines.reduce((sum, { numCompletionTokens }) => sum + numCompletionTokens, 0),
    )
  })

  it('resumes: runs what is missing or failed alone, to the same bytes', async () => {
    const { folder, task, model } = await taskAndModel()
    const args = ['eval', task, '-m', model, '-n', '4', '-r', '2', '-t', '4', '-s', join(folder, 'a')]
    await fulmar(args)
    const whole = await readFile(join(folder, 'a', 'results.jsonl'), 'utf8')
    const lines = await linesOf(join(folder, 'a'))
    lines[0] = {
      ...lines[0],
      status: 'error',
      reward: null,
      cause: { stage: 'step', kind: 'deadline', message: '' },
    }
    lines[3] = { ...lines[3], reward: null, unscored: { judge: { code: 'TIMEOUT', message: '' } } }
    const torn = `${lines
      .slice(0, 6)
      .map((line) => JSON.stringify(line))
      .join('\n')}\n{"problemIndex": 3, "ans`
    await writeFile(join(folder, 'a', 'results.jsonl'), torn)
    const refused = await fulmar(args)
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/--resume.*\(INCOMPATIBLE\)/) })
    const resumed = await fulmar([...args, '--resume', '--json'])
    expect(JSON.parse(resumed.stdout)).toMatchObject({ numScored: 8, numFresh: 4 })
    expect(await readFile(join(folder, 'a', 'results.jsonl'), 'utf8')).toBe(whole)
    const other = await fulmar([...args, '--resume', '-T', '0.5'])
    expect(other.stderr).toMatch(/the same temperature .*\(INCOMPATIBLE\)/)
    const more = await fulmar([
      'eval',
      task,
      '-m',
      model,
      '-r',
      '3',
      '-n',
      '4',
      '-t',
      '4',
      '-s',
      join(folder, 'a'),
      '-R',
      '--json',
    ])
    expect(JSON.parse(more.stdout)).toMatchObject({ numScored: 12, numFresh: 4 })
    await writeFile(join(folder, 'a', 'results.jsonl'), '{"other": 1}\n')
    expect((await fulmar([...args, '--resume'])).stderr).toMatch(/line 1 of .*\(CORRUPT\)/)
  })

  it('measures a server by messages alone, whose rollouts say that they cannot be trained on', async () => {
    const { folder, task } = await taskAndModel()
    await withEndpoint(last, async (url, requests) => {
      const sampling = ['-T', '0.5', '-t', '9', '-S', '{"temperature": 0.1, "top_p": 0.9}']
      const args = ['eval', task, '-m', 'echo', '-b', `${url}/v1`, '-n', '2', '-r', '2', ...sampling]
      const env = { OPENAI_API_KEY: 'k1', OTHER: 'k2' }
      const { code, stdout } = await fulmar(
        [...args, '-s', join(folder, 'a'), '-k', 'OTHER', '--seed', '3'],
        { env },
      )
      expect(code).toBe(0)
      expect(stdout).toMatch(/model +echo \(by messages alone: not to be trained on\)/)
      expect(stdout).toMatch(/tokens +20 in prompts, 8 sampled/)
      const lines = await linesOf(join(folder, 'a'))
      expect(lines).toHaveLength(4)
      expect(lines[0]).toMatchObject({ isTrainable: false, ledger: null, reward: 1, isSolved: true })
      expect(requests[0]).toMatchObject({
        ...{ path: '/v1/chat/completions', key: 'Bearer k2' },
        body: {
          model: 'echo',
          temperature: 0.1,
          top_p: 0.9,
          max_completion_tokens: 9,
          seed: expect.any(Number),
        },
      })
      expect(await fulmar([...args, '-k', 'NONE'], { env })).toMatchObject({
        ...{ code: 1, stderr: expect.stringMatching(/--api-key-var .* NONE/) },
      })
    })
  })

  it('counts hostile answers of a server by their errors, apart from wrong answers', async () => {
    const { folder, task } = await taskAndModel()
    let isDown = true
    const hostile: Answer = ({ messages }, count) => {
      const write = (body: (response: ServerResponse) => unknown) => body
      const content = messages[0]?.content
      if (content === 'a' || !isDown) return content
      if (content === 'd') return ['wrong', 'unclear', 'crash'][count % 3]
      if (content === 'b') return write((response) => response.writeHead(500).end('\u001b[31mboom'))
      return write((response) => response.end('{"choices": [{"mess'))
    }
    await withEndpoint(hostile, async (url) => {
      const args = ['eval', task, '-b', url, ...'-m bad -n 4 -r 3 -c 1 --max-retries 0'.split(' ')]
      const { code, stdout } = await fulmar([...args, '-s', join(folder, 'a'), '--json'])
      expect(code).toBe(0)
      const summary = JSON.parse(stdout)
      expect(summary).toMatchObject({ numScored: 4, numErrors: 6, numUnscored: 2 })
      expect(summary).toMatchObject({ passRate: 0.5, meanReward: 0.5 })
      expect(summary.failures).toEqual({
        ...{ 'generate UNAVAILABLE': 3, 'generate MALFORMED': 3, 'judge DECLINED': 1, 'judge USER_CODE': 1 },
      })
      expect(summary.statuses).toEqual({ completed: 6, error: 6 })
      const table = await fulmar(args)
      expect(table.stdout).toMatch(/3 x generate UNAVAILABLE +the server must .*: got 500 {2}\[31mboom/)
      isDown = false
      const resumed = await fulmar([...args, '-s', join(folder, 'a'), '--resume', '--json'])
      // What was wrong, or declined, stays.
      expect(JSON.parse(resumed.stdout)).toMatchObject({ numFresh: 7, numScored: 11, numUnscored: 1 })
    })
  })

  it('ends slow answers at the deadline of a rollout, and fails if no answer could be scored', async () => {
    const { task } = await taskAndModel()
    const slow: Answer = () => (response: ServerResponse) => response.write('{')
    await withEndpoint(slow, async (url) => {
      const args = ['eval', task, '-m', 'slow', '-b', url, '-n', '2', '-r', '1', '--timeout', '0.2']
      const { code, stdout, stderr } = await fulmar(args)
      expect(code).toBe(1)
      expect(stdout).toMatch(/pass rate +no answer could be scored/)
      expect(stdout).toMatch(/2 x rollout deadline/)
      expect(stderr).toMatch(/an answer must be scored: none could be .*\(EMPTY\)/)
    })
  })

  it('compares two evaluations, problem by problem', async () => {
    const { folder, task } = await taskAndModel()
    const measure = (name: string, answer: Answer) =>
      withEndpoint(answer, (url) =>
        fulmar(['eval', task, '-m', name, '-b', url, '-n', '4', '-r', '1', '-s', join(folder, name)]),
      )
    await measure('half', (body) => (['a', 'b'].includes(String(last(body, 0))) ? last(body, 0) : 'no'))
    await measure('full', last)
    const pair = [join(folder, 'half'), join(folder, 'full')]
    const { code, stdout } = await fulmar(['eval', '--compare', ...pair])
    expect(code).toBe(0)
    expect(stdout).toMatch(/problems in both +4\n/)
    expect(stdout).toMatch(/pass rate +50\.0 % to 100\.0 %: \+50\.0 % \(95 %: -41\.9 % to \+100\.0 %\)/)
    expect(stdout).toMatch(/2 better, 0 worse, 2 equal/)
    const json = JSON.parse((await fulmar(['eval', '--json', '--compare', ...pair])).stdout)
    expect(json).toMatchObject({ meanReward: { before: 0.5, after: 1, difference: 0.5 } })
    expect((await fulmar(['eval', '--compare', join(folder, 'half')])).stderr).toContain('two folders')
    expect((await fulmar(['eval', '--compare', '/no/a', '/no/b'])).stderr).toContain('(IO)')
  })

  it('asks each row once, and all of them for -1', async () => {
    const { folder, task } = await taskAndModel()
    await withEndpoint(last, async (url) => {
      const run = (count: string) =>
        fulmar([
          'eval',
          task,
          '-b',
          url,
          '-a',
          '{"bonus": 2}',
          ...`-m echo -r 1 --json -n ${count}`.split(' '),
        ])
      const { stdout, stderr } = await run('9')
      expect(JSON.parse(stdout)).toMatchObject({ numProblems: 4, meanReward: 3 })
      expect(stderr).toContain('the task has 4 held-out problems: each is asked once\n')
      expect(JSON.parse((await run('-1')).stdout)).toMatchObject({ numProblems: 4 })
      expect((await run('0')).stderr).toMatch(/--num-problems must be .* got 0 \(OUT_OF_RANGE\)/)
      const counter = join(folder, 'endless.mjs')
      const dataset = '{ next: () => count++, stateDict: () => ({}), loadStateDict: () => {} }'
      const parts = `makeDataset: () => (${dataset}), makeEnv: () => ({}), rewardFns: []`
      await writeFile(counter, `let count = 0; export default { name: 'endless', ${parts} }`)
      const { stderr: refusal } = await fulmar(['eval', counter, '-m', 'echo', '-b', url, '-n', '-1'])
      expect(refusal).toMatch(/must have a task with an end: endless .*\(OUT_OF_RANGE\)/)
    })
  })

  it.each([
    [['sumDigits'], /the model must be given by --model/],
    [['nothing', '-m', 'x'], /the task must be the path of a module or one of sumDigits, .*: got nothing/],
    [['sumDigits', '-m', '/no/model'], /\/no\/model/],
    [
      ['sumDigits', '-m', '/no/model', '-S', '{"logit_bias": {}}'],
      /--sampling-args must have only .* got logit_bias/,
    ],
    [['sumDigits', '-m', 'x', '-b', 'http://localhost:1', '-S', '[1]'], /--sampling-args must be an object/],
    [['sumDigits', '-m', 'x', '-b', 'http://localhost:1', '-S', '{"stream": true}'], /stream/],
    [['sumDigits', '-m', 'x', '-b', 'here'], /url must be/],
    [['sumDigits', '-m', 'x', '-a', '{"number": 3}'], /numbers/],
    [['gsm8k', '-m', 'x'], /gsm8k must have the file of its rows, such as -a '\{"rows": "gsm8k.jsonl"\}'/],
    [['sumDigits', '-m', 'x', '-c', 'many'], /--max-concurrent must be a number: got many/],
    [['/no/run', '-t', '3'], /the run decides maxTokens/],
    [[], /a task or the folder of a run must be given/],
  ])('refuses %j', async (args, message) => {
    const { code, stderr } = await fulmar(['eval', ...args])
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
  })
})
