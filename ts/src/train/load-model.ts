/** What a run trains, from its configuration: decoder, tokenizer, renderer. */

import { stat } from 'node:fs/promises'
import { createRenderer, type DisposableRenderer, type RendererConfig } from '../chat/index.js'
import { FulmarError, unreadable } from '../core/index.js'
import { Decoder, type DecoderConfig, type WeightDtype } from '../model/index.js'
import { nodeDisk } from '../telemetry/disk.js'
import { CharTokenizer, HfTokenizer } from '../tokenizer/index.js'
import { CHECKPOINT_WEIGHTS_BYTES_MAX } from './checkpoint-folder.js'
import type { TrainConfig } from './config.js'

/** The decoder that is trained where the configuration says nothing else: 0.95 M weights. */
export const TINY_DECODER = {
  model_type: 'qwen2',
  hidden_size: 128,
  intermediate_size: 352,
  num_hidden_layers: 5,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 1024,
} as const satisfies Partial<DecoderConfig>

/** A model with what speaks to it. Its parts are the caller's to dispose. */
export interface LoadedModel {
  readonly decoder: Decoder
  readonly tokenizer: CharTokenizer | HfTokenizer
  readonly renderer: DisposableRenderer
  /** Files of a tokenizer that the decoder does not keep itself, by name, for a folder of the weights. */
  readonly files: Readonly<Record<string, string>>
}

/**
 * The model of a configuration; `held`, where it is given, takes the place of its weights.
 * @throws {FulmarError} `IO`, `CORRUPT` or `INCOMPATIBLE` as `Decoder.fromFolder` and `fromGguf`; `INCOMPATIBLE` if `held` has
 * another architecture than the configuration asks for, or a model with an adapter is to get another one; as `Decoder.addLora`; what renderer and tokenizer say.
 */
export async function loadModel(config: TrainConfig, held: Decoder | undefined): Promise<LoadedModel> {
  const { path, dtype } = config.model
  if (held && held.dtype !== dtype) {
    const detail = `config.model.dtype must be that of the checkpoint (${held.dtype}): got ${dtype}`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  const loaded = path === undefined ? fromNothing(config, held) : await fromPath(path, config, held)
  if (config.model.lora && !held) await loaded.decoder.addLora(config.model.lora, { seed: config.seed })
  return loaded
}

function fromNothing({ model, renderer, seed }: TrainConfig, held: Decoder | undefined): LoadedModel {
  const tokenizer = new CharTokenizer()
  const { dtype, lora: _, ...given } = model
  const shape = { ...TINY_DECODER, ...given, vocab_size: tokenizer.vocabSize } as DecoderConfig
  if (held) checkShape(held.config, shape)
  return {
    decoder: held ?? Decoder.fromSeed(shape, { seed, dtype }),
    tokenizer,
    renderer: createRenderer(tokenizer, { name: 'chatml', ...renderer } as RendererConfig),
    files: { 'tokenizer.fulmar.json': `${JSON.stringify(tokenizer)}\n` },
  }
}

async function fromPath(
  path: string,
  { model: { dtype }, renderer }: TrainConfig,
  held: Decoder | undefined,
): Promise<LoadedModel> {
  const { decoder, tokenizer } = await readModel(path, dtype, held)
  return {
    decoder,
    tokenizer,
    // Knobs without a name are those of a template; without any, the template decides whose it is.
    renderer: createRenderer(tokenizer, {
      name: Object.keys(renderer).length === 0 ? 'auto' : 'opaque',
      ...renderer,
    } as RendererConfig),
    files: {},
  }
}

async function readModel(path: string, dtype: WeightDtype, held: Decoder | undefined) {
  const about = await stat(path).catch((cause: unknown) => {
    throw new FulmarError('IO', `config.model.path must be a folder or a file: got ${path}`, { cause })
  })
  if (about.isDirectory()) {
    const tokenizer = await HfTokenizer.fromFolder(path)
    return { tokenizer, decoder: held ?? (await Decoder.fromFolder(path, { dtype })) }
  }
  const bytes = await nodeDisk.read(path, CHECKPOINT_WEIGHTS_BYTES_MAX)
  if (bytes === undefined) throw unreadable(path)
  return {
    tokenizer: HfTokenizer.fromGguf(bytes),
    decoder: held ?? (await Decoder.fromGguf(bytes, { dtype })),
  }
}

/** Refuses a checkpoint of another architecture than the configuration asks for. */
function checkShape(found: DecoderConfig, asked: DecoderConfig): void {
  const key = Object.keys(asked).find((name) => found[name] !== asked[name])
  if (key === undefined) return
  const detail = `config.model.${key} must be that of the checkpoint (${found[key]}): got ${asked[key]}`
  throw new FulmarError('INCOMPATIBLE', detail)
}
