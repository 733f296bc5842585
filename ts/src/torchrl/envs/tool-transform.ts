/** Transforms that answer calls of tools, whatever form the answers take. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import type { TensorDict } from '../../tensor/index.js'
import {
  type ToolCall,
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
import type { ChatTurn, ChatTurnTransform } from './chat-turn.js'
import { chatsAt } from './chats-at.js'
import type { EnvSpecs } from './env.js'
import { flagsAt } from './flag.js'
import { ToolConversations } from './tool-conversations.js'
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
 * A transform that runs the calls of the last message of each element that is not done, if its role is assistant. Elements have as many
 * answers as they made calls; nothing fills the others up. For tools that keep state, it numbers the conversations of the batch
 * (`conversation`): a batch keeps state for as many conversations as it has elements, and one that is done, or that a reset replaces,
 * ends. `close` ends all of them.
 *
 * @example
 * ```ts
 * import { SimpleToolTransform, ToolTransform } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const transform: ToolTransform = new SimpleToolTransform({ tools: [{ name: 'now', run: () => '12:00' }] })
 * assert.ok(transform instanceof ToolTransform)
 * transform[Symbol.dispose]()
 * ```
 */
export abstract class ToolTransform implements EnvTransform {
  readonly #parser: ToolCallParser
  readonly #runner: ToolRunner
  readonly #toolRole: string
  readonly #signal: AbortSignal | undefined
  readonly #answering: ToolAnswering
  readonly #conversations: ToolConversations | undefined

  protected constructor(
    options: ToolTransformOptions & { readonly parser: ToolCallParser },
    answering: ToolAnswering,
  ) {
    checkKnownKeys('options', options, TOOL_TRANSFORM_KEYS)
    const { parser, toolRole = 'tool', signal, ...rest } = options
    checkParser(parser)
    if (typeof toolRole !== 'string' || toolRole === '' || toolRole === 'assistant') {
      throw new FulmarError(
        'INCOMPATIBLE',
        `toolRole must be a role that is not the policy's: got ${describeValue(toolRole)}`,
      )
    }
    this.#parser = parser
    this.#runner = new ToolRunner(rest)
    this.#toolRole = toolRole
    this.#signal = signal
    this.#answering = answering
    if (this.#runner.tools.perConversation) this.#conversations = new ToolConversations()
  }

  /** Numbers conversations, where a tool keeps state. */
  afterReset(first: TensorDict, env: EnvView): TensorDict {
    return this.#conversations?.begin(first, env) ?? first
  }

  /** Answers calls. @throws {FulmarError} `ABORTED` if the signal fires. */
  async afterStep(next: TensorDict, root: TensorDict, _env: EnvView): Promise<TensorDict> {
    const isDone = flagsAt(next, 'done')
    const chats = chatsAt(next, ['history', 'prompt'])
    const ids = this.#conversations?.idsOf(root) ?? []
    const answered = (chat: readonly Message[], id: bigint | undefined) =>
      this.#answered(chat, id === undefined ? undefined : this.#conversations?.signalOf(id))
    const grown = await Promise.all(chats.map((chat, at) => (isDone[at] ? chat : answered(chat, ids[at]))))
    if (grown.some((chat, at) => chat !== chats[at])) setEach(next, ['history', 'prompt'], grown)
    ids.forEach((id, at) => void (isDone[at] && this.#conversations?.end(id)))
    return next
  }

  chatTurns(first: TensorDict, _env: EnvView): ChatTurnTransform | undefined {
    const end = this.#conversations?.take(first)
    const transform = (turn: ChatTurn) => {
      const { messages, context } = turn
      const calls = turn.done ? [] : this.#callsOf(messages)
      if (calls.length === 0) return
      const signal = this.#signal ? AbortSignal.any([this.#signal, context.signal]) : context.signal
      return this.#answers(calls, [...messages], signal, end?.signal).then((answers) => {
        messages.push(...answers)
      })
    }
    return end ? Object.assign(transform, { close: () => end.abort() }) : transform
  }

  transformSpecs(env: EnvView): EnvSpecs {
    if (env.inputMode === 'history') return this.#conversations?.specs(env) ?? env
    throw new FulmarError('INCOMPATIBLE', `inputMode must be history for tools: got ${env.inputMode}`)
  }

  /** Ends all conversations; their numbers begin again. */
  setSeed(_seed: number): void {
    this.#conversations?.restart()
  }

  /** Ends all conversations, and with them what tools keep for them. */
  close(): void | Promise<void> {
    this.#conversations?.close()
  }

  [Symbol.dispose](): void {
    void this.close()
  }

  #callsOf(chat: readonly Message[]): readonly ToolCall[] {
    const last = chat.at(-1)
    return last?.role === 'assistant' ? toolCallsOf(last, this.#parser) : []
  }

  async #answered(
    chat: readonly Message[],
    conversation: AbortSignal | undefined,
  ): Promise<readonly Message[]> {
    const calls = this.#callsOf(chat)
    if (calls.length === 0) return chat
    return [...chat, ...(await this.#answers(calls, chat, this.#signal, conversation))]
  }

  async #answers(
    calls: readonly ToolCall[],
    messages: readonly Message[],
    signal: AbortSignal | undefined,
    conversation: AbortSignal | undefined,
  ): Promise<readonly Message[]> {
    const { write, ...order } = this.#answering
    return write(await this.#runner.run(calls, { messages, signal, conversation, ...order }), this.#toolRole)
  }
}
