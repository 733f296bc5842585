/** Conversations of dictionaries to text, and back. */

import { checkKnownKeys } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import { RENDERING_KEYS, type RenderingOptions, renderHistory } from './apply-chat-template.js'
import { setEach, textsAt } from './dict-text.js'
import { History } from './history.js'

/** Options of {@link TemplateTransform}. */
export interface TemplateTransformOptions extends RenderingOptions {
  /**
   * Key of conversations, as lists of messages.
   * @default ['history', 'prompt']
   */
  readonly inKey?: TensorKey
  /**
   * Key of their text.
   * @default ['text', 'prompt']
   */
  readonly outKey?: TensorKey
  /**
   * Key of the text for {@link TemplateTransform.inverse}.
   * @default ['text', 'full']
   */
  readonly inKeyInv?: TensorKey
  /**
   * Key of its messages.
   * @default ['history', 'full']
   */
  readonly outKeyInv?: TensorKey
  /**
   * If true, appends the opening of an assistant's turn.
   * @default true
   */
  readonly addGenerationPrompt?: boolean
}

const OWN_KEYS = ['inKey', 'outKey', 'inKeyInv', 'outKeyInv', 'addGenerationPrompt']

/**
 * TorchRL's transform: a chat template writes the conversations of a dictionary as text; the other way, text that the
 * template wrote becomes messages. Dictionaries come back as new ones that share their other entries.
 *
 * @example
 * ```ts
 * import { TensorDict } from 'fulmar'
 * import { ChatHistory, History, TemplateTransform } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const prompt = History.fromChats([{ role: 'user', content: '1+1?' }])
 * const dict = TensorDict.from({ history: new ChatHistory({ prompt }).toTensorDict() })
 * const transform = new TemplateTransform({ templateName: 'chatml_format' })
 * const text = transform.forward(dict).value(['text', 'prompt'])
 * assert.equal(text, '<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n')
 * ```
 */
export class TemplateTransform {
  readonly #options: TemplateTransformOptions

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
  constructor(options: TemplateTransformOptions) {
    checkKnownKeys('options', options, [...OWN_KEYS, ...RENDERING_KEYS])
    this.#options = { ...options }
  }

  /**
   * Returns a dictionary with the text of its conversations.
   * @throws {FulmarError} `UNKNOWN_NAME` without conversations; as {@link History.fromChats} and
   * {@link History.applyChatTemplate}.
   */
  forward(dict: TensorDict): TensorDict {
    const { inKey = ['history', 'prompt'], outKey = ['text', 'prompt'], ...rest } = this.#options
    const { inKeyInv: _, outKeyInv: __, ...options } = rest
    const rendered = dict.exclude([])
    setEach(rendered, outKey, renderHistory(History.fromChats(JSON.stringify(dict.value(inKey))), options))
    return rendered
  }

  /**
   * Returns a dictionary with the messages of its texts.
   * @throws {FulmarError} `UNKNOWN_NAME` without texts; as {@link History.fromText}.
   */
  inverse(dict: TensorDict): TensorDict {
    const { inKeyInv = ['text', 'full'], outKeyInv = ['history', 'full'] } = this.#options
    const { templateName, registry, tokenizer } = this.#options
    const options = {
      ...(templateName !== undefined && { templateName }),
      ...(registry && { registry }),
      ...(tokenizer && { tokenizer }),
    }
    const parsed = dict.exclude([])
    const messages = textsAt(dict, inKeyInv).map((text) => History.fromText(text, options).toJSON())
    setEach(parsed, outKeyInv, messages)
    return parsed
  }
}
