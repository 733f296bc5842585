/** The ids of a conversation in addition to its messages, turn by turn. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { RenderingOptions } from '../data/apply-chat-template.js'
import { ChatHistory } from '../data/chat-history.js'
import { History } from '../data/history.js'
import { chatsAt } from './chats-at.js'
import type { EnvSpecs } from './env.js'
import { idRowsAt, joinedIds, setIdRows } from './token-rows.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of {@link IncrementalTokenizer}. */
export interface IncrementalTokenizerOptions {
  /** Tokenizer of the messages. */
  readonly tokenizer: NativeTokenizer
  /** Other inputs of the chat template. @default the tokenizer's template */
  readonly template?: Omit<RenderingOptions, 'tokenizer'>
  /** Key of the messages. @default ['history', 'prompt'] */
  readonly historyKey?: TensorKey
  /** Key of their ids. @default ['tokens', 'prompt'] */
  readonly tokensKey?: TensorKey
}

/**
 * Keeps the ids of prompts, `i64`, in addition to their messages. Where the action holds `tokens.full`, the ids that were drawn stay as they are,
 * and only what the template writes behind them (the end of the turn, answers of tools, the opening of the next turn) is encoded: so
 * that the next prompt has the text of the messages. A turn that was edited meanwhile is encoded anew.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, IncrementalTokenizer, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const ids = new IncrementalTokenizer({ tokenizer, template: { templateName: 'chatml_format' } })
 * const env = new TransformedEnv(new ChatEnv(), [ids])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] }))
 * const row = dict.ragged(['tokens', 'prompt']).row(0)
 * const text = tokenizer.decode(Uint32Array.from(row.data, Number))
 * assert.equal(text, '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n')
 * ```
 */
export class IncrementalTokenizer implements EnvTransform {
  readonly #tokenizer: NativeTokenizer
  readonly #options: RenderingOptions
  readonly #historyKey: TensorKey
  readonly #tokensKey: TensorKey

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` without a tokenizer. */
  constructor(options: IncrementalTokenizerOptions) {
    checkKnownKeys('options', options, ['tokenizer', 'template', 'historyKey', 'tokensKey'], ['tokenizer'])
    const {
      tokenizer,
      template,
      historyKey = ['history', 'prompt'],
      tokensKey = ['tokens', 'prompt'],
    } = options
    this.#tokenizer = tokenizer
    this.#options = { ...template, tokenizer }
    this.#historyKey = historyKey
    this.#tokensKey = tokensKey
  }

  /** @throws {FulmarError} As {@link History.applyChatTemplate}. */
  afterReset(dict: TensorDict): TensorDict {
    return setIdRows(dict, this.#tokensKey, this.#encoded(chatsAt(dict, this.#historyKey)))
  }

  /** @throws {FulmarError} As {@link History.applyChatTemplate}. */
  afterStep(next: TensorDict, root: TensorDict): TensorDict {
    const chats = chatsAt(next, this.#historyKey)
    const [before, full] = [idRowsAt(root, this.#tokensKey), idRowsAt(root, ['tokens', 'full'])]
    if (before === undefined || full === undefined)
      return setIdRows(next, this.#tokensKey, this.#encoded(chats))
    const [prompts, texts] = [chatsAt(root, this.#historyKey), this.#rendered(chats)]
    const openings = this.#rendered(prompts)
    const rows = chats.map((chat, at) => {
      const [prompt, ids, text = ''] = [before[at], full[at], texts[at]]
      if (prompt === undefined || ids === undefined) return this.#encoded([chat])[0] ?? new Uint32Array()
      const drawn = this.#tokenizer.decode(ids.subarray(prompt.length))
      const said = `${openings[at]}${drawn}`
      const isGrown = prompt.every((id, t) => ids[t] === id) && text.startsWith(said)
      if (!isGrown) return this.#encoded([chat])[0] ?? ids
      return joinedIds(ids, this.#tokenizer.encode(text.slice(said.length), { addedTokens: true }).ids)
    })
    return setIdRows(next, this.#tokensKey, rows)
  }

  transformSpecs(env: EnvView): EnvSpecs {
    if (env.batchSize.length !== 1 || env.inputMode !== 'history') {
      const got = `${env.inputMode} of ${env.batchSize.length} dimensions`
      throw new FulmarError(
        'INCOMPATIBLE',
        `env must be a chat of messages in a batch of one dimension: got ${got}`,
      )
    }
    return changedSpecs(env, ({ observationSpec }) => {
      observationSpec.set(this.#tokensKey, null)
    })
  }

  #encoded(chats: readonly (readonly Message[])[]): Uint32Array[] {
    const prompt = History.fromChats(chats)
    const rows = new ChatHistory({ prompt })
      .toTokens({ ...this.#options, tokenizer: this.#tokenizer })
      .rows('prompt')
    return rows.map((row) => Uint32Array.from(row.data, Number))
  }

  #rendered(chats: readonly (readonly Message[])[]): string[] {
    return [
      new ChatHistory({ prompt: History.fromChats(chats) }).toText(this.#options).prompt,
    ].flat() as string[]
  }
}
