import { describe, expect, it } from 'vitest'
import {
  ANSWER_DEPTH_MAX,
  completionBody,
  logitBiasOf,
  readCompletion,
  readEnd,
  readObject,
  readScores,
} from '../../src/vllm/vllm-protocol.js'

const served = { model: 'm', vocabSize: 10, logProbsMode: 'raw' as const }
const request = { requestId: 'r', promptIds: Uint32Array.of(1, 2), maxTokens: 2, seed: 0, stopIds: [] }

/** A reply of two tokens, the first of which has this log-prob, as the exact text of its JSON. */
const answer = (logProb: string) =>
  `{"id":"cmpl-w","choices":[{"token_ids":[3,4],"prompt_token_ids":[1,2],"finish_reason":"length",
    "stop_reason":null,"logprobs":{"token_logprobs":[${logProb},-0.5]}}]}`
const logProbOf = (logProb: string) => readCompletion(answer(logProb), 'w', request, served).logProbs[0]

describe('a request to a vLLM server', () => {
  it('says biases of single ids by name, and adds those of one id', () => {
    const sequenceBias = [
      [[3], -2.5],
      [[7], 100],
      [[3], 1],
    ] as const
    const body = JSON.parse(completionBody('w', { ...request, sequenceBias }, served))
    expect(body.logit_bias).toEqual({ 3: -1.5, 7: 100 })
    expect(JSON.parse(completionBody('w', request, served)).logit_bias).toEqual({})
  })

  it('leaves out rules that change nothing', () => {
    const off = { noRepeatNgramSize: 0, badWordsIds: [], typicalP: 1, epsilonCutoff: 0, etaCutoff: 0 }
    expect(logitBiasOf(off)).toEqual({})
  })

  it.each([
    [{ topH: 1 }, 'topH must not be given to vLLM, which does not support it: got 1'],
    [{ typicalP: 0.9 }, 'typicalP must not be given'],
    [{ epsilonCutoff: 0.1 }, 'epsilonCutoff must not be given'],
    [{ etaCutoff: 0.1 }, 'etaCutoff must not be given'],
    [{ noRepeatNgramSize: 2 }, 'noRepeatNgramSize must not be given'],
    [{ badWordsIds: [[3]] }, 'badWordsIds must not be given'],
    [{ sequenceBias: [[[3, 4], 1]] as const }, 'sequenceBias[0] must have one id for vLLM'],
    [{ sequenceBias: [[[3], -100.5]] as const }, 'sequenceBias[0] must be from -100 to 100'],
    [
      {
        sequenceBias: [
          [[3], 60],
          [[3], 50],
        ] as const,
      },
      'sequenceBias[1] must be from -100 to 100 for vLLM: got 110',
    ],
  ])('is refused by name with %j', (rule, message) => {
    const error = expect.objectContaining({ code: 'UNAVAILABLE', message: expect.stringContaining(message) })
    expect(() => completionBody('w', { ...request, ...rule }, served)).toThrow(error)
  })

  it('with a bias has log-probs of one kind alone', () => {
    const biased = { ...request, sequenceBias: [[[3], 1]] as const }
    const nan = Float32Array.of(Number.NaN, Number.NaN)
    const raw = readCompletion(answer('-0.25'), 'w', biased, served)
    expect([raw.logProbs, raw.sampledLogProbs]).toEqual([Float32Array.of(-0.25, -0.5), nan])
    const processed = readCompletion(answer('-0.25'), 'w', biased, { ...served, logProbsMode: 'processed' })
    expect([processed.logProbs, processed.sampledLogProbs]).toEqual([nan, Float32Array.of(-0.25, -0.5)])
  })
})

describe('an answer of a vLLM server', () => {
  it.each([
    ['-0.25', -0.25],
    ['0', 0],
    ['0.001', 0],
    ['-9998', -9998],
  ])('tells a log-prob of %s', (text, value) => {
    expect(logProbOf(text)).toBe(value)
  })

  it.each(['0.0011', '0.4', '1', '-9999', '-1e400', '1e400', 'null', '"-1"', '[]', 'true'])(
    'is not believed that a drawn token has the log-prob %s',
    (text) => {
      expect(() => logProbOf(text)).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
    },
  )

  it.each([
    ['stop', [4, 3], { finishReason: 'stop', stoppedBy: 3 }],
    ['length', [4, 3], { finishReason: 'stop', stoppedBy: 3 }],
    ['stop', [3], { finishReason: 'stop', stoppedBy: 3 }],
    ['length', [3, 4], 'MALFORMED'],
    ['length', [3], 'MALFORMED'],
    ['length', [4], 'MALFORMED'],
    ['stop', [4, 5], 'MALFORMED'],
    ['length', [4, 5], { finishReason: 'length', stoppedBy: null }],
    ['abort', [4], { finishReason: 'abort', stoppedBy: null }],
    ['abort', [3], { finishReason: 'abort', stoppedBy: null }],
    ['tool_calls', [4, 3], 'MALFORMED'],
    ['abort', [4, 5, 6], 'MALFORMED'],
  ] as const)('that ends with %s and the tokens %j of at most 2 is read as %j', (reason, ids, expected) => {
    const read = () =>
      readEnd({ finish_reason: reason, stop_reason: null }, Uint32Array.from(ids), {
        ...request,
        stopIds: [3],
      })
    if (typeof expected === 'string') expect(read).toThrow(expect.objectContaining({ code: expected }))
    else expect(read()).toEqual(expected)
  })

  it('may know no log-prob of a token that was not drawn', () => {
    const scored = { ids: Uint32Array.of(1, 2), requestId: 's' }
    const text =
      '{"id":"cmpl-w","choices":[{"prompt_token_ids":[1,2],"prompt_logprobs":[null,{"2":{"logprob":null}}]}]}'
    expect(readScores(text, 'w', scored)).toEqual(Float32Array.of(Number.NaN, Number.NaN))
  })

  it('is read as deep as the limit, and refused before it is parsed if it is deeper', () => {
    const nested = (depth: number) => `{"a":${'['.repeat(depth - 1)}"[[\\"[{"${']'.repeat(depth - 1)}}`
    expect(readObject(nested(ANSWER_DEPTH_MAX))).toHaveProperty('a')
    const deeper = nested(ANSWER_DEPTH_MAX + 1)
    expect(() => readObject(deeper)).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    // Never closed: a parser would hold a level for each before it noticed.
    const bomb = `{"a":${'['.repeat(5_000_000)}`
    expect(() => readObject(bomb)).toThrow('at character 68')
  })
})
