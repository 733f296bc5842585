import { describe, expect, it } from 'vitest'
import { getDataloader, PairwiseDataset, PromptData } from '../../../src/torchrl/index.js'
import { isNative } from '../../dataset/golden-rows.js'
import { temporaryFolder } from '../../telemetry/folder.js'
import { failing } from '../envs/chats.js'
import { golden, linesFolder, words } from './token-sets.js'

/** Seven prompts, each of one token that names it. */
async function options(part: object = {}) {
  const names = ['a', 'b', 'c', 'a b', 'a c', 'b a', 'c a']
  const folder = await linesFolder(names.map((prompt) => ({ prompt, label: ' c' })))
  return {
    ...{ datasetName: folder, fromDisk: true, rootDir: await temporaryFolder(), tokenizer: words },
    ...{ tensorclassType: PromptData, batchSize: 3, blockSize: 4, infinite: false, ...part },
  }
}

async function textsOf(batches: AsyncIterable<PromptData>, count = Number.POSITIVE_INFINITY) {
  const texts: string[][] = []
  for await (const batch of batches) {
    const rows = Array.from({ length: 3 }, (_, row) => [...batch.at(row).input_ids.data].join(''))
    if (texts.push(rows) === count) break
  }
  return texts
}

describe.runIf(isNative)('getDataloader', () => {
  it('gives each row at most once a pass, in whole batches, with labels', async () => {
    const loader = await getDataloader(await options())
    expect(loader.numBatches).toBe(2)
    const texts = await textsOf(loader)
    expect(texts.map((rows) => rows.length)).toEqual([3, 3])
    expect(new Set(texts.flat()).size).toBe(6)
    expect(await textsOf(loader)).toEqual([])
    loader.loadStateDict({ position: 0 })
    for await (const { labels, input_ids } of loader) expect(labels?.data).toEqual(input_ids.data)
  })

  it('has a new order for each pass, the same for one seed', async () => {
    const source = await options({ infinite: true, seed: 5 })
    const texts = await textsOf(await getDataloader(source), 40)
    expect(await textsOf(await getDataloader(source), 40)).toEqual(texts)
    expect(await textsOf(await getDataloader({ ...source, seed: 6 }), 40)).not.toEqual(texts)
    expect(new Set(texts.map((rows) => rows.join())).size).toBeGreaterThan(10)
    expect(new Set(texts.flat()).size).toBe(7)
  })

  it.each([0, 3])('continues behind a state with %i batches in advance', async (prefetch) => {
    const source = await options({ infinite: true, prefetch })
    const whole = await textsOf(await getDataloader(source), 9)
    const first = await getDataloader(source)
    const before = await textsOf(first, 4)
    const state = JSON.parse(JSON.stringify(first.stateDict()))
    expect(state).toEqual({ position: 4 })
    const second = await getDataloader(source)
    second.loadStateDict(state)
    expect([...before, ...(await textsOf(second, 5))]).toEqual(whole)
    expect(await textsOf(first, 5)).toEqual(whole.slice(4))
  })

  it('gives pairs', async () => {
    const loader = await getDataloader({
      ...{
        tensorclassType: PairwiseDataset,
        batchSize: 4,
        blockSize: 12,
        infinite: false,
        rootDir: await temporaryFolder(),
      },
      ...{ datasetName: golden('raw/saved/openai_summarize_comparisons'), fromDisk: true },
      tokenizer: await (await import('../../../src/tokenizer/index.js')).HfTokenizer.fromFolder(
        golden('raw/hub/models/gpt2'),
      ),
    })
    const shapes = []
    for await (const { chosen_data, rejected_data } of loader)
      shapes.push([chosen_data.input_ids.shape, rejected_data.attention_mask.shape])
    expect(shapes).toEqual([
      [
        [4, 12],
        [4, 12],
      ],
    ])
  })

  it('refuses batches that the rows cannot fill', async () => {
    await expect(getDataloader(await options({ batchSize: 8 }))).rejects.toThrow(
      failing('OUT_OF_RANGE', /batchSize must be at most the 7 rows: got 8/),
    )
  })
})

describe('options of getDataloader', () => {
  it('are refused before anything is read', async () => {
    const base = { tensorclassType: PromptData, batchSize: 3, blockSize: 4 }
    const cases: [object, string, RegExp][] = [
      [{ batchSize: 0 }, 'OUT_OF_RANGE', /batchSize/],
      [{ blockSize: 0.5 }, 'OUT_OF_RANGE', /blockSize/],
      [{ prefetch: -1 }, 'OUT_OF_RANGE', /prefetch/],
      [{ seed: -1 }, 'OUT_OF_RANGE', /seed/],
      [{ infinite: 1 }, 'MALFORMED', /infinite/],
      [{ tensorclassType: Map }, 'MALFORMED', /tensorclassType/],
      [{ maxLength: 4 }, 'UNKNOWN_NAME', /maxLength/],
    ]
    for (const [part, code, message] of cases)
      await expect(getDataloader({ ...base, ...part } as never), JSON.stringify(part)).rejects.toThrow(
        failing(code, message),
      )
  })

  it.runIf(isNative)('refuse a state of another form', async () => {
    const loader = await getDataloader(await options())
    for (const state of [null, { position: -1 }, { position: 1, pass: 2 }])
      expect(() => loader.loadStateDict(state)).toThrow(expect.objectContaining({ name: 'FulmarError' }))
  })
})
