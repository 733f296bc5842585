/** The contract between conversations and token ids. A renderer is the only place where one becomes the other. */

import type { Message } from './message.js'
import type { ThinkingRetention } from './renderer-config.js'

/**
 * Origin of a context or sampled token. {@link Rendered.origins} and ledger segments hold indices into
 * {@link ORIGINS}.
 */
export type Origin = 'template' | 'system' | 'user' | 'assistant' | 'tool' | 'env' | 'sampled' | 'synthetic'

/**
 * The names of the codes in {@link Rendered.origins}.
 *
 * @example
 * ```ts
 * import { ORIGINS } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(ORIGINS[6], 'sampled')
 * ```
 */
export const ORIGINS: readonly Origin[] = [
  'template',
  'system',
  'user',
  'assistant',
  'tool',
  'env',
  'sampled',
  'synthetic',
]

/** Token ids and, for each, where it came from. All arrays have the same length `[T]`, share memory, and belong to the caller. */
export interface Rendered {
  /** Token ids. */
  readonly ids: Uint32Array
  /** The message that each token belongs to, its frame included; -1 for a generation prompt. */
  readonly messageIndices: Int32Array
  /** 1 on what an assistant samples: the text of assistant messages and their closing token. Else 0. */
  readonly sampledMask: Uint8Array
  /** 1 on the text of messages; for assistant messages equal to `sampledMask`. Else 0. */
  readonly isContent: Uint8Array
  /** Indices into {@link ORIGINS}. */
  readonly origins: Uint8Array
}

/** Reason that a tool call in a completion cannot be used; failures are data. */
export type ToolCallStatus =
  | 'ok'
  | 'invalid_json'
  | 'unclosed_block'
  | 'missing_name'
  | 'malformed_structure'
  | 'unknown_tool'

/** One tool call that a completion holds, usable or not. */
export interface ParsedToolCall {
  /** The text of the call as it was sampled. */
  readonly raw: string
  /** Validity of the call, with the reason. */
  readonly status: ToolCallStatus
  /** The tool's name, where one was found. */
  readonly name: string | null
  /** The arguments as JSON text, where some were found. */
  readonly arguments: string | null
  /** The call's id, where the family has ids. */
  readonly id: string | null
  /** Position of the call in the completion: start and end of its ids. */
  readonly tokenSpan: readonly [number, number]
}

/** A parsed completion. */
export interface ParsedResponse {
  /**
   * Text before the stop token outside of reasoning and calls, trimmed except in plain ChatML; `''` without
   * one.
   */
  readonly content: string
  /** The reasoning, `null` if the family has none or the completion holds none. */
  readonly reasoningContent: string | null
  /** True if every opened reasoning was closed, or there is no reasoning. */
  readonly reasoningComplete: boolean
  /** Tool calls in order. */
  readonly toolCalls: readonly ParsedToolCall[]
  /** True if a stop token was sampled. */
  readonly finished: boolean
  /**
   * True if the content has special tokens: the model continued after its own turn. They are in `content` by
   * name.
   */
  readonly overran: boolean
}

/** Reason that a renderer cannot extend the tokens of the last turn. The caller then renders the whole conversation again. */
export type BridgeRefusal =
  | 'empty_prompt'
  | 'empty_extension'
  | 'assistant_in_extension'
  | 'unknown_role'
  | 'user_query_under_tool_cycle'
  | 'open_reasoning_after_stop'
  | 'opaque_template'
  | 'over_length'

/** @internal Every {@link BridgeRefusal}, in the core's order. */
export const BRIDGE_REFUSALS: readonly BridgeRefusal[] = [
  'empty_prompt',
  'empty_extension',
  'assistant_in_extension',
  'unknown_role',
  'user_query_under_tool_cycle',
  'open_reasoning_after_stop',
  'opaque_template',
  'over_length',
]

/**
 * Messages that may be appended after an assistant's turn without changing the tokens before them in a new
 * rendering: all, answers of tools only, or not even those; `unknown` if it cannot be determined. A bridge
 * always keeps the tokens.
 */
export type PrefixStability = 'always' | 'within_tool_cycle' | 'never' | 'unknown'

/**
 * Addition of the next prompt to the existing tokens, or a typed refusal. Its size is that of the new
 * messages, for any length of the conversation; {@link extendPrompt} returns the whole prompt.
 */
export type Bridge = Extension | { readonly ok: false; readonly reason: BridgeRefusal }

/** Tokens that a bridge adds after a prompt and its completion. */
export interface Extension {
  readonly ok: true
  /** Number of tokens of the completion that stay: up to its last closing token, or all. */
  readonly numKept: number
  /** Added tokens. Message indices count from the first new message, and no token is marked as sampled. */
  readonly rendered: Rendered
}

/** A tool on offer: an OpenAI envelope `{type, function}` or a flat `{name, description, parameters}`. */
export type ToolSpec = Readonly<Record<string, unknown>>

/** A list, or its JSON text: there numbers such as `1.0`, which families write as they came, keep their form. */
export type JsonList<Item> = readonly Item[] | string

/** Options of {@link Renderer.bridge}. */
export interface BridgeOptions {
  /**
   * The tools on offer, as the prompt was rendered with. The text of a list is kept for its next use, and made again if
   * any value in the list has changed.
   * @default none
   */
  readonly tools?: JsonList<ToolSpec>
}

/** Options of {@link Renderer.parse}. */
export interface ParseOptions {
  /**
   * The prompt of the completion: its end shows if reasoning was already open.
   * @default the renderer's own generation prompt
   */
  readonly promptIds?: Uint32Array
  /**
   * The tools on offer: their schemas decide the types of arguments, and a call of another tool is `unknown_tool`.
   * @default any name is accepted
   */
  readonly tools?: JsonList<ToolSpec>
}

/** Options of {@link Renderer.render}. */
export interface RenderOptions extends BridgeOptions {
  /**
   * If true, appends the opening of an assistant's turn.
   * @default false
   */
  readonly addGenerationPrompt?: boolean
}

/** A conversation with the options of its rendering. */
export interface ConversationText extends RenderOptions {
  readonly messages: JsonList<Message>
}

/**
 * Conversations to token ids and back. Rendering never turns text into special tokens, and a bridge never encodes
 * sampled tokens again.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, type Renderer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using chatMl = createRenderer(tokenizer, { name: 'chatml' })
 * const renderer: Renderer = chatMl
 * const { ids } = renderer.render([{ role: 'user', content: '1+1?' }], { addGenerationPrompt: true })
 * assert.equal(tokenizer.decode(ids), '<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n')
 * assert.equal(renderer.renderText([{ role: 'user', content: 'Hi' }]), '<|im_start|>user\nHi<|im_end|>\n')
 * assert.deepEqual([renderer.prefixStability(), renderer.thinkingRetention()], ['always', 'all'])
 * ```
 */
export interface Renderer {
  /** The ids that end an assistant's turn, the one that closes it properly first. At least one. */
  readonly stopIds: readonly number[]
  /**
   * The ids of a conversation.
   * @throws {FulmarError} `EMPTY` if there is no message; `UNKNOWN_NAME` for a role or a content part that the
   * family does not have; `UNKNOWN_TEXT` if the tokenizer cannot express the text; `MALFORMED` if a message is not one.
   */
  render(messages: JsonList<Message>, options?: RenderOptions): Rendered
  /**
   * Returns the text of the ids of {@link Renderer.render}, with special tokens by name.
   * @throws {FulmarError} As {@link Renderer.render}, without the errors of the tokenizer.
   */
  renderText(messages: JsonList<Message>, options?: RenderOptions): string
  /**
   * Returns the addition of the next prompt to `previousPromptIds` and `previousCompletionIds` (cut after its
   * last closing token): a closing token if none was sampled, `newMessages`, and a generation prompt. Sampled
   * tokens are never re-encoded. Costs O(new messages), plus a scan of an unclosed completion.
   * @throws {FulmarError} as {@link Renderer.render}, except for a {@link BridgeRefusal}.
   */
  bridge(
    previousPromptIds: Uint32Array,
    previousCompletionIds: Uint32Array,
    newMessages: JsonList<Message>,
    options?: BridgeOptions,
  ): Bridge
  /**
   * Parses a completion. Broken completions are data; empty `ids` give empty content.
   * @throws {FulmarError} `OUT_OF_RANGE` if an id is not in the vocabulary.
   */
  parse(ids: Uint32Array, options?: ParseOptions): ParsedResponse
  /** Returns the guarantee of a new rendering; {@link Renderer.bridge} may guarantee more. */
  prefixStability(): PrefixStability
  /** New messages that {@link Renderer.bridge} may append while it keeps earlier reasoning. */
  thinkingRetention(): ThinkingRetention
}
