/** Loads or creates the model of a configuration. */

import type { RendererConfig } from '../chat/index.js'
import { FulmarError } from '../core/index.js'
import { Decoder, type DecoderConfig } from '../model/index.js'
import { CharTokenizer } from '../tokenizer/index.js'
import type { TrainConfig } from './config.js'
import { charParts, Model, readParts, tinyShape } from './model.js'

/**
 * Loads or creates the model of a configuration; if `held` is given, it replaces the weights.
 * @throws {FulmarError} As `loadModel` and `createModel`; `INCOMPATIBLE` if `held` has another architecture, dtype or precision than the configuration
 * asks for; as `Decoder.addLora`.
 */
export async function modelOfConfig(config: TrainConfig, held: Decoder | undefined): Promise<Model> {
  const { path, lora } = config.model
  for (const key of held ? (['dtype', 'matmulPrecision'] as const) : []) {
    if (held?.[key] === config.model[key]) continue
    const detail = `config.model.${key} must be that of the checkpoint (${held?.[key]}): got ${config.model[key]}`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  held?.moveTo(config.model.device)
  const model = path === undefined ? fromNothing(config, held) : await fromPath(path, config, held)
  if (lora && !held) await model.decoder.addLora(lora, { seed: config.seed })
  return model
}

function fromNothing({ model, renderer, seed }: TrainConfig, held: Decoder | undefined): Model {
  const tokenizer = new CharTokenizer()
  const { dtype, matmulPrecision, device, lora: _, ...given } = model
  const shape = tinyShape(tokenizer, given)
  if (held) checkShape(held.config, shape)
  const decoder = held ?? Decoder.fromSeed(shape, { seed, dtype, matmulPrecision, device })
  return new Model(charParts(decoder, tokenizer, { name: 'chatml', ...renderer } as RendererConfig))
}

async function fromPath(
  path: string,
  { model: { dtype, matmulPrecision, device }, renderer: knobs }: TrainConfig,
  held: Decoder | undefined,
): Promise<Model> {
  // Options without a name belong to a template; without options, the model's folder decides.
  const isGiven = Object.keys(knobs).length > 0
  const renderer = { name: 'opaque', ...knobs } as RendererConfig
  return new Model(
    await readParts(path, { dtype, matmulPrecision, device, ...(isGiven && { renderer }) }, held),
  )
}

/** Rejects a checkpoint whose architecture differs from the configuration. */
function checkShape(found: DecoderConfig, asked: DecoderConfig): void {
  const key = Object.keys(asked).find((name) => found[name] !== asked[name])
  if (key === undefined) return
  const detail = `config.model.${key} must be that of the checkpoint (${found[key]}): got ${asked[key]}`
  throw new FulmarError('INCOMPATIBLE', detail)
}
