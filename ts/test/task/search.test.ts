import { describe, expect, it } from 'vitest'
import type { Message } from '../../src/chat/index.js'
import { normalizeSearchAnswer, type SearchTaskOptions, search, searchIndex } from '../../src/task/index.js'
import { SEARCH_CALLS_MAX } from '../../src/task/search.js'
import { codeOf, rewardOf, said } from './said.js'

const index = searchIndex([
  { title: 'Paris', text: 'Paris is the capital of France.' },
  { title: 'London', text: 'London is the capital of England.' },
])
const sample = { question: 'What is the capital of France?', answers: ['Paris', 'City of Light'] }
const task = (options: Partial<SearchTaskOptions> = {}) => search({ rows: [sample], index, ...options })
const call = (query: unknown, name = 'search') => ({
  id: 'c1',
  type: 'function',
  function: { name, arguments: query },
})
const calling = (...calls: readonly unknown[]) => ({ role: 'assistant', content: null, tool_calls: calls })
const { signal } = new AbortController()
const step = async (message: Message) => await task().makeEnv(sample).step(message, { signal })

describe('search', () => {
  it('shows the tool and the question', async () => {
    const { initPromptMessages, tools } = await task().makeEnv(sample).init({ signal })
    expect(initPromptMessages.at(-1)).toEqual({ role: 'user', content: sample.question })
    expect(tools).toMatchObject([{ function: { name: 'search' } }])
  })

  it.each([[{ query: 'capital of France' }], ['{"query": "capital of France"}']])(
    'answers a call with arguments %j',
    async (query) => {
      const { done, envMessages } = await step(calling(call(query)))
      expect(done).toBeUndefined()
      expect(envMessages).toEqual([
        {
          role: 'tool',
          name: 'search',
          tool_call_id: 'c1',
          content:
            'Doc 1(Title: Paris) Paris is the capital of France.\nDoc 2(Title: London) London is the capital of England.',
        },
      ])
    },
  )

  it('answers every call in order, those that are wrong with what is wrong, and ends without one', async () => {
    const { envMessages } = await step(
      calling(call({ query: 'zebra' }), call({ q: 1 }), call('{'), call({ query: 'a' }, 'exec'), 7),
    )
    const contents = envMessages?.map(({ content }) => content) ?? []
    expect(contents[0]).toBe('')
    expect(contents.slice(1).every((content) => String(content).startsWith('Error: '))).toBe(true)
    expect(contents).toHaveLength(5)
    expect(await step({ role: 'assistant', content: 'Paris' })).toEqual({ done: true })
    expect(await step({ role: 'assistant', content: 'Paris', tool_calls: [] })).toEqual({ done: true })
  })

  it('searches for as many calls as it may and tells the next that they are too many', async () => {
    const { envMessages = [] } = await step(
      calling(...Array(SEARCH_CALLS_MAX + 1).fill(call({ query: 'Paris' }))),
    )
    expect(envMessages[SEARCH_CALLS_MAX - 1]?.content).toContain('Doc 1')
    expect(envMessages[SEARCH_CALLS_MAX]?.content).toContain('Error: at most')
  })

  const found = [{ role: 'tool', content: 'Doc 1(Title: x) It is Paris, they say.' }]
  const searched = calling(call({ query: 'x' }))

  it.each<[string, Partial<SearchTaskOptions>, number]>([
    ['The Paris.', {}, 1],
    ['London', {}, 0],
    ['I think <answer>London</answer> no <answer> the city of light </answer>', {}, 1],
    ['Paris', { noSearchPenalty: 0.2 }, 0.8],
    ['', {}, 0],
  ])('pays for %j with %j alone %d', async (text, options, reward) => {
    expect(await rewardOf(task(options), said([text]), sample)).toBe(reward)
  })

  it('pays in full after a search, a share where the passage had it, and nothing where it ended on a call', async () => {
    const options = { noSearchPenalty: 0.2, retrievalScore: 0.1 }
    expect(await rewardOf(task(options), said([searched, 'Paris'], [found]), sample)).toBe(1)
    expect(await rewardOf(task(options), said([searched, 'London'], [found]), sample)).toBe(0.1)
    expect(await rewardOf(task(), said([searched, 'London'], [found]), sample)).toBe(0)
    expect(await rewardOf(task(options), said([searched], [found]), sample)).toBe(0)
    const elsewhere = [{ role: 'tool', content: 'Parisian life' }]
    expect(await rewardOf(task(options), said([searched, 'London'], [elsewhere]), sample)).toBe(0)
    const endsOnCall = { ...searched, content: 'Paris' }
    expect([task().isSolved(said([endsOnCall]), sample), task().isSolved(said(['paris']), sample)]).toEqual([
      false,
      true,
    ])
  })

  it('compares answers as they are meant', () => {
    expect(normalizeSearchAnswer('  The  U.S. Army -- an army ')).toBe('us army army')
  })

  it('refuses rows without answers and options of the wrong form', () => {
    const row = (answers: unknown) =>
      codeOf(() => search({ rows: [{ question: 'q', answers: answers as string[] }], index }))
    expect([row([]), row('Paris'), row([1]), row(['the'])]).toEqual(Array(4).fill('MALFORMED'))
    expect(codeOf(() => task({ topK: 0 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => task({ retrievalScore: Number.NaN }))).toBe('OUT_OF_RANGE')
    // @ts-expect-error an unknown key
    expect(codeOf(() => task({ topk: 1 }))).toBe('UNKNOWN_NAME')
  })
})
