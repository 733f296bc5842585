/** The native side of buffers: made of their parts, or attached to. */

import { calledBack } from '../core/index.js'
import { type RawReplayBuffer, raw } from '../native/index.js'
import { PromptGroupSampler } from './prompt-group-sampler.js'
import type { BufferKind, ReplayBufferOptions } from './replay-buffer-options.js'
import { unitOptions } from './sample-unit.js'
import { type Sampler, samplerAnswers, samplerFlags, samplerOptions } from './sampler.js'
import { type Storage, withRawStorage } from './storage.js'
import { RoundRobinWriter, writerAnswers, writerOptions } from './writer.js'

// What a constructor takes instead of making a buffer.
const attached = new WeakMap<ReplayBufferOptions, RawReplayBuffer>()

/** Gives a buffer that is constructed with `options` this native side. */
export function useRawBuffer(options: ReplayBufferOptions, native: RawReplayBuffer): void {
  attached.set(options, native)
}

/** The native side of a buffer, and facts of its parts. */
interface RawBufferParts {
  /** Makes the native side. */
  readonly make: () => RawReplayBuffer
  /** True if the writer is written in JavaScript. */
  readonly hasOwnWriter: boolean
  /** True if the buffer may refuse an item for the values in it, other than its priority. */
  readonly refusesValues: boolean
}

/** Returns the native side of a buffer of these parts. */
export function rawBufferOf(
  options: ReplayBufferOptions,
  { storage, sampler }: { readonly storage: Storage; readonly sampler: Sampler },
  kind: BufferKind,
): RawBufferParts {
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
  const refusesValues =
    ownSampler !== undefined ||
    sampler instanceof PromptGroupSampler ||
    !(writer === undefined || writer instanceof RoundRobinWriter)
  return { make, hasOwnWriter: ownWriter !== undefined, refusesValues }
}
