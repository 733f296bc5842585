import { describe, expect, it } from 'vitest'
import { type GenerateKwargs, resolveGenerateKwargs } from '../../src/policy/generate-kwargs.js'

describe('GenerateKwargs', () => {
  it('takes both names of an option', () => {
    expect(resolveGenerateKwargs({ maxTokens: 10, n: 1, temperature: 0.7 })).toMatchObject({
      maxTokens: 10,
      numSamples: 1,
      temperature: 0.7,
    })
    expect(resolveGenerateKwargs({ maxNewTokens: 12, numReturnSequences: 3 })).toMatchObject({
      maxTokens: 12,
      numSamples: 3,
    })
    expect(resolveGenerateKwargs()).toMatchObject({ maxTokens: 128, temperature: 1, topK: 0, topP: 1 })
  })

  it('takes the likeliest tokens without sampling', () => {
    expect(resolveGenerateKwargs({ doSample: false })).toMatchObject({ temperature: 0 })
  })

  it.each<[GenerateKwargs, string, RegExp]>([
    [{ maxTokens: 20, maxNewTokens: 10 }, 'INCOMPATIBLE', /maxNewTokens must not be given with maxTokens/],
    [{ n: 2, numReturnSequences: 1 }, 'INCOMPATIBLE', /numReturnSequences/],
    [{ temperature: -0.1 }, 'OUT_OF_RANGE', /temperature must be non-negative/],
    [{ topP: 1.5 }, 'OUT_OF_RANGE', /topP must be between 0 and 1/],
    [{ topP: 0 }, 'OUT_OF_RANGE', /topP must be between 0 and 1/],
    [{ topK: -1 }, 'OUT_OF_RANGE', /topK must be a positive integer/],
    [{ minP: 2 }, 'OUT_OF_RANGE', /minP/],
    [{ repetitionPenalty: 0 }, 'OUT_OF_RANGE', /repetitionPenalty must be positive/],
    [{ doSample: false, temperature: 0.7 }, 'INCOMPATIBLE', /When doSample is false, temperature must be 0/],
    [{ maxTokens: 0 }, 'OUT_OF_RANGE', /maxNewTokens must be an integer >= 1/],
    [{ n: 1.5 }, 'OUT_OF_RANGE', /numSamples must be an integer >= 1/],
    [{ seed: -1 }, 'OUT_OF_RANGE', /seed/],
    [{ stopStrings: [''] }, 'EMPTY', /stopStrings\[0\] must hold text/],
    [{ stopStrings: 'end' as never }, 'MALFORMED', /stopStrings must be strings/],
    [{ maxNewToken: 3 } as GenerateKwargs, 'UNKNOWN_NAME', /did you mean 'maxNewTokens'/],
    [{ guidedDecoding: {} } as GenerateKwargs, 'UNKNOWN_NAME', /guidedDecoding must be a known key/],
  ])('refuses %j', (kwargs, code, message) => {
    expect(() => resolveGenerateKwargs(kwargs)).toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    )
  })
})
