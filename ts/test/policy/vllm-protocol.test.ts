import { describe, expect, it } from 'vitest'
import { ANSWER_DEPTH_MAX, readCompletion, readObject, readScores } from '../../src/policy/vllm-protocol.js'

const served = { model: 'm', vocabSize: 10, logProbsMode: 'raw' as const }
const request = { requestId: 'r', promptIds: Uint32Array.of(1, 2), maxTokens: 2, seed: 0, stopIds: [] }

/** An answer of two tokens, the first of which has this log-prob, written as it stands. */
const answer = (logProb: string) =>
  `{"id":"cmpl-w","choices":[{"token_ids":[3,4],"prompt_token_ids":[1,2],"finish_reason":"length",
    "stop_reason":null,"logprobs":{"token_logprobs":[${logProb},-0.5]}}]}`
const logProbOf = (logProb: string) => readCompletion(answer(logProb), 'w', request, served).logProbs[0]

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
