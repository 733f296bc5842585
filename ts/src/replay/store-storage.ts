/** Rows on a server that several processes share. */

import { call, checkKnownKeys } from '../core/index.js'
import { indices } from '../tensor/tensor.js'
import { replayDisk } from './checkpointer.js'
import { Storage } from './storage.js'

/** Options of {@link StoreStorage}. */
export interface StoreStorageOptions {
  /** The server's name or address. @default '127.0.0.1' */
  readonly host?: string
  /** Its port. @default 6379 */
  readonly port?: number
  /** The number of its database. @default 0 */
  readonly db?: number
  /** The key of the storage; those of its rows and writes begin with it and a colon. @default 'fulmar' */
  readonly name?: string
  /** The user, where it is not the default one. @default none */
  readonly username?: string
  /** The password, if the server wants one. Travels as it is: there is no TLS. @default none */
  readonly password?: string
  /** Timeout of a connection in milliseconds. @default 5,000 */
  readonly connectTimeoutMs?: number
  /** Timeout of an operation from its first to its last byte, in milliseconds. @default 10,000 */
  readonly timeoutMs?: number
  /** Most bytes of replies to one operation, so also of a batch. @default 1 GiB */
  readonly replyBytesMax?: number
}

const OPTIONS = [
  'host',
  'port',
  'db',
  'name',
  'username',
  'password',
  'connectTimeoutMs',
  'timeoutMs',
  'replyBytesMax',
] as const

/**
 * Rows on a server that speaks Redis' protocol (Redis, Valkey, KeyDB, Dragonfly), for all processes that name it alike: each sees
 * the rows of the others, and their buffers write to one ring. A write is one transaction. Every operation blocks this thread until
 * the server replies, within the timeouts. Needs the addon.
 *
 * After an error of the connection the next operation opens a new one. A write that was already sent may have taken place; the next
 * read shows it. A server that restarts without its data is an empty storage.
 *
 * @throws {FulmarError} `IO` if there is no server or it does not reply in time; `FORBIDDEN` if the password is wrong;
 *   `INCOMPATIBLE` if the name is used for something else, or for rows of another capacity; `LIMIT_EXCEEDED` if a reply or a row is
 *   longer than `replyBytesMax`; `UNAVAILABLE` in WebAssembly; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts no-run
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ReplayBuffer, StoreStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new StoreStorage(10_000, { name: 'experience' }) })
 * buffer.extend(TensorDict.from({ reward: Tensor.from([1, 2]) }, { batchSize: [2] }))
 * assert.ok(buffer.length >= 2) // other processes may have written too
 * ```
 */
export class StoreStorage extends Storage {
  constructor(maxSize: number, options: StoreStorageOptions = {}) {
    checkKnownKeys('options', options, OPTIONS)
    super(() => call(() => replayDisk().storeStorage(indices([maxSize]), JSON.stringify(options))))
  }
}
