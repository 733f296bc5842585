/** A policy of dictionaries that is a function. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { setEach, textsAt } from '../data/dict-text.js'
import { chatsAt } from './chats-at.js'
import type { DictPolicy, InputMode } from './env.js'
import { idRowsAt, joinedIds, setIdRows } from './token-rows.js'

/** Prompt of an element for a {@link replyPolicy}: its messages, its text, or its ids. */
export type ElementPrompt = readonly Message[] | string | Uint32Array

/** Options of {@link replyPolicy}. */
export interface ReplyPolicyOptions {
  /** As the environment's. */
  readonly inputMode: InputMode
  /** Returns the reply to a prompt; `index` is the position in the batch. */
  readonly reply: (prompt: ElementPrompt, index: number) => string | Promise<string>
  /** Encodes replies; needed for tokens. */
  readonly tokenizer?: NativeTokenizer
}

/**
 * A policy whose responses are those of a function, for tests and for trying out an environment. Writes `response` and `full`. For a language
 * model, pass an `LLMWrapperBase`.
 *
 * @throws {FulmarError} `INCOMPATIBLE` for tokens without a tokenizer; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, replyPolicy } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '2' })
 * const dict = new ChatEnv().reset(TensorDict.from({ query: new NonTensorData('1+1?') }, { batchSize: [1] }))
 * const said = (await policy(dict)).value(['history', 'response'])
 * assert.deepEqual(said, [[{ role: 'assistant', content: '2' }]])
 * ```
 */
export function replyPolicy(options: ReplyPolicyOptions): DictPolicy {
  checkKnownKeys('options', options, ['inputMode', 'reply', 'tokenizer'])
  const { inputMode, reply, tokenizer } = options
  if (inputMode === 'tokens' && tokenizer === undefined) {
    throw new FulmarError('INCOMPATIBLE', 'tokenizer must be given for tokens: it is undefined')
  }
  return async (dict) => {
    const prompts = promptsAt(dict, inputMode)
    const replies = await Promise.all(prompts.map((prompt, at) => reply(prompt, at)))
    const root = dict.clone()
    if (inputMode === 'history')
      setChats(
        root,
        replies.map((content) => ({ role: 'assistant', content })),
      )
    else if (inputMode === 'text') setTexts(root, replies)
    else if (tokenizer) {
      const ids = replies.map((text) => tokenizer.encode(text, { addedTokens: true }).ids)
      setTokens(root, prompts as Uint32Array[], ids)
    }
    return root
  }
}

/** The prompt of each element, the last batch dimension changing fastest. */
function promptsAt(dict: TensorDict, inputMode: InputMode): ElementPrompt[] {
  if (inputMode === 'history') return chatsAt(dict, ['history', 'prompt'])
  if (inputMode === 'text') return textsAt(dict, ['text', 'prompt'])
  const rows = idRowsAt(dict, ['tokens', 'prompt'])
  if (rows) return rows
  throw new FulmarError('UNKNOWN_NAME', 'tokens.prompt must be there: it is absent')
}

function setChats(root: TensorDict, messages: readonly Message[]): void {
  const prompts = chatsAt(root, ['history', 'prompt'])
  setEach(
    root,
    ['history', 'response'],
    messages.map((message) => [message]),
  )
  setEach(
    root,
    ['history', 'full'],
    messages.map((message, at) => [...(prompts[at] ?? []), message]),
  )
}

function setTexts(root: TensorDict, texts: readonly string[]): void {
  const prompts = textsAt(root, ['text', 'prompt'])
  setEach(root, ['text', 'response'], texts)
  setEach(
    root,
    ['text', 'full'],
    texts.map((text, at) => `${prompts[at]}${text}`),
  )
}

function setTokens(
  root: TensorDict,
  prompts: readonly Uint32Array[],
  responses: readonly Uint32Array[],
): void {
  setIdRows(root, ['tokens', 'prompt'], prompts)
  setIdRows(root, ['tokens', 'response'], responses)
  const full = prompts.map((prompt, at) => joinedIds(prompt, responses[at] ?? new Uint32Array()))
  setIdRows(root, ['tokens', 'full'], full)
}
