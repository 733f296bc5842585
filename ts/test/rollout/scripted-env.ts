/** An environment that says what a test tells it to, and remembers what it was asked. */

import type { Message } from '../../src/chat/index.js'
import type { MessageEnv, MessageEnvStepOutput } from '../../src/env/index.js'

type Step = (message: Message, turn: number) => MessageEnvStepOutput | Promise<MessageEnvStepOutput>

export interface ScriptedEnv extends MessageEnv {
  /** The messages that it was stepped with. */
  readonly heard: Message[]
  /** Number of calls of `close`. */
  numClosed: number
}

/** Begins with the user's `[10, 11]` and answers with `step`, or by default with the tool's `[30]` for ever. */
export function scriptedEnv(
  step: Step = () => ({ envMessages: [{ role: 'tool', content: '30' }] }),
): ScriptedEnv {
  const env: ScriptedEnv = {
    heard: [],
    numClosed: 0,
    init: () => ({ initPromptMessages: [{ role: 'user', content: '10 11' }] }),
    step: (message) => step(message, env.heard.push(message) - 1),
    close: () => {
      env.numClosed += 1
    },
  }
  return env
}
