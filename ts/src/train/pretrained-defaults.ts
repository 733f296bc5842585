/** The defaults of a configuration whose model was trained before: those of the recipes. */

import { COMPARISON_RATES, type DefaultRates, EXAMPLE_RATES } from './default-rates.js'

type Json = Readonly<Record<string, unknown>>

/**
 * @internal Returns the JSON of a configuration with the defaults of a pretrained model, if it has `model.path`. A new model
 * needs a warm start and takes larger rates; a pretrained one would forget what it learned, and its answers are longer. Other JSON is returned unchanged.
 */
export function withPretrainedDefaults(json: unknown): unknown {
  if (!isRecord(json) || !isRecord(json.model) || json.model.path === undefined) return json
  const rate = (rates: DefaultRates) => (isRecord(json.model) && json.model.lora ? rates.adapter : rates.all)
  const imitates = isRecord(json.grpo) && json.grpo.recipe === 'expertIteration'
  const defaults: Json = {
    sft: { steps: 0, learningRate: rate(EXAMPLE_RATES) },
    dpo: { learningRate: rate(COMPARISON_RATES) },
    grpo: {
      ...{ steps: 100, promptsPerStep: 8, maxTokens: 256 },
      learningRate: rate(imitates ? EXAMPLE_RATES : COMPARISON_RATES),
    },
    eval: { numProblems: 50 },
  }
  const sections = Object.entries(defaults).map(([name, section]) => {
    const given = json[name] ?? {}
    return [name, isRecord(given) && isRecord(section) ? { ...section, ...withoutAbsent(given) } : given]
  })
  return { ...json, ...Object.fromEntries(sections) }
}

/** A key of a program with the value `undefined` means the default. */
const withoutAbsent = (section: Json): Json =>
  Object.fromEntries(Object.entries(section).filter(([, value]) => value !== undefined))

const isRecord = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
