/** Transforms that answer calls of tools, whatever form the answers take. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import type { TensorDict } from '../../tensor/index.js'
import {
  type ToolCallParser,
  type ToolResult,
  ToolRunner,
  type ToolRunnerOptions,
  type ToolRunOptions,
  toolCallsOf,
} from '../../tools/index.js'
import { checkParser } from '../../tools/tool-call.js'
import { TOOL_LIMIT_KEYS } from '../../tools/tool-runner.js'
import { setEach } from '../data/dict-text.js'
import { chatsAt } from './chats-at.js'
import type { EnvSpecs } from './env.js'
import { flagsAt } from './flag.js'
import type { EnvTransform, EnvView } from './transformed-env.js'

/** Options of transforms that answer calls. */
export interface ToolTransformOptions extends ToolRunnerOptions {
  /** Finds calls in texts. A message's own `tool_calls` come first. */
  readonly parser?: ToolCallParser
  /** The role of answers; any but the assistant's. @default 'tool' */
  readonly toolRole?: string
  /** Stops all calls: the step rejects with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Options of a transform for the execution of calls and their messages. */
export interface ToolAnswering extends Pick<ToolRunOptions, 'inOrder' | 'stopOnError'> {
  /** The messages that answer calls, of which there is at least one. */
  readonly write: (results: readonly ToolResult[], role: string) => readonly Message[]
}

/** The keys of {@link ToolTransformOptions}. */
export const TOOL_TRANSFORM_KEYS = ['tools', 'parser', 'toolRole', 'signal', ...TOOL_LIMIT_KEYS]

/**
 * Runs the calls of the last message of each element that is not done, if its role is assistant. Elements have as many answers as they
 * made calls; nothing fills the others up.
 */
export function toolTransform(
  options: ToolTransformOptions & { readonly parser: ToolCallParser },
  answering: ToolAnswering,
): EnvTransform {
  checkKnownKeys('options', options, TOOL_TRANSFORM_KEYS)
  const { parser, toolRole = 'tool', signal, ...rest } = options
  checkParser(parser)
  if (typeof toolRole !== 'string' || toolRole === '' || toolRole === 'assistant') {
    throw new FulmarError(
      'INCOMPATIBLE',
      `toolRole must be a role that is not the policy's: got ${describeValue(toolRole)}`,
    )
  }
  const runner = new ToolRunner(rest)
  const { write, ...order } = answering
  const callsOf = (chat: readonly Message[]) => {
    const last = chat.at(-1)
    return last?.role === 'assistant' ? toolCallsOf(last, parser) : []
  }
  const answered = async (chat: readonly Message[]): Promise<readonly Message[]> => {
    const calls = callsOf(chat)
    if (calls.length === 0) return chat
    const results = await runner.run(calls, { messages: chat, signal, ...order })
    return [...chat, ...write(results, toolRole)]
  }
  return {
    async afterStep(next: TensorDict): Promise<TensorDict> {
      const isDone = flagsAt(next, 'done')
      const chats = chatsAt(next, ['history', 'prompt'])
      const grown = await Promise.all(chats.map((chat, at) => (isDone[at] ? chat : answered(chat))))
      if (grown.some((chat, at) => chat !== chats[at])) setEach(next, ['history', 'prompt'], grown)
      return next
    },
    chatTurns: () => (turn) => {
      const { messages, context } = turn
      const calls = turn.done ? [] : callsOf(messages)
      if (calls.length === 0) return
      const either = signal ? AbortSignal.any([signal, context.signal]) : context.signal
      return runner.run(calls, { messages: [...messages], signal: either, ...order }).then((results) => {
        messages.push(...write(results, toolRole))
      })
    },
    transformSpecs(env: EnvView): EnvSpecs {
      if (env.inputMode === 'history') return env
      throw new FulmarError('INCOMPATIBLE', `inputMode must be history for tools: got ${env.inputMode}`)
    },
  }
}
