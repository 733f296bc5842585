/** Conversations in which the policy may call tools. */

import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { MessageEnv } from '../env/index.js'
import { checkParser, type ToolCallParser, toolCallsOf } from './tool-call.js'
import { toolMessage } from './tool-message.js'
import { ToolRunner } from './tool-runner.js'

/** Options of {@link withTools}. */
export interface WithToolsOptions {
  /** Runs the calls: one runner for all conversations of a task, so that they share its limits. */
  readonly runner: ToolRunner
  /** Begins the conversation and answers messages without calls. Closed with the conversation. */
  readonly env: MessageEnv
  /** Parser of calls in texts. @default only calls parsed by the renderer count */
  readonly parser?: ToolCallParser
  /**
   * If true, passes the tools to the chat template; if false, `env` must describe them to the policy.
   * @default true
   */
  readonly inTemplate?: boolean
}

/**
 * Adds tools to a conversation: describes them to the policy, runs the calls of a message concurrently and
 * answers each with a message, and passes all other messages to `env`. The rollout limits the number of
 * turns. Signals of such a step are `toolCalls` and `toolErrors`.
 *
 * @throws {FulmarError} `MALFORMED` for a parser or a runner of another form; its `step`: `ABORTED` at the
 * step's deadline.
 *
 * @example
 * ```ts
 * import { sumDigits, ToolRunner, withTools } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const add = { name: 'add', run: ({ a, b }: { a: number; b: number }) => a + b }
 * const runner = new ToolRunner({ tools: [add] })
 * const env = withTools({ env: sumDigits({ prompt: 'short' }).makeEnv({ numbers: [2, 3], target: 5 }), runner })
 * const context = { signal: new AbortController().signal }
 * assert.equal((await env.init(context)).tools?.length, 1)
 * const call = { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a": 2, "b": 3}' } }
 * const { envMessages, envRewards } = await env.step({ role: 'assistant', content: null, tool_calls: [call] }, context)
 * assert.deepEqual(envMessages, [{ role: 'tool', content: 'Tool add executed successfully:\n5', name: 'add', tool_call_id: 'c1' }])
 * assert.deepEqual(envRewards, { toolCalls: 1, toolErrors: 0 })
 * await env.close()
 * ```
 */
export function withTools(options: WithToolsOptions): MessageEnv {
  checkKnownKeys('options', options, ['env', 'parser', 'runner', 'inTemplate'])
  const { env, parser, runner, inTemplate = true } = options
  if (parser !== undefined) checkParser(parser)
  if (!(runner instanceof ToolRunner)) {
    throw new FulmarError('MALFORMED', `runner must be a ToolRunner: got ${describeValue(runner)}`)
  }
  let said: Message[] = []
  const conversation = new AbortController()
  return {
    async init(context) {
      const { tools = [], ...first } = await env.init(context)
      said = [...first.initPromptMessages]
      return { ...first, tools: [...tools, ...(inTemplate ? runner.tools.specs : [])] }
    },
    async step(message, context) {
      said.push(message)
      const calls = toolCallsOf(message, parser)
      if (calls.length === 0) {
        const output = await env.step(message, context)
        said.push(...(output.envMessages ?? []))
        return output
      }
      const results = await runner.run(calls, {
        messages: said,
        signal: context.signal,
        conversation: conversation.signal,
      })
      const envMessages = results.map((result) => toolMessage(result, 'tool'))
      said.push(...envMessages)
      const toolErrors = results.filter(({ ok }) => !ok).length
      return { envMessages, envRewards: { toolCalls: calls.length, toolErrors } }
    },
    close: () => {
      conversation.abort()
      return env.close()
    },
  }
}
