/** The native side of buffers: made of their parts, or attached to. */

import { calledBack } from '../core/index.js'
import { type RawReplayBuffer, raw } from '../native/index.js'
import type { BufferKind, ReplayBufferOptions } from './replay-buffer-options.js'
import { unitOptions } from './sample-unit.js'
import { type Sampler, samplerAnswers, samplerFlags, samplerOptions } from './sampler.js'
import { type Storage, withRawStorage } from './storage.js'
import { writerAnswers, writerOptions } from './writer.js'

// What a constructor takes instead of making a buffer.
const attached = new WeakMap<ReplayBufferOptions, RawReplayBuffer>()

/** Gives a buffer that is constructed with `options` this native side. */
export function useRawBuffer(options: ReplayBufferOptions, native: RawReplayBuffer): void {
  attached.set(options, native)
}

/** Returns a function that makes the native side of a buffer of these parts, and whether its writer is of JavaScript. */
export function rawBufferOf(
  options: ReplayBufferOptions,
  { storage, sampler }: { readonly storage: Storage; readonly sampler: Sampler },
  kind: BufferKind,
): { readonly make: () => RawReplayBuffer; readonly hasOwnWriter: boolean } {
  const { writer, sampleUnit, batchSize, prefetch, seed, allowOverwrite } = options
  const core = {
    ...kind,
    ...samplerFlags(sampler),
    batchSize,
    prefetch,
    seed,
    allowOverwrite,
    sampler: samplerOptions(sampler),
    writer: writer && writerOptions(writer),
    unit: sampleUnit && unitOptions(sampleUnit),
  }
  const mailbox = raw.Mailbox.empty()
  const [ownSampler, ownWriter] = [samplerAnswers(sampler, mailbox), writerAnswers(writer, mailbox)]
  const own = { ...ownSampler, ...ownWriter }
  const answer = calledBack((name: string, numbers: Float64Array) => own[name]?.([...numbers]))
  const make = () =>
    attached.get(options) ??
    withRawStorage(storage, (one) =>
      ownSampler || ownWriter
        ? raw.bufferOfParts(one, JSON.stringify(core), mailbox, !!ownSampler, !!ownWriter, answer)
        : raw.ReplayBuffer.create(one, JSON.stringify(core)),
    )
  return { make, hasOwnWriter: ownWriter !== undefined }
}
