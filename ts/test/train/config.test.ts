import { readdirSync, readFileSync } from 'node:fs'
import { Validator } from '@cfworker/json-schema'
import { describe, expect, it } from 'vitest'
import { checkTrainConfig, trainConfigSchema } from '../../src/train/config.js'
import { taskFactories } from '../../src/train/index.js'

const EXAMPLES = new URL('../../../examples/configs/', import.meta.url)

const failing = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) })

describe('trainConfigSchema', () => {
  const schema = JSON.parse(JSON.stringify(trainConfigSchema()))
  const validate = (json: unknown) => new Validator(schema, '2020-12').validate(json).valid

  it.each(readdirSync(EXAMPLES))('accepts %s of the examples', (name) => {
    expect(validate(JSON.parse(readFileSync(new URL(name, EXAMPLES), 'utf8')))).toBe(true)
  })

  it('accepts what checkTrainConfig gives', () => {
    expect(validate(checkTrainConfig({}))).toBe(true)
    expect(validate(checkTrainConfig({ task: { name: 'gsm8k', rows: 'x' }, model: { path: 'm' } }))).toBe(
      true,
    )
  })

  it.each([
    { sede: 1 },
    { seed: -1 },
    { seed: 0.5 },
    { grpo: { groupsize: 4 } },
    { grpo: { topP: 0 } },
    { grpo: { stopStrings: [3] } },
    { grpo: { recipe: 'ppo' } },
    { sft: { lr: 1 } },
    { dpo: { pairs: '' } },
    { task: { name: 'sumDigit' } },
    { task: { nubmers: [2, 2] } },
    { task: { numbers: [1, 2, 3] } },
    { model: { dtype: 'f16' } },
    { model: { matmulPrecision: 'tf32' } },
    { eval: { numProblems: 0 } },
    [],
  ])('refuses %j, as checkTrainConfig does', (json) => {
    expect(validate(json)).toBe(false)
    expect(() => checkTrainConfig(json, { tasks: {} })).toThrow()
  })

  it('names the defaults that checkTrainConfig fills in', () => {
    const config = JSON.parse(JSON.stringify(checkTrainConfig({})))
    const compare = (
      properties: Record<string, { default?: unknown; properties?: object }>,
      values: object,
    ) => {
      for (const [key, property] of Object.entries(properties)) {
        const value: unknown = Reflect.get(values, key)
        if (property.properties && key !== 'model') compare(property.properties as never, value as object)
        else if (property.default !== undefined && key !== 'task' && key !== 'model')
          expect(property.default, key).toEqual(value)
      }
    }
    compare(schema.properties, config)
    expect(schema.properties.grpo.properties.learningRate.default).toBe(3e-4)
  })
})

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

  it('takes the defaults of the recipes for a pretrained model, which a tiny one could not learn by', () => {
    const { sft, dpo, grpo, eval: held } = checkTrainConfig({ model: { path: 'm' } })
    expect(held.numProblems).toBe(50)
    expect([sft.steps, sft.learningRate, dpo.learningRate]).toEqual([0, 2e-5, 1e-6])
    expect(grpo).toMatchObject({ steps: 100, promptsPerStep: 8, maxTokens: 256, learningRate: 1e-6 })
    const adapter = checkTrainConfig({ model: { path: 'm', lora: { r: 2 } }, grpo: { steps: 3 } })
    expect([adapter.sft.learningRate, adapter.dpo.learningRate]).toEqual([2e-4, 1e-5])
    expect(adapter.grpo).toMatchObject({ steps: 3, learningRate: 1e-5 })
    const expert = { recipe: 'expertIteration', maxTokens: undefined, learningRate: 0.1 }
    expect(checkTrainConfig({ model: { path: 'm' }, grpo: expert }).grpo).toMatchObject({
      ...{ maxTokens: 256, learningRate: 0.1 },
    })
    expect(
      checkTrainConfig({ model: { path: 'm' }, grpo: { recipe: 'expertIteration' } }).grpo.learningRate,
    ).toBe(2e-5)
    expect(() => checkTrainConfig({ model: { path: 'm' }, sft: [] })).toThrow(
      failing('MALFORMED', /config.sft/),
    )
    expect(checkTrainConfig(JSON.parse(JSON.stringify(adapter)))).toEqual(adapter)
  })

  it('passes the options of the core through untouched', () => {
    const config = checkTrainConfig({ model: { hidden_size: 128 }, grpo: { loss: { clipEpsilon: 0.1 } } })
    expect(config.model).toEqual({ hidden_size: 128, dtype: 'f32', matmulPrecision: 'f32', device: 'cpu' })
    const ofFile = { path: 'm', dtype: 'bf16', matmulPrecision: 'bf16', device: 'cuda:1' }
    expect(checkTrainConfig({ model: ofFile }).model).toEqual(ofFile)
    expect(() => checkTrainConfig({ model: { matmulPrecision: 'tf32' } })).toThrow(
      /config.model.matmulPrecision/,
    )
    expect(() => checkTrainConfig({ model: { dtype: 'f16' } })).toThrow(/config.model.dtype/)
    expect(() => checkTrainConfig({ model: { device: 'gpu' } })).toThrow(
      /config.model.device must be auto, cpu, cuda or cuda:N/,
    )
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

  it('refuses options of losses and optimisers before anything is trained', () => {
    const refuse = (json: unknown) => expect(() => checkTrainConfig(json))
    refuse({ grpo: { loss: { clipepsilon: 1 } } }).toThrow(
      failing('UNKNOWN_NAME', /^config.grpo.loss: .*clipEpsilon/),
    )
    refuse({ grpo: { loss: { clipEpsilon: -1 } } }).toThrow(failing('OUT_OF_RANGE', /^config.grpo.loss: /))
    refuse({ dpo: { loss: { betta: 1 } } }).toThrow(failing('UNKNOWN_NAME', /^config.dpo.loss: .*beta/))
    const imitates = { recipe: 'expertIteration' }
    expect(() => checkTrainConfig({ grpo: { ...imitates, loss: { dft: true } } })).not.toThrow()
    refuse({ grpo: { ...imitates, loss: { clipEpsilon: 0.2 } } }).toThrow(failing('UNKNOWN_NAME', /SFTLoss/))
    for (const phase of ['sft', 'dpo', 'grpo'])
      refuse({ [phase]: { optimizer: { weight_decay: 0.1 } } }).toThrow(
        failing('UNKNOWN_NAME', /optimizer.weight_decay must be a known key: did you mean 'weightDecay'/),
      )
  })

  it('refuses a misspelled task, and with `tasks` every other that it is not given', () => {
    const misspelled = { task: { name: 'sumDigit' } }
    const message = /^config.task.name must be a known task: got "sumDigit"; did you mean 'sumDigits'\?$/
    expect(() => checkTrainConfig(misspelled)).toThrow(failing('UNKNOWN_NAME', message))
    const own = { task: { name: 'juggling', balls: 5 } }
    expect(checkTrainConfig(own).task).toEqual(own.task) // `runTraining` may be given it
    expect(() => checkTrainConfig(own, { tasks: {} })).toThrow(
      failing('UNKNOWN_NAME', /known are sumDigits, /),
    )
    const tasks = { juggling: () => taskFactories.sumDigits({}, { seed: 0 }) }
    expect(checkTrainConfig(own, { tasks }).task).toEqual(own.task)
  })

  it('refuses values of the wrong type or outside their range by their path', () => {
    const refuse = (json: unknown) => expect(() => checkTrainConfig(json))
    refuse([]).toThrow(failing('MALFORMED', /^config must be an object/))
    refuse({ seed: -1 }).toThrow(failing('OUT_OF_RANGE', /^config.seed must be >= 0: got -1/))
    refuse({ grpo: { topP: 0 } }).toThrow(failing('OUT_OF_RANGE', /^config.grpo.topP must be > 0: got 0/))
    refuse({ grpo: { stopStrings: [3] } }).toThrow(
      failing('MALFORMED', /^config.grpo.stopStrings\[0\] must be a text: got 3/),
    )
    refuse({ task: { min: 50, max: 20 } }).toThrow(
      failing('OUT_OF_RANGE', /^config.task.max must be >= 50: got 20/),
    )
    refuse({ backend: 'cuda' }).toThrow(failing('UNKNOWN_NAME', /native, wasm: got "cuda"/))
  })
})
