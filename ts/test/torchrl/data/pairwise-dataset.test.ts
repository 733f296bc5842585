import { describe, expect, it } from 'vitest'
import { PairwiseDataset, preTokenizationHook } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const readerOf = (rows: readonly object[]) =>
  async function* () {
    yield* rows as Record<string, unknown>[]
  }

async function textsOf(rows: readonly object[], minLength?: number) {
  const texts = []
  const options = minLength === undefined ? {} : { minLength }
  for await (const { text } of preTokenizationHook(readerOf(rows), options)) texts.push(text)
  return texts
}

describe('preTokenizationHook', () => {
  it('gives all preferred texts, then all others', async () => {
    const rows = [
      { prompt: 'p', chosen: 'a b', rejected: 'c d' },
      { prompt: 'q', chosen: 'e f', rejected: 'g h' },
    ]
    expect(await textsOf(rows, 2)).toEqual(['p\na b', 'q\ne f', 'p\nc d', 'q\ng h'])
  })

  it('leaves out equal and short summaries', async () => {
    const five = 'one two three  four\nfive'
    const rows = [
      { prompt: 'equal', chosen: five, rejected: five },
      { prompt: 'short', chosen: 'one two three four', rejected: five },
      { prompt: 'short', chosen: five, rejected: '' },
      { prompt: 'kept', chosen: five, rejected: `${five} six` },
    ]
    expect(await textsOf(rows)).toEqual([`kept\n${five}`, `kept\n${five} six`])
    expect(await textsOf(rows, 0)).toHaveLength(6)
  })

  it('says which row lacks a text', async () => {
    await expect(textsOf([{ prompt: 'p', chosen: 'a', rejected: null }])).rejects.toThrow(
      failing('MALFORMED', /row 0 must have a text in the column rejected: got null/),
    )
    await expect(textsOf([], -1)).rejects.toThrow(failing('OUT_OF_RANGE', /minLength/))
  })
})

describe('PairwiseDataset', () => {
  it('refuses to leave out halves of pairs', async () => {
    await expect(PairwiseDataset.fromDataset({ split: 'train', dropTruncated: true })).rejects.toThrow(
      failing('INCOMPATIBLE', /dropTruncated/),
    )
  })
})
