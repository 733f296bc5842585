import { describe, expect, it } from 'vitest'
import { type GenerateKwargs, resolveGenerateKwargs } from '../../../src/torchrl/modules/generate-kwargs.js'

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

  it('keeps the rules of drawing that are given, and no others', () => {
    const rules = {
      ...{ topH: 0.5, typicalP: 0.9, epsilonCutoff: 0.01, etaCutoff: 0.02, noRepeatNgramSize: 3 },
      badWordsIds: [[1, 2], [3]],
      sequenceBias: [[[4, 5], -2.5]],
    } as const
    expect(resolveGenerateKwargs(rules)).toMatchObject(rules)
    expect(Object.keys(resolveGenerateKwargs())).not.toContain('topH')
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
    [{ topH: 0 }, 'OUT_OF_RANGE', /topH must be in \(0, 1\]: got 0/],
    [{ typicalP: 1.1 }, 'OUT_OF_RANGE', /typicalP must be in \(0, 1\]: got 1.1/],
    [{ epsilonCutoff: 1 }, 'OUT_OF_RANGE', /epsilonCutoff must be in \[0, 1\): got 1/],
    [{ etaCutoff: Number.NaN }, 'OUT_OF_RANGE', /etaCutoff must be in \[0, 1\): got NaN/],
    [{ noRepeatNgramSize: 1.5 }, 'OUT_OF_RANGE', /noRepeatNgramSize must be a non-negative integer: got 1.5/],
    [{ noRepeatNgramSize: '2' as never }, 'MALFORMED', /noRepeatNgramSize must be a number: got "2"/],
    [{ badWordsIds: [[1], []] }, 'EMPTY', /badWordsIds\[1\] must hold at least one id: got \[\]/],
    [{ badWordsIds: [3] as never }, 'MALFORMED', /badWordsIds\[0\] must be a list: got 3/],
    [
      { badWordsIds: [[2 ** 32]] },
      'OUT_OF_RANGE',
      /badWordsIds\[0\]\[0\] must be a token id: got 4294967296/,
    ],
    [
      { sequenceBias: [[[1, -1], 2]] },
      'OUT_OF_RANGE',
      /the ids of sequenceBias\[0\]\[1\] must be a token id: got -1/,
    ],
    [
      { sequenceBias: [[[1], Number.POSITIVE_INFINITY]] },
      'OUT_OF_RANGE',
      /the bias of sequenceBias\[0\] must be a finite number: got Infinity/,
    ],
    [{ sequenceBias: { 1: 2 } as never }, 'MALFORMED', /sequenceBias must be a list/],
    [{ sequenceBias: [[[1], 2, 3]] as never }, 'MALFORMED', /sequenceBias\[0\] must be ids and their bias/],
    [{ maxNewToken: 3 } as GenerateKwargs, 'UNKNOWN_NAME', /did you mean 'maxNewTokens'/],
    [{ guidedDecoding: {} } as GenerateKwargs, 'UNKNOWN_NAME', /guidedDecoding must be a known key/],
  ])('refuses %j', (kwargs, code, message) => {
    expect(() => resolveGenerateKwargs(kwargs)).toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    )
  })
})
