/** Summaries of the columns of a {@link Rendered} by message and by role. */

import { checkGiven, checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import type { TokenizerLike } from '../tokenizer/index.js'
import type { Message } from './message.js'
import type { Extension, Rendered } from './renderer.js'

/** Start and end of a run of tokens. */
export type TokenSpan = readonly [number, number]

/** Options of {@link tokensPerMessage}. */
export interface TokenCountOptions {
  /**
   * If true, only sampled tokens count.
   * @default false
   */
  readonly sampledOnly?: boolean
}

/**
 * Returns the number of tokens of each of `numMessages` messages, including its frame.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, tokensPerMessage } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const rendered = renderer.render([
 *   { role: 'user', content: '1+1?' },
 *   { role: 'assistant', content: '2' },
 * ])
 * assert.deepEqual(tokensPerMessage(rendered, 2), [12, 14])
 * assert.deepEqual(tokensPerMessage(rendered, 2, { sampledOnly: true }), [0, 2])
 * ```
 */
export function tokensPerMessage(
  rendered: Rendered,
  numMessages: number,
  options: TokenCountOptions = {},
): number[] {
  checkKnownKeys('options', options, ['sampledOnly'])
  checkGiven('rendered', rendered)
  const { messageIndices, sampledMask } = checked(rendered)
  const counts = new Array<number>(numMessages).fill(0)
  messageIndices.forEach((index, t) => {
    if (index < 0 || index >= numMessages || (options.sampledOnly && sampledMask[t] === 0)) return
    counts[index] = (counts[index] ?? 0) + 1
  })
  return counts
}

/**
 * Returns the range of tokens of each of `numMessages` messages, from its first to after its last; `null` for
 * one without tokens. Template tokens of no message may be within a range.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, messageTokenSpans } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const rendered = renderer.render([{ role: 'user', content: '1+1?' }], { addGenerationPrompt: true })
 * assert.deepEqual(messageTokenSpans(rendered, 1), [[0, 12]])
 * ```
 */
export function messageTokenSpans(rendered: Rendered, numMessages: number): (TokenSpan | null)[] {
  checkGiven('rendered', rendered)
  const spans = new Array<TokenSpan | null>(numMessages).fill(null)
  checked(rendered).messageIndices.forEach((index, t) => {
    if (index >= 0 && index < numMessages) spans[index] = [spans[index]?.[0] ?? t, t + 1]
  })
  return spans
}

/**
 * The spans of {@link messageTokenSpans} by role, for the messages that were rendered.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, roleTokenSpans } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const chat = ['a', 'b'].map((content) => ({ role: 'user', content }))
 * assert.deepEqual(roleTokenSpans(renderer.render(chat), chat).get('user'), [[0, 9], [9, 18]])
 * ```
 */
export function roleTokenSpans(rendered: Rendered, messages: readonly Message[]): Map<string, TokenSpan[]> {
  checkGiven('rendered', rendered)
  const spans = messageTokenSpans(rendered, messages.length)
  return byRole(messages, (index) => [spans[index] ?? []].filter((span) => span.length === 2))
}

/**
 * Returns the number of tokens of the messages of each role, including their frames.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, tokensByRole } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const chat = ['a', 'b'].map((content) => ({ role: 'user', content }))
 * assert.equal(tokensByRole(renderer.render(chat), chat).get('user'), 18)
 * ```
 */
export function tokensByRole(rendered: Rendered, messages: readonly Message[]): Map<string, number> {
  checkGiven('rendered', rendered)
  const counts = tokensPerMessage(rendered, messages.length)
  const sums = new Map<string, number>()
  messages.forEach(({ role }, index) => {
    sums.set(role, (sums.get(role) ?? 0) + (counts[index] ?? 0))
  })
  return sums
}

/**
 * The runs of content tokens, by the role of their message.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { contentTokenSpansByRole, createRenderer } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const chat = [{ role: 'tool', content: '42' }]
 * assert.deepEqual(contentTokenSpansByRole(renderer.render(chat), chat).get('tool'), [[6, 8]])
 * ```
 */
export function contentTokenSpansByRole(
  rendered: Rendered,
  messages: readonly Message[],
): Map<string, TokenSpan[]> {
  checkGiven('rendered', rendered)
  const { isContent, messageIndices } = checked(rendered)
  const runs: [number, number][][] = messages.map(() => [])
  isContent.forEach((bit, t) => {
    const index = messageIndices[t] ?? -1
    const runsOfMessage = runs[index]
    if (bit === 0 || runsOfMessage === undefined) return
    const last = runsOfMessage.at(-1)
    if (last?.[1] === t) last[1] = t + 1
    else runsOfMessage.push([t, t + 1])
  })
  return byRole(messages, (index) => runs[index] ?? [])
}

/**
 * 1 on content of messages whose role is one of `roles`, else 0. Shape `[T]`.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { contentMaskForRoles, createRenderer } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const chat = [{ role: 'tool', content: '42' }, { role: 'user', content: 'Hi' }]
 * const rendered = renderer.render(chat)
 * const mask = contentMaskForRoles(rendered, chat, ['tool'])
 * assert.equal(tokenizer.decode(rendered.ids.filter((_, t) => mask[t] === 1)), '42')
 * ```
 */
export function contentMaskForRoles(
  rendered: Rendered,
  messages: readonly Message[],
  roles: readonly string[],
): Uint8Array {
  checkGiven('rendered', rendered)
  const { isContent, messageIndices } = checked(rendered)
  const counts = messages.map(({ role }) => roles.includes(role))
  return isContent.map((bit, t) => (bit === 1 && counts[messageIndices[t] ?? -1] ? 1 : 0))
}

/**
 * The tool that each message is about: the `name` of a tool's answer, or else the name of the call that it answers by its
 * `tool_call_id`. `null` for all others.
 *
 * @example
 * ```ts
 * import { extractMessageToolNames } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * const call = { id: 'a', function: { name: 'add', arguments: {} } }
 * const chat = [
 *   { role: 'assistant', content: null, tool_calls: [call] },
 *   { role: 'tool', content: '2', tool_call_id: 'a' },
 * ]
 * assert.deepEqual(extractMessageToolNames(chat), [null, 'add'])
 * ```
 */
export function extractMessageToolNames(messages: readonly Message[]): (string | null)[] {
  checkGiven('messages', messages)
  const called = new Map<string, string>()
  return messages.map((message) => {
    const calls: readonly unknown[] = Array.isArray(message.tool_calls) ? message.tool_calls : []
    for (const call of calls) {
      const [id, name] = [textField(call, 'id'), textField(field(call, 'function') ?? call, 'name')]
      if (id !== undefined && name !== undefined) called.set(id, name)
    }
    if (message.role !== 'tool') return null
    const answered = textField(message, 'tool_call_id')
    return textField(message, 'name') ?? (answered === undefined ? undefined : called.get(answered)) ?? null
  })
}

/**
 * Returns true if `newMessages` has an assistant's message, which a bridge refuses: sampled tokens come as
 * tokens, never as text.
 *
 * @example
 * ```ts
 * import { rejectAssistantInExtension } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(rejectAssistantInExtension([{ role: 'tool', content: '2' }]), false)
 * assert.equal(rejectAssistantInExtension([{ role: 'assistant', content: '2' }]), true)
 * ```
 */
export function rejectAssistantInExtension(newMessages: readonly Message[]): boolean {
  checkGiven('newMessages', newMessages)
  return newMessages.some(({ role }) => role === 'assistant')
}

/**
 * The prompt that follows a turn: the old prompt, what stays of its completion, and what the bridge adds. A new array of shape
 * `[P + numKept + N]`; costs as much.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` if `numKept` is not from 0 to the length of `completionIds`; `MALFORMED` if a list of ids is not
 * a `Uint32Array`.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, extendPrompt } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const { ids } = renderer.render([{ role: 'user', content: '1+1?' }], { addGenerationPrompt: true })
 * const sampled = Uint32Array.of(...tokenizer.encode('2').ids, renderer.stopIds[0])
 * const bridge = renderer.bridge(ids, sampled, [{ role: 'user', content: '2+2?' }])
 * assert.ok(bridge.ok)
 * const next = extendPrompt(ids, sampled, bridge)
 * assert.match(tokenizer.decode(next), /assistant\n2<\|im_end\|>\n<\|im_start\|>user\n2\+2\?/)
 * ```
 */
export function extendPrompt(
  promptIds: Uint32Array,
  completionIds: Uint32Array,
  extension: Pick<Extension, 'numKept' | 'rendered'>,
): Uint32Array {
  checkGiven('extension', extension)
  const { numKept, rendered } = extension
  checkTypedArray('promptIds', promptIds, Uint32Array)
  checkTypedArray('completionIds', completionIds, Uint32Array)
  const numSampled = completionIds.length
  if (!Number.isInteger(numKept) || numKept < 0 || numKept > numSampled) {
    const message = `numKept must be from 0 to the length of completionIds, ${numSampled}: got ${numKept}`
    throw new FulmarError('SHAPE_MISMATCH', message)
  }
  const numBefore = promptIds.length + numKept
  const next = new Uint32Array(numBefore + rendered.ids.length)
  next.set(promptIds)
  next.set(completionIds.subarray(0, numKept), promptIds.length)
  next.set(rendered.ids, numBefore)
  return next
}

/**
 * The completion up to its last stop id: what an engine sampled past the end of a turn is not part of the conversation.
 * Without a stop id, all of it. Shares memory with `completionIds`.
 *
 * @example
 * ```ts
 * import { trimToTurnClose } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(trimToTurnClose(Uint32Array.of(5, 9, 6, 9, 7), [9]), Uint32Array.of(5, 9, 6, 9))
 * assert.deepEqual(trimToTurnClose(Uint32Array.of(5, 6), [9]), Uint32Array.of(5, 6))
 * ```
 */
export function trimToTurnClose(completionIds: Uint32Array, stopIds: readonly number[]): Uint32Array {
  checkTypedArray('completionIds', completionIds, Uint32Array)
  const last = completionIds.findLastIndex((id) => stopIds.includes(id))
  return last < 0 ? completionIds : completionIds.subarray(0, last + 1)
}

/** A text and whether it is content or frame. */
export interface TextSegment {
  readonly text: string
  readonly isContent: boolean
}

/** Options of {@link attributeTextSegments}. */
export interface SegmentOptions {
  /**
   * If true, a token is content if it shares any character with the content, not only its first.
   * @default false
   */
  readonly overlapIsContent?: boolean
}

/** Ids and whether each is content: 1 or 0. Both of shape `[T]`. */
export interface AttributedTokens {
  readonly ids: Uint32Array
  readonly isContent: Uint8Array
}

/**
 * Encodes segments in one pass, so that tokens merge across borders as they do in a template's text. A token belongs to
 * the segment of its first character.
 *
 * @throws {FulmarError} As {@link TokenizerLike.encode}.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { attributeTextSegments } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const segments = [{ text: 'user\n', isContent: false }, { text: 'Hi', isContent: true }]
 * assert.deepEqual(attributeTextSegments(tokenizer, segments).isContent, Uint8Array.of(0, 0, 0, 0, 0, 1, 1))
 * ```
 */
export function attributeTextSegments(
  tokenizer: TokenizerLike,
  segments: readonly TextSegment[],
  options: SegmentOptions = {},
): AttributedTokens {
  checkKnownKeys('options', options, ['overlapIsContent'])
  checkGiven('tokenizer', tokenizer)
  const { ids, offsets } = tokenizer.encode(segments.map(({ text }) => text).join(''))
  const utf8 = new TextEncoder()
  const isContentByte = segments.map(({ text, isContent }) =>
    new Uint8Array(utf8.encode(text).length).fill(isContent ? 1 : 0),
  )
  const bytes = new Uint8Array(isContentByte.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of isContentByte) {
    bytes.set(part, at)
    at += part.length
  }
  const reach = (t: number): Uint8Array => {
    const [start = 0, end = 0] = offsets.subarray(2 * t, 2 * t + 2)
    return bytes.subarray(start, options.overlapIsContent ? Math.max(end, start + 1) : start + 1)
  }
  return { ids, isContent: Uint8Array.from(ids, (_, t) => (reach(t).includes(1) ? 1 : 0)) }
}

/** @throws {FulmarError} `SHAPE_MISMATCH` if the columns differ in length. */
function checked(rendered: Rendered): Rendered {
  const { ids, messageIndices, sampledMask, isContent } = rendered
  for (const [name, column] of Object.entries({ messageIndices, sampledMask, isContent })) {
    if (column.length !== ids.length) {
      const detail = `rendered.${name} must have one entry for each of ${ids.length} ids: got ${column.length}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
  }
  return rendered
}

function byRole(
  messages: readonly Message[],
  spansOf: (index: number) => readonly TokenSpan[],
): Map<string, TokenSpan[]> {
  const spans = new Map<string, TokenSpan[]>()
  messages.forEach(({ role }, index) => {
    spans.set(role, [...(spans.get(role) ?? []), ...spansOf(index)])
  })
  return spans
}

function field(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined
}

function textField(value: unknown, key: string): string | undefined {
  const text = field(value, key)
  return typeof text === 'string' ? text : undefined
}
