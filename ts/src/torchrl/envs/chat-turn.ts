/** One turn of one conversation outside dictionaries, and the transforms that can take part in it. */

import type { Message } from '../../chat/index.js'
import type { EnvContext } from '../../env/index.js'

/**
 * One turn of one conversation. Transforms change it in their order, as they change the dictionaries of a
 * batch.
 */
export interface ChatTurn {
  /** The conversation with the policy's message and the answers so far; a transform appends its answers. */
  readonly messages: Message[]
  /** The policy's message of this turn. */
  readonly response: Message
  /** Rewards by name, rounded to `f32`; NaN for a response that could not be scored. */
  readonly rewards: Map<string, number>
  /** True if the conversation is over. */
  done: boolean
  /** Signal of the step. */
  readonly context: EnvContext
}

/** A transform of each turn of one conversation. */
export interface ChatTurnTransform {
  (turn: ChatTurn): void | Promise<void>
  /** Ends what the transform keeps for the conversation; called when the conversation is closed. */
  close?(): void
}

/** The text of the policy's message, without the prompt before it. */
export function responseText({ response }: ChatTurn): string {
  const { role, content } = response
  return role === 'assistant' && typeof content === 'string' ? content : ''
}

/**
 * True if the class that defines `chatTurns` defines `methods`, too, or inherits them: a subclass that
 * overrides one of them alone must be called through it.
 */
export function speaksFor(object: object, methods: readonly string[]): boolean {
  const own = depthOf(object, 'chatTurns')
  return methods.every((method) => own <= depthOf(object, method))
}

/** Number of prototypes between an object and the one that defines `name`; infinite if none does. */
function depthOf(object: object, name: string): number {
  let depth = 0
  for (let at: object | null = object; at !== null; at = Object.getPrototypeOf(at)) {
    if (Object.hasOwn(at, name)) return depth
    depth += 1
  }
  return Number.POSITIVE_INFINITY
}
