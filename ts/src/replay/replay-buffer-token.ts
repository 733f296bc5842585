/** Tokens of buffers, by which the threads of a process share them. */

import { call, checkKnownKeys, FulmarError, type Handle } from '../core/index.js'
import { type RawAddon, type RawReplayBuffer, raw } from '../native/index.js'
import type { BufferTransform } from './buffer-transform.js'
import { useRawBuffer } from './raw-buffer.js'
import { ReplayBuffer } from './replay-buffer.js'
import { isSourceSampler, type Sampler, samplerOptions } from './sampler.js'
import { samplerAround } from './sampler-around.js'
import { isSourceStorage, type Storage, storageAround } from './storage.js'

/** Names a buffer to the threads of its process: post it to a worker. Plain data, and no address. */
export interface ReplayBufferToken {
  /** The class to attach with. */
  readonly kind: string
  /** Unguessable id of the buffer in the core. */
  readonly id: string
  /** Kind of its sampler. */
  readonly sampler: { readonly kind: string }
  /** Rows of a batch where none are asked for. @default none */
  readonly batchSize?: number
}

/** Options of {@link ReplayBuffer.attach}. */
export interface AttachOptions {
  /** Transforms of items and batches of this handle. @default none */
  readonly transforms?: readonly BufferTransform[]
}

/** Parts of a buffer that its token depends on. */
interface SharedParts {
  readonly storage: Storage
  readonly sampler: Sampler
  readonly hasOwnWriter: boolean
  readonly batchSize: number | undefined
}

/** Lets the other threads of the process use a buffer of the class, and returns its token. */
export function tokenOf(
  buffer: Handle<RawReplayBuffer>,
  { kind, name }: { readonly kind: string | undefined; readonly name: string },
  { storage, sampler, hasOwnWriter, batchSize }: SharedParts,
): ReplayBufferToken {
  const { shareReplayBuffer } = threads()
  const own = isSourceStorage(storage)
    ? 'its storage'
    : isSourceSampler(sampler)
      ? 'its sampler'
      : hasOwnWriter && 'its writer'
  if (own || !kind) {
    const got = own || `${name}, which keeps something`
    throw new FulmarError('INCOMPATIBLE', `a shared buffer must keep nothing in JavaScript: got ${got}`)
  }
  const id = buffer.call((native) => shareReplayBuffer(native, crypto.randomUUID()))
  const rows = batchSize !== undefined && { batchSize }
  return { kind, id, sampler: samplerOptions(sampler) as { kind: string }, ...rows }
}

/** A handle of the class to the buffer of a token. */
export function attachBuffer<B extends ReplayBuffer>(
  buffers: { readonly prototype: B; readonly kind: string | undefined },
  token: ReplayBufferToken,
  options: AttachOptions,
): B {
  checkKnownKeys('options', options, ['transforms'])
  checkKnownKeys('token', token, ['kind', 'id', 'sampler', 'batchSize'])
  const { attachReplayBuffer } = threads()
  const { kind, id, sampler, ...rest } = token
  if (kind !== buffers.kind) {
    throw new FulmarError('INCOMPATIBLE', `token must be of a ${buffers.kind}: got that of a ${kind}`)
  }
  const native = call(() => attachReplayBuffer(String(id)))
  const storage = storageAround(() => native.storage())
  const given = { ...rest, ...options, storage, sampler: samplerAround(sampler) }
  useRawBuffer(given, native)
  // Its own constructor would make a buffer; it adds nothing else.
  return Reflect.construct(ReplayBuffer, [given], Object(buffers)) as B
}

/** Returns the functions that only the addon has. @throws {FulmarError} `UNAVAILABLE` in WebAssembly. */
function threads(): Pick<RawAddon, 'shareReplayBuffer' | 'attachReplayBuffer'> {
  const { shareReplayBuffer, attachReplayBuffer } = raw
  if (shareReplayBuffer && attachReplayBuffer) return { shareReplayBuffer, attachReplayBuffer }
  throw new FulmarError('UNAVAILABLE', 'buffers must be shared between threads natively: got WebAssembly')
}
