/** Values in lists nested as the messages of a history are. */

import type { Message } from '../../chat/message.js'

/** Values in lists nested as the messages are: one value for one message. */
export type Nested<T> = T | readonly Nested<T>[]

/** Replaces each message by the value that `of` returns for it. */
export function mapped<T>(node: Nested<Message>, of: (message: Message) => T): Nested<T> {
  return Array.isArray(node) ? node.map((part) => mapped(part, of)) : of(node as Message)
}
