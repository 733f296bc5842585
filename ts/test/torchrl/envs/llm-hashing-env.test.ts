import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { LLMHashingEnv, specEnvOf } from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

const tokenizer = new CharTokenizer()
const actions = (...ids: number[]) => Tensor.from(BigInt64Array.from(ids, BigInt), { shape: [ids.length, 1] })
const started = (...rows: readonly (readonly number[])[]) => {
  const ids = Ragged.fromRows(rows.map((row) => Tensor.from(BigInt64Array.from(row, BigInt))))
  return TensorDict.from({ observation: ids }, { batchSize: [rows.length] })
}

describe('LLMHashingEnv', () => {
  it('has one hash for the same ids, however they came about, and others for others', () => {
    const env = new LLMHashingEnv({ vocabSize: 50, textOutput: false })
    const seen = new Map<string, bigint>()
    const rows = fc.array(fc.integer({ min: 0, max: 49 }), { minLength: 1, maxLength: 8 })
    const property = fc.property(rows, fc.nat(), (ids, cut) => {
      const at = cut % ids.length
      let dict = env.reset(started(ids.slice(0, at)))
      for (const id of ids.slice(at)) dict = env.step(dict.set('action', actions(id)))
      const [hash = 0n] = env.reset(started(ids)).tensor('hashing').as('i64').data
      expect(dict.tensor('hashing').data[0]).toBe(hash)
      expect([...dict.ragged('observation').row(0).data].map(Number)).toEqual(ids)
      for (const [other, known] of seen) expect(known === hash).toBe(other === ids.join())
      seen.set(ids.join(), hash)
    })
    fc.assert(property, { seed: 7, numRuns: 60 })
  })

  it('shows the text beside the ids, and does what its specs say', async () => {
    const env = new LLMHashingEnv({ tokenizer, batchSize: 2 })
    const dict = env.makeTensorDict('some sentence')
    expect(dict.value('text')).toEqual(['some sentence', 'some sentence'])
    const [a = 0, b = 0] = tokenizer.encode('ab').ids
    const next = env.step(dict.set('action', actions(a, b)))
    expect(next.value('text')).toEqual(['some sentencea', 'some sentenceb'])
    expect(next.tensor('hashing').data[0]).not.toBe(next.tensor('hashing').data[1])
    expect([...next.tensor('done').data]).toEqual([0, 0])
    const start = started([a], [b])
    await checkEnvSpecs(specEnvOf(env, { dict: start }))
  })

  it('takes a hash of your own', () => {
    const env = new LLMHashingEnv({
      vocabSize: 9,
      textOutput: false,
      hash: (before, id) => before * 10n + BigInt(id),
    })
    expect(env.reset(started([1, 2, 3])).tensor('hashing').data[0]).toBe(123n)
  })

  it('refuses what it cannot do', () => {
    expect(() => new LLMHashingEnv({ vocabSize: 5 })).toThrow(failing('INCOMPATIBLE', /tokenizer/))
    expect(() => new LLMHashingEnv({ textOutput: false })).toThrow(failing('INCOMPATIBLE'))
    expect(() => new LLMHashingEnv({ textOutput: false, vocabSize: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new LLMHashingEnv({ tokenizer, batchSize: [2, 2] })).toThrow(failing('SHAPE_MISMATCH'))
    const env = new LLMHashingEnv({ vocabSize: 5, textOutput: false })
    expect(() => env.reset()).toThrow(failing('EMPTY'))
    expect(() => env.reset(TensorDict.from({}, { batchSize: [1] }))).toThrow(failing('UNKNOWN_NAME'))
    expect(() => env.makeTensorDict('a')).toThrow(failing('INCOMPATIBLE'))
    const dict = env.reset(started([1]))
    expect(() => env.step(dict)).toThrow(failing('UNKNOWN_NAME', /action/))
    expect(() => env.step(dict.set('action', actions(4)))).not.toThrow()
    expect(() => env.step(dict.set('action', actions(5)))).toThrow(failing('OUT_OF_RANGE', /got 5/))
  })
})
