/** Worker thread of a policy: a decoder that answers requests by message. */

import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import { FulmarError, type PlacedDevice } from '../core/index.js'
import {
  Decoder,
  type DecoderConfig,
  type LoraConfig,
  type MatmulPrecision,
  type WeightDtype,
} from '../model/index.js'
import { DecoderPolicy, type DecoderPolicyOptions, type SamplerOptions } from './decoder.js'
import { decodeStreamsOf, servePolicy, type WorkerModel } from './serve-policy.js'

/**
 * Source of a thread's model: a Hugging Face folder, or a shape with a safetensors file and an adapter if there is
 * one. The tokenizer, as JSON, and the options of sampling come with the first one.
 */
export type DecoderSource = { readonly tokenizer?: string; readonly sampler?: SamplerOptions } & (
  | { readonly folder: string; readonly version: number }
  | {
      readonly config: DecoderConfig
      readonly weights: Uint8Array
      readonly dtype: WeightDtype
      readonly device: PlacedDevice
      readonly matmulPrecision: MatmulPrecision
      readonly version: number
      readonly adapter?: { readonly config: LoraConfig; readonly weights: Uint8Array }
    }
)

/** Loads the weights of a source. */
async function decoderOf(source: DecoderSource): Promise<Decoder> {
  if ('folder' in source) return await Decoder.fromFolder(source.folder, { version: source.version })
  const { config, weights, version, dtype, device, matmulPrecision } = source
  return Decoder.fromSafetensors(config, weights, { version, dtype, device, matmulPrecision })
}

/** Loads the model of a source. */
async function openDecoder(source: DecoderSource, options: DecoderPolicyOptions): Promise<WorkerModel> {
  const decoder = await decoderOf(source)
  if ('adapter' in source) await decoder.restoreLora(source.adapter.config, source.adapter.weights)
  return { policy: new DecoderPolicy(decoder, options), close: () => decoder[Symbol.dispose]() }
}

if (!isMainThread && parentPort !== null && workerData?.kind === 'fulmar-decoder') {
  let options: DecoderPolicyOptions = {}
  servePolicy(parentPort, (given) => {
    const source = given as DecoderSource
    if (source.sampler !== undefined) options = source.sampler
    if (source.tokenizer !== undefined)
      options = { ...options, decodeStream: decodeStreamsOf(source.tokenizer) }
    return openDecoder(source, options)
  })
} else if (isMainThread) {
  throw new FulmarError('INCOMPATIBLE', 'policy-worker must be the file of a worker thread: got the main one')
}
