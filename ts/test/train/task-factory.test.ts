import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { taskFactories } from '../../src/train/index.js'
import { makeTask } from '../../src/train/task-factory.js'

async function fileOf(...rows: readonly object[]): Promise<string> {
  const path = join(await mkdtemp(join(tmpdir(), 'fulmar-task-')), 'rows.jsonl')
  await writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  return path
}

describe('makeTask', () => {
  it.each(['sumDigits', 'alphabetSort', 'countdown'])('makes %s of nothing but a seed', async (name) => {
    const [one, same, other] = [
      await makeTask({ name }, 1),
      await makeTask({ name }, 1),
      await makeTask({ name }, 2),
    ]
    const first = (task: typeof one) => task.makeDataset('train').next()
    expect(first(one)).toEqual(first(same))
    expect(first(one)).not.toEqual(first(other))
  })

  it('reads the rows of a task from its files', async () => {
    const rows = await fileOf({ question: '2 and 3?', answer: 'It is 5.\n#### 5' })
    const validationRows = await fileOf({ question: '4 and 4?', answer: '#### 8' })
    const task = await makeTask({ name: 'gsm8k', rows, validationRows }, 0)
    expect(task.makeDataset('train').next()).toMatchObject({ question: '2 and 3?' })
    expect(task.makeDataset('validation').next()).toMatchObject({ question: '4 and 4?' })
  })

  it('searches in the documents of a file', async () => {
    const rows = await fileOf({ question: 'Where is the tower?', answers: ['Pisa'] })
    const documents = await fileOf({ title: 'Tower', text: 'It stands in Pisa.' })
    const task = await makeTask({ name: 'search', rows, documents }, 0)
    const env = task.makeEnv(task.makeDataset('train').next() as never)
    const call = { id: 'c1', type: 'function', function: { name: 'search', arguments: { query: 'tower' } } }
    const said = { role: 'assistant', content: null, tool_calls: [call] }
    const { envMessages } = await env.step(said, { signal: new AbortController().signal })
    expect(envMessages?.[0]?.content).toBe('Doc 1(Title: Tower) It stands in Pisa.')
  })

  it('says what is wrong with files and options', async () => {
    const missing = makeTask({ name: 'gsm8k', rows: '/nowhere.jsonl' }, 0)
    await expect(missing).rejects.toMatchObject({ code: 'IO' })
    await expect(makeTask({ name: 'countdown', sede: 1 }, 0)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
    await expect(makeTask({ name: 'countdwn' }, 0)).rejects.toThrow("did you mean 'countdown'?")
    await expect(makeTask({ name: 'toString' }, 0)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  })

  it('knows every task of this release', () => {
    expect(Object.keys(taskFactories)).toEqual([
      'sumDigits',
      'alphabetSort',
      'countdown',
      'gsm8k',
      'math',
      'ifeval',
      'search',
    ])
  })
})
