import { describe, expect, it } from 'vitest'
import { type DrawTokenOptions, drawProbabilities, drawToken, tokenMask } from '../../src/objective/index.js'
import { bitsOf, expectNear, flat, readRows } from './rows.js'

const NAMES = {
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
}
const LOGITS = Float32Array.from({ length: 30 }, (_, id) => ((id * 7) % 11) / 4 - ((id * 5) % 3))

describe('drawProbabilities', () => {
  it('keeps the tokens and gives the probabilities of transformers and vLLM', () => {
    for (const row of readRows('sampling', (row) => !row.expected_error)) {
      const config = row.config ?? row
      const given = Object.entries(NAMES).filter(([name]) => config[name])
      const probabilities = drawProbabilities({
        logits: Float32Array.from(flat(row.logits)),
        promptIds: Uint32Array.from(row.input_ids ?? row.prompt_ids ?? []),
        outputIds: Uint32Array.from(row.output_ids ?? []),
        ...Object.fromEntries(given.map(([name, option]) => [option, config[name]])),
      })
      const kept = [...probabilities.keys()].filter((id) => (probabilities[id] ?? 0) > 0)
      expectNear(probabilities, flat(row.probs))
      if (row.kept) expect(kept).toEqual(row.kept)
    }
  })

  it('keeps n-grams apart, biases and bans sequences and cuts by entropy as transformers does', () => {
    const names = {
      ...NAMES,
      typical_p: 'typicalP',
      top_h: 'topH',
      epsilon_cutoff: 'epsilonCutoff',
      eta_cutoff: 'etaCutoff',
      no_repeat_ngram_size: 'noRepeatNgramSize',
      sequence_bias: 'sequenceBias',
      bad_words_ids: 'badWordsIds',
    }
    for (const row of readRows('drawing', () => true)) {
      const given = Object.entries(names).filter(([name]) => name in row.config)
      const probabilities = drawProbabilities({
        logits: Float32Array.from(flat(row.logits)),
        promptIds: Uint32Array.from(row.input_ids),
        ...Object.fromEntries(given.map(([name, option]) => [option, row.config[name]])),
      })
      expectNear(probabilities, flat(row.probs))
      expect([...probabilities.keys()].filter((id) => (probabilities[id] ?? 0) > 0)).toEqual(row.kept)
    }
  })

  it('never draws a token whose logit is -Infinity', () => {
    const logits = Float32Array.of(0, Number.NEGATIVE_INFINITY, 0)
    expect([...drawProbabilities({ logits, logitBias: { 1: 1e30 } })]).toEqual([0.5, 0, 0.5])
  })

  it('adds biases, bans ids and lets through what a mask allows', () => {
    const logits = new Float32Array(40)
    const allowed = tokenMask(40, Uint32Array.of(0, 1, 39))
    const options = { logits, allowed, logitBias: { 0: Math.log(3), 7: 5 }, bannedIds: [1] }
    const probabilities = drawProbabilities(options)
    expectNear(
      [0, 1, 7, 39].map((id) => probabilities[id] ?? Number.NaN),
      [0.75, 0, 0, 0.25],
    )
    const ids = Array.from({ length: 50 }, (_, drawIndex) => drawToken({ ...options, seed: 3, drawIndex }).id)
    expect(new Set(ids)).toEqual(new Set([0, 39]))
  })

  it('gives the same bits on every backend', () => {
    const options = { logits: LOGITS, temperature: 0.8, topK: 20, topP: 0.9 }
    expect(bitsOf(drawProbabilities(options))).toBe('11d17623735a05d4')
  })
})

describe('drawToken', () => {
  it.each(['inverse', 'gumbelMax'] as const)('follows its distribution by %s', (drawMethod) => {
    const options = { logits: LOGITS, temperature: 1.3, topK: 12, topP: 0.95, drawMethod }
    const probabilities = drawProbabilities(options)
    const counts = new Float64Array(LOGITS.length)
    const draws = Array.from(
      { length: 20_000 },
      (_, drawIndex) => drawToken({ ...options, seed: 5, drawIndex }).id,
    )
    for (const id of draws) counts[id] = (counts[id] ?? 0) + 1
    const terms = [...probabilities].map((probability, id) => {
      const expected = probability * draws.length
      if (expected === 0) return counts[id] === 0 ? 0 : Number.POSITIVE_INFINITY
      return ((counts[id] ?? 0) - expected) ** 2 / expected
    })
    // 0.1 % point for at most 14 kept tokens, 13 degrees of freedom.
    expect(probabilities.filter((probability) => probability > 0).length).toBeLessThanOrEqual(14)
    expect(terms.reduce((sum, term) => sum + term)).toBeLessThan(34.53)
  })

  it('draws the same token of nearly equal logits by Gumbel noise, on every backend', () => {
    const options = { logits: LOGITS, drawMethod: 'gumbelMax', seed: 3 } as const
    const draws = Array.from({ length: 200 }, (_, drawIndex) => drawToken({ ...options, drawIndex }).id)
    const logits = LOGITS.map((logit, id) => logit + 0.01 * (id % 3))
    const near = draws.filter((id, drawIndex) => drawToken({ ...options, logits, drawIndex }).id === id)
    expect(near.length).toBeGreaterThan(190)
    expect(bitsOf(Float32Array.from(draws))).toBe('26ca95e93979a00')
    expect(() =>
      drawToken({ logits: LOGITS, drawMethod: 'best' as 'inverse', seed: 0, drawIndex: 0 }),
    ).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
  })

  it('draws the same tokens on every backend, each on its own', () => {
    const draw = (drawIndex: number) => drawToken({ logits: LOGITS, topP: 0.9, seed: 2 ** 53 - 1, drawIndex })
    const draws = Array.from({ length: 200 }, (_, index) => draw(199 - index)).reverse()
    expect(
      bitsOf(
        Float32Array.from(draws.flatMap(({ id, logProb, sampledLogProb }) => [id, logProb, sampledLogProb])),
      ),
    ).toBe('ec3289ac81a8c88b')
  })

  it('takes the likeliest token at temperature 0, of equals the first', () => {
    const draw = drawToken({ logits: Float32Array.of(1, 5, 5), temperature: 0, seed: 0, drawIndex: 0 })
    expect(draw).toMatchObject({ id: 1, sampledLogProb: 0 })
    expect(draw.logProb).toBeCloseTo(-Math.log(2 + Math.exp(-4)), 6)
  })

  it('has one log-probability where nothing is changed or cut', () => {
    const { logProb, sampledLogProb } = drawToken({ logits: LOGITS, seed: 1, drawIndex: 9 })
    expect(sampledLogProb).toBe(logProb)
  })

  it.each<[string, object]>([
    ['EMPTY', { logits: new Float32Array() }],
    ['NON_FINITE', { logits: Float32Array.of(0, Number.NaN) }],
    ['NON_FINITE', { logits: Float32Array.of(Number.NEGATIVE_INFINITY) }],
    ['OUT_OF_RANGE', { temperature: -1 }],
    ['OUT_OF_RANGE', { temperature: Number.NaN }],
    ['OUT_OF_RANGE', { topK: 0 }],
    ['OUT_OF_RANGE', { topP: 0 }],
    ['OUT_OF_RANGE', { minP: 2 }],
    ['OUT_OF_RANGE', { typicalP: 0 }],
    ['OUT_OF_RANGE', { repetitionPenalty: 0 }],
    ['OUT_OF_RANGE', { topH: 0 }],
    ['OUT_OF_RANGE', { epsilonCutoff: 1 }],
    ['OUT_OF_RANGE', { etaCutoff: -1 }],
    ['OUT_OF_RANGE', { badWordsIds: [[30]] }],
    ['EMPTY', { badWordsIds: [[]] }],
    ['EMPTY', { sequenceBias: [[[], 1]] }],
    ['MALFORMED', { sequenceBias: [[3, 1]] }],
    ['MALFORMED', { noRepeatNgramSize: -1 }],
    ['OUT_OF_RANGE', { promptIds: Uint32Array.of(30) }],
    ['OUT_OF_RANGE', { logitBias: { 30: 1 } }],
    ['MALFORMED', { logitBias: { a: 1 } }],
    ['MALFORMED', { logitBias: [1] }],
    ['MALFORMED', { logitBias: { 1: Number.NaN } }],
    ['MALFORMED', { outputIds: [1] }],
    ['SHAPE_MISMATCH', { allowed: Uint32Array.of(1, 1) }],
    ['EMPTY', { allowed: Uint32Array.of(0) }],
    ['OUT_OF_RANGE', { seed: -1 }],
    ['OUT_OF_RANGE', { drawIndex: 0.5 }],
    ['MALFORMED', { topK: 1.5 }],
    ['MALFORMED', { logits: [1, 2] }],
    ['UNKNOWN_NAME', { top_k: 3 }],
  ])('refuses with %s the change %j', (code, change) => {
    const options = { logits: LOGITS, seed: 1, drawIndex: 0, ...change } as DrawTokenOptions
    expect(() => drawToken(options)).toThrow(expect.objectContaining({ code }))
  })
})
