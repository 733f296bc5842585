import { describe, expect, it } from 'vitest'
import { Decoder, type Generated, generate, type Prompt } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const prompts: Prompt[] = Array.from({ length: 40 }, (_, seed) => ({
  ids: Uint32Array.from({ length: 1 + (seed % 5) }, (_, at) => (seed * 7 + at * 3) % 23),
  seed,
}))

/** Log-probs of completions under the trainer's forward pass. */
async function trained(
  decoder: Decoder,
  asked: readonly Prompt[],
  drawn: readonly Generated[],
): Promise<number[]> {
  const sequences = asked.map(({ ids }, index) => [...ids, ...(drawn[index]?.ids ?? [])])
  const offsets = Uint32Array.from([0, ...sequences.map(({ length }) => length)])
  for (let index = 1; index < offsets.length; index++)
    offsets[index] = (offsets[index] ?? 0) + (offsets[index - 1] ?? 0)
  const mask = Uint8Array.from(
    asked.flatMap(({ ids }, s) => [...ids.map(() => 0), ...(drawn[s]?.ids ?? []).map(() => 1)]),
  )
  const { logProb } = await decoder.forward({ ids: Uint32Array.from(sequences.flat()), offsets, mask })
  return [...logProb].filter((_, index) => mask[index] === 1)
}

describe('generate', () => {
  it('draws a thousand tokens with the bits of the trainer’s forward pass, in any batch', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const options = { maxTokens: 40 }
    const drawn = await generate(decoder, prompts, options)
    const sampled = drawn.flatMap(({ logProbs }) => [...logProbs])
    expect(sampled.length).toBeGreaterThanOrEqual(1000)
    expect(await trained(decoder, prompts, drawn)).toEqual(sampled)
    const few = [prompts[3], prompts[31]].filter((prompt) => prompt !== undefined)
    expect(await generate(decoder, few, options)).toEqual([drawn[3], drawn[31]])
  })

  it('tells a stop token from the token limit and keeps the stop token', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const drawn = await generate(decoder, prompts, { maxTokens: 12, stopIds: [2, 3] })
    for (const { ids, finishReason } of drawn) {
      const stopped = ids.findIndex((id) => id === 2 || id === 3)
      expect(finishReason).toBe(stopped < 0 ? 'length' : 'stop')
      expect(ids).toHaveLength(stopped < 0 ? 12 : stopped + 1)
    }
  })

  it('draws greedily at temperature 0, whatever the seed', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const ids = Uint32Array.of(4, 9)
    const options = { maxTokens: 6, temperature: 0 }
    const [one, two] = await generate(
      decoder,
      [
        { ids, seed: 1 },
        { ids, seed: 2 },
      ],
      options,
    )
    expect(one?.ids).toEqual(two?.ids)
    expect(one?.sampledLogProbs).toEqual(new Float32Array(6))
  })

  it('stops between steps once its signal fires and returns what was drawn', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    let looks = 0
    const signal = {
      get aborted() {
        return ++looks > 2
      },
    }
    const [drawn] = await generate(decoder, [{ ids: Uint32Array.of(1), seed: 0 }], { maxTokens: 60, signal })
    expect(drawn?.finishReason).toBe('abort')
    expect(drawn?.ids.length).toBe(16)
  })

  it('leaves the event loop free between its steps', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    let ticks = 0
    const timer = setInterval(() => {
      ticks += 1
    }, 0)
    await generate(decoder, prompts, { maxTokens: 48 })
    clearInterval(timer)
    expect(ticks).toBeGreaterThan(0)
  })

  it('refuses requests that it cannot serve', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const prompt = { ids: Uint32Array.of(1), seed: 0 }
    const refuse = (asked: Prompt[], options: object) =>
      expect(generate(decoder, asked, { maxTokens: 4, ...options })).rejects
    await refuse([], {}).toThrow(code('EMPTY'))
    await refuse([{ ...prompt, ids: new Uint32Array(0) }], {}).toThrow(code('EMPTY'))
    await refuse([{ ...prompt, ids: Uint32Array.of(23) }], {}).toThrow(code('OUT_OF_RANGE'))
    await refuse([{ ...prompt, seed: 0.5 }], {}).toThrow(code('OUT_OF_RANGE'))
    await refuse([prompt], { maxTokens: 0 }).toThrow(code('OUT_OF_RANGE'))
    await refuse([prompt], { maxTokens: 64 }).toThrow(code('LIMIT_EXCEEDED'))
    await refuse([prompt], { topP: 0 }).toThrow(code('OUT_OF_RANGE'))
  })
})
