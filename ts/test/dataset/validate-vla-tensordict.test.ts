import { describe, expect, it } from 'vitest'
import { validateVlaTensordict } from '../../src/dataset/index.js'
import { NonTensorData, NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'

function whole(): TensorDict {
  return TensorDict.from(
    {
      action: Tensor.from([1, 2]),
      observation: TensorDict.from({ state: Tensor.from([1, 2]) }, { batchSize: [2] }),
      language_instruction: new NonTensorStack(['push', 'pull']),
    },
    { batchSize: [2] },
  )
}

const issuesOf = (dict: TensorDict, options = {}) =>
  validateVlaTensordict(dict, { throwOnIssue: false, ...options })

describe('validateVlaTensordict', () => {
  it('finds nothing where all is there', () => {
    expect(validateVlaTensordict(whole())).toEqual([])
    expect(issuesOf(whole().rename('action', 'a'), { actionKey: 'a' })).toEqual([])
  })

  it('names each issue by its key', () => {
    const empty = TensorDict.from({}, { batchSize: [2] })
    expect(issuesOf(empty)).toEqual([
      'missing language instruction at language_instruction',
      'missing perception: neither an image at observation.image nor a state at observation.state',
      'missing action at action',
    ])
    const nothing = { requireInstruction: false, requirePerception: false, requireAction: false }
    expect(issuesOf(empty, nothing)).toEqual([])
    expect(() => validateVlaTensordict(empty)).toThrow(
      failing('INCOMPATIBLE', /instruction.*perception.*action/),
    )
  })

  it('finds empty instructions and actions that are not finite', () => {
    for (const entry of [new NonTensorData(' '), new NonTensorStack(['push', ''])])
      expect(issuesOf(whole().set('language_instruction', entry))).toEqual([
        'empty language instruction at language_instruction',
      ])
    for (const data of [Float32Array.of(1, Number.NaN), Float64Array.of(Number.POSITIVE_INFINITY, 0)]) {
      const dict = whole().set('action', Tensor.from(data))
      expect(issuesOf(dict)).toEqual(['non-finite action at action'])
      expect(issuesOf(dict, { checkFinite: false })).toEqual([])
    }
    expect(issuesOf(whole().set('action', Tensor.from([1, 2], { dtype: 'i64' })))).toEqual([])
  })

  it('refuses other arguments', () => {
    expect(() => validateVlaTensordict({} as never)).toThrow(failing('MALFORMED', /TensorDict/))
    expect(() => issuesOf(whole(), { checkFinit: true })).toThrow(failing('UNKNOWN_NAME', /checkFinite/))
    expect(() => issuesOf(whole(), { requireAction: 1 })).toThrow(failing('MALFORMED', /requireAction/))
  })
})
