import { describe, expect, expectTypeOf, it } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { defineTask, reward } from '../../src/task/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { JSONCallParser, ToolBlockParser, ToolRunner, tool, XMLBlockParser } from '../../src/tools/index.js'
import { failing } from '../torchrl/envs/chats.js'

const rows = [
  { country: 'Norway', capital: 'Oslo' },
  { country: 'Peru', capital: 'Lima' },
]
const prompt = ({ country }: { country: string }) => `Capital of ${country}?`
const exact = reward<(typeof rows)[number]>('exact', ({ text, sample }) => text === sample.capital)
const names = ['think', 'tool_call', 'tool_response']
const MARKERS = [
  '<|im_start|>',
  '<|im_end|>',
  '<|endoftext|>',
  ...names.flatMap((name) => [`<${name}>`, `</${name}>`]),
]
const context = { signal: new AbortController().signal }

/** Rollouts of scripted answers to the first row of validation. */
async function answersOf(task: ReturnType<typeof defineTask<(typeof rows)[number]>>, ...answers: string[]) {
  using tokenizer = new CharTokenizer({ specialTokens: MARKERS })
  using renderer = createRenderer(tokenizer, { name: 'qwen3' })
  const says = (text = '') => [...tokenizer.encode(text, { addedTokens: true }).ids, renderer.stopIds[0] ?? 0]
  const policy = new ScriptedPolicy({ reply: (_, call) => says(answers[call]) })
  const rollouter = new Rollouter({ policy, task, renderer, groupSize: 1, maxTokens: 200 })
  using group = await rollouter.runGroup({ sample: rows[0] as never, groupId: 0 })
  return group.rollouts[0]
}

describe('defineTask', () => {
  it('infers the type of rows for prompt, rewards and answer', () => {
    const task = defineTask({
      rows,
      prompt: (row) => {
        expectTypeOf(row).toEqualTypeOf<{ country: string; capital: string }>()
        return row.country
      },
      rewards: [reward('exact', ({ text, sample }) => text === sample.capital)],
      answer: (row) => row.capital,
    })
    expectTypeOf(task.makeDataset('train').next()).toEqualTypeOf<{ country: string; capital: string }>()
  })

  it('names the remedy in the cause of a rollout whose chat template has no form for tools', async () => {
    const clock = tool({
      name: 'clock',
      description: 'The time.',
      schema: { type: 'object', properties: {} },
      run: () => 12,
    })
    const task = defineTask({ rows, prompt, tools: [clock], rewards: [exact] })
    using tokenizer = new CharTokenizer({ specialTokens: MARKERS })
    const template = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}'
    using renderer = createRenderer(tokenizer, { name: 'opaque', template, stopTokens: ['<|im_end|>'] })
    const policy = new ScriptedPolicy({ reply: () => [] })
    const rollouter = new Rollouter({ policy, task, renderer, groupSize: 1, maxTokens: 8 })
    using group = await rollouter.runGroup({ sample: rows[0] as never, groupId: 0 })
    expect(group.rollouts[0]?.cause).toMatchObject({
      stage: 'render',
      message: expect.stringMatching(/tools must be left out.*; give defineTask a toolParser/),
    })
  })

  it('takes rows that an interface types, with rewards of any row', () => {
    interface Question {
      readonly question: string
      readonly answer: string
    }
    const questions: Question[] = [{ question: '1 + 1?', answer: '2' }]
    const right = reward('right', ({ text, sample }) => text === sample.answer)
    const task = defineTask({
      rows: questions,
      prompt: ({ question }) => question,
      rewards: [right, reward('long', ({ text, sample }) => text.length > String(sample.question).length)],
    })
    expectTypeOf(task.makeDataset('train').next()).toEqualTypeOf<Question>()
    // @ts-expect-error a text has no keys that a reward of any row reads
    expectTypeOf(() => defineTask({ rows: ['a'], prompt: String, rewards: [right] })).toBeFunction()
  })

  it('takes messages as openai types them, and rewards of its rows alone', () => {
    interface UserMessage {
      role: 'user'
      content: string | { type: 'text'; text: string }[]
      name?: string
    }
    const chats: { messages: UserMessage[]; gold: string }[] = [
      { messages: [{ role: 'user', content: 'Capital of Norway?' }], gold: 'Oslo' },
    ]
    type Chat = (typeof chats)[number]
    const golden = reward<Chat>('golden', ({ text, sample }) => text === sample.gold)
    const task = defineTask({ rows: chats, prompt: (row) => row.messages, rewards: [golden] })
    expect(task.makeDataset('train').next()).toBe(chats[0])
    // @ts-expect-error a row has no such key
    reward<Chat>('typo', ({ text, sample }) => text === sample.golden)
    // @ts-expect-error these rows have neither messages nor gold
    const other = () => defineTask({ rows, prompt, rewards: [golden] })
    // @ts-expect-error a row has no such key
    const asked = () => defineTask({ rows, prompt: (row) => row.city, rewards: [exact] })
    expectTypeOf([other, asked]).toBeArray()
  })

  it('asks the prompt behind the system prompt, and ends with the answer', async () => {
    const env = defineTask({ rows, prompt, rewards: [exact], systemPrompt: 'Be short.' }).makeEnv(
      rows[0] as never,
    )
    expect(await env.init(context)).toEqual({
      initPromptMessages: [
        { role: 'system', content: 'Be short.' },
        { role: 'user', content: 'Capital of Norway?' },
      ],
    })
    expect(await env.step({ role: 'assistant', content: 'Oslo' }, context)).toEqual({ done: true })
  })

  it('trains on rows in another order each pass, and measures validation rows in their order', () => {
    const many = Array.from({ length: 20 }, (_, index) => index)
    const task = defineTask({
      rows: many,
      validationRows: [7, 8],
      prompt: String,
      rewards: [reward<number>('r', () => 1)],
    })
    const take = (split: 'train' | 'validation', count: number) => {
      const dataset = task.makeDataset(split)
      return Array.from({ length: count }, () => dataset.next())
    }
    const trained = take('train', 40)
    for (const pass of [trained.slice(0, 20), trained.slice(20)])
      expect(pass.toSorted((a, b) => a - b)).toEqual(many)
    expect(trained.slice(0, 20)).not.toEqual(trained.slice(20))
    expect(take('validation', 3)).toEqual([7, 8, 7])
  })

  it('counts a rollout as solved whose reward is at least 1', async () => {
    const half = reward<(typeof rows)[number]>('half', () => 0.5)
    const task = defineTask({ rows, prompt, rewards: [exact, half] })
    const rollout = await answersOf(task, 'Oslo')
    expect(rollout?.reward).toBe(0.75)
    expect(task.isSolved(rollout as never, rows[0] as never)).toBe(false)
    const alone = defineTask({ rows, prompt, rewards: [exact] })
    for (const [answer, isSolved] of [
      ['Oslo', true],
      ['Rome', false],
    ] as const)
      expect(alone.isSolved((await answersOf(alone, answer)) as never, rows[0] as never)).toBe(isSolved)
    const lenient = defineTask({ rows, prompt, rewards: [exact], isSolved: () => true })
    expect(lenient.isSolved({ status: 'error', turns: [] }, rows[0] as never)).toBe(true)
  })

  it('runs the calls of tools, tells the policy of them, and goes on to the answer', async () => {
    const lookup = tool({
      name: 'lookup',
      schema: { type: 'object', properties: { country: { type: 'string' } }, required: ['country'] },
      run: ({ country }) => rows.find((row) => row.country === country)?.capital ?? 'unknown',
    })
    for (const tools of [[lookup], new ToolRunner({ tools: [lookup] })]) {
      const task = defineTask({ rows, prompt, rewards: [exact], tools })
      const { tools: told } = await task.makeEnv(rows[0] as never).init(context)
      expect(told).toMatchObject([{ function: { name: 'lookup' } }])
      const call = '<tool_call>\n{"name": "lookup", "arguments": {"country": "Norway"}}\n</tool_call>'
      const rollout = await answersOf(task, call, 'Oslo')
      expect(rollout?.turns.map(({ envMessages }) => envMessages.length)).toEqual([1, 0])
      expect(rollout?.reward).toBe(1)
    }
  })

  it('describes tools in the system message where calls are read from texts, for a template without a form for them', async () => {
    const lookup = tool({
      name: 'lookup',
      description: 'Finds a capital.',
      schema: { type: 'object', properties: { country: { type: 'string' } }, required: ['country'] },
      run: ({ country }) => rows.find((row) => row.country === country)?.capital ?? 'unknown',
    })
    const calls = [
      [new XMLBlockParser(), '<tool name="lookup">{"country": "Norway"}</tool>'],
      [new ToolBlockParser(), '<tool>lookup\n{"country": "Norway"}\n</tool>'],
      [new JSONCallParser(), '{"message": "", "tools": [{"tool": "lookup", "args": {"country": "Norway"}}]}'],
    ] as const
    for (const [toolParser, call] of calls) {
      const task = defineTask({
        rows,
        prompt,
        rewards: [exact],
        systemPrompt: 'Be short.',
        tools: [lookup],
        toolParser,
      })
      const { tools: told, initPromptMessages } = await task.makeEnv(rows[0] as never).init(context)
      expect(told).toEqual([])
      const system = String(initPromptMessages[0]?.content)
      for (const part of [
        'Be short.\n\n',
        '"name":"lookup"',
        'Finds a capital.',
        '"country"',
        toolParser.example,
      ])
        expect(system).toContain(part)
      // What the example says is what the parser reads.
      const written = toolParser.example
        .replace('NAME', 'lookup')
        .replace('ARGUMENTS', '{"country": "Norway"}')
      for (const text of [written, call])
        expect(toolParser.parse(text).calls).toMatchObject([{ tool: 'lookup', args: { country: 'Norway' } }])
      const rollout = await answersOf(task, call, 'Oslo')
      expect(rollout?.turns.map(({ envMessages }) => envMessages.length)).toEqual([1, 0])
      expect(rollout?.reward).toBe(1)
    }
  })

  it('has worked examples where there is an answer, as a text or as messages', () => {
    const texts = defineTask({ rows, prompt, rewards: [exact], answer: ({ capital }) => capital })
    const messages = defineTask({
      rows,
      prompt: ({ country }) => [{ role: 'user', content: `Capital of ${country}?` }],
      rewards: [exact],
      answer: ({ capital }) => [{ role: 'assistant', content: capital }],
    })
    const expected = [
      { role: 'user', content: 'Capital of Norway?' },
      { role: 'assistant', content: 'Oslo' },
    ]
    for (const task of [texts, messages]) expect(task.workedExample?.(rows[0] as never)).toEqual(expected)
    expect(defineTask({ rows, prompt, rewards: [exact] }).workedExample).toBeUndefined()
  })

  it('refuses options of another form by name', () => {
    const options = { rows, prompt, rewards: [exact] }
    const refusals: [object, string, RegExp][] = [
      [{ rows: [] }, 'EMPTY', /rows/],
      [{ rewards: [] }, 'EMPTY', /rewards/],
      [{ prompt: 'question' }, 'MALFORMED', /prompt/],
      [{ answer: 'answer' }, 'MALFORMED', /answer/],
      [{ isSolved: 1 }, 'MALFORMED', /isSolved/],
      [{ tools: 'search' }, 'MALFORMED', /tools/],
      [{ reward: exact }, 'UNKNOWN_NAME', /rewards/],
    ]
    for (const [wrong, code, message] of refusals)
      expect(() => defineTask({ ...options, ...wrong } as never)).toThrow(failing(code, message))
    expect(() => defineTask({ rows, prompt } as never)).toThrow(failing('MALFORMED', /rewards/))
    const numbers = defineTask({ ...options, prompt: () => 7 as never }).makeEnv(rows[0] as never)
    expect(() => numbers.init(context)).toThrow(failing('MALFORMED', /prompt must return a text or messages/))
  })
})
