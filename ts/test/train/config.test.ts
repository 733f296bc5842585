import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkTrainConfig } from '../../src/train/config.js'
import { taskFactories } from '../../src/train/index.js'

const EXAMPLES = new URL('../../../examples/configs/', import.meta.url)

const failing = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) })

describe('checkTrainConfig', () => {
  it('fills in everything for an empty config, and reads its own output back unchanged', () => {
    const config = checkTrainConfig({})
    expect(config).toMatchObject({ seed: 0, backend: 'native', runDir: 'runs/sumDigits-seed0' })
    expect(checkTrainConfig(JSON.parse(JSON.stringify(config)))).toEqual(config)
  })

  it.each(readdirSync(EXAMPLES))('accepts %s of the examples, whose task there is', (name) => {
    const config = checkTrainConfig(JSON.parse(readFileSync(new URL(name, EXAMPLES), 'utf8')))
    expect(Object.keys(taskFactories)).toContain(config.task.name)
    expect(checkTrainConfig(JSON.parse(JSON.stringify(config)))).toEqual(config)
  })

  it('passes the options of the core through untouched', () => {
    const config = checkTrainConfig({ model: { hidden_size: 128 }, grpo: { loss: { clipEpsilon: 0.1 } } })
    expect(config.model).toEqual({ hidden_size: 128, dtype: 'f32' })
    expect(checkTrainConfig({ model: { path: 'm', dtype: 'bf16' } }).model).toEqual({
      path: 'm',
      dtype: 'bf16',
    })
    expect(() => checkTrainConfig({ model: { dtype: 'f16' } })).toThrow(/config.model.dtype/)
    expect(config.grpo.loss).toEqual({ clipEpsilon: 0.1 })
  })

  it.each([
    [{ sede: 1 }, "config.sede must be a known key: did you mean 'seed'"],
    [{ grpo: { groupsize: 4 } }, "config.grpo.groupsize must be a known key: did you mean 'groupSize'"],
    [{ task: { nubmers: [2, 2] } }, "config.task.nubmers must be a known key: did you mean 'numbers'"],
    [{ sft: { lr: 1 } }, 'config.sft.lr must be a known key'],
    [{ eval: { numProblem: 1 } }, "did you mean 'numProblems'"],
  ])('names the nearest key for %j', (json, message) => {
    expect(() => checkTrainConfig(json)).toThrow(failing('UNKNOWN_NAME', new RegExp(message)))
  })

  it('refuses values of the wrong type or outside their range by their path', () => {
    const refuse = (json: unknown) => expect(() => checkTrainConfig(json))
    refuse([]).toThrow(failing('MALFORMED', /^config must be an object/))
    refuse({ seed: -1 }).toThrow(failing('OUT_OF_RANGE', /^config.seed must be >= 0: got -1/))
    refuse({ grpo: { topP: 0 } }).toThrow(failing('OUT_OF_RANGE', /^config.grpo.topP must be > 0: got 0/))
    refuse({ grpo: { stopStrings: [3] } }).toThrow(failing('MALFORMED', /^stopStrings must be strings/))
    refuse({ task: { min: 50, max: 20 } }).toThrow(
      failing('OUT_OF_RANGE', /^config.task.max must be >= 50: got 20/),
    )
    refuse({ backend: 'cuda' }).toThrow(failing('UNKNOWN_NAME', /native, wasm: got "cuda"/))
  })
})
