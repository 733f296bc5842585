/**
 * Environments as conversations: an environment provides the first messages and answers each message of the
 * policy.
 */

import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'

/** Beginning of a conversation. */
export interface MessageEnvInitOutput {
  /** First prompt, at least one message; may hold assistant messages as worked examples. */
  readonly initPromptMessages: readonly Message[]
  /**
   * Tools that the policy may call, in the form that the renderer's family expects.
   * @default none
   */
  readonly tools?: readonly unknown[]
}

/** Answer of an environment. */
export interface MessageEnvStepOutput {
  /**
   * Next messages; none from the assistant.
   * @default none
   */
  readonly envMessages?: readonly Message[]
  /**
   * True if the conversation is over.
   * @default false
   */
  readonly done?: boolean
  /**
   * Signals of this step by name, for reward functions.
   * @default none
   */
  readonly envRewards?: Readonly<Record<string, number>>
}

/** Context of a call, besides the message. */
export interface EnvContext {
  /** Fires when the step takes too long or the run is stopped. */
  readonly signal: AbortSignal
}

/**
 * One conversation of one rollout: `init` once, `step` for each message of the policy until it returns
 * `done`, `close` always. Never reused.
 *
 * @example
 * ```ts
 * import type { MessageEnv } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const echo: MessageEnv = {
 *   init: () => ({ initPromptMessages: [{ role: 'user', content: 'Say something.' }] }),
 *   step: (message) => ({ envMessages: [{ role: 'user', content: message.content }], done: message.content === 'bye' }),
 *   close: () => {},
 * }
 * const context = { signal: new AbortController().signal }
 * assert.equal((await echo.step({ role: 'assistant', content: 'bye' }, context)).done, true)
 * ```
 */
export interface MessageEnv {
  /** Returns the beginning of the conversation. */
  init(context: EnvContext): MessageEnvInitOutput | Promise<MessageEnvInitOutput>
  /** Answers the parsed message of the policy. Runs tools. */
  step(completionMessage: Message, context: EnvContext): MessageEnvStepOutput | Promise<MessageEnvStepOutput>
  /** Frees all resources. Called once or more, also after a failure; errors are ignored. */
  close(): void | Promise<void>
}

/**
 * Checks the result of an `init` and fills in the defaults.
 * @throws {FulmarError} `EMPTY` if there is no message; `MALFORMED` if a message has no role; `UNKNOWN_NAME` for an
 * unknown key.
 */
export function checkInitOutput(output: MessageEnvInitOutput): Required<MessageEnvInitOutput> {
  checkKnownKeys('init output', output, ['initPromptMessages', 'tools'])
  const { initPromptMessages, tools = [] } = output
  checkMessages('initPromptMessages', initPromptMessages)
  if (initPromptMessages.length === 0) {
    throw new FulmarError('EMPTY', 'initPromptMessages must hold a message: they are empty')
  }
  return { initPromptMessages: [...initPromptMessages], tools: [...tools] }
}

/**
 * Checks the result of a `step` and fills in the defaults.
 * @throws {FulmarError} `MALFORMED` if a message has no role or is an assistant's; `NON_FINITE` if a reward is NaN or
 * infinite; `UNKNOWN_NAME` for an unknown key.
 */
export function checkStepOutput(output: MessageEnvStepOutput): Required<MessageEnvStepOutput> {
  checkKnownKeys('step output', output, ['envMessages', 'done', 'envRewards'])
  const { envMessages = [], done = false, envRewards = {} } = output
  checkMessages('envMessages', envMessages)
  if (envMessages.some((message) => message.role === 'assistant')) {
    throw new FulmarError(
      'MALFORMED',
      'envMessages must not hold messages of the policy: got a message with role "assistant"',
    )
  }
  for (const [name, reward] of Object.entries(envRewards)) {
    if (!Number.isFinite(reward)) {
      throw new FulmarError('NON_FINITE', `envRewards.${name} must be finite: got ${describeValue(reward)}`)
    }
  }
  return { envMessages: [...envMessages], done, envRewards: { ...envRewards } }
}

function checkMessages(name: string, messages: unknown): void {
  if (!Array.isArray(messages)) {
    throw new FulmarError('MALFORMED', `${name} must be a list of messages: got ${describeValue(messages)}`)
  }
  messages.forEach((message: unknown, index) => {
    const hasRole = typeof message === 'object' && message !== null && 'role' in message
    if (!hasRole || typeof message.role !== 'string') {
      throw new FulmarError('MALFORMED', `${name}[${index}] must have a role: got ${describeValue(message)}`)
    }
  })
}
