/** Response of the policy in its turn, without the prompt, in every form of a chat. */

import { FulmarError } from '../../core/index.js'
import type { TensorDict } from '../../tensor/index.js'
import type { TokenizerLike } from '../../tokenizer/index.js'
import { textsAt } from '../data/dict-text.js'
import { chatsAt } from './chats-at.js'
import { idRowsAt } from './token-rows.js'
import type { EnvView } from './transformed-env.js'

/** The text of each element's turn: never the prompt before it, so that examples in a prompt are not scored. */
export function responsesOf(root: TensorDict, env: EnvView, tokenizer?: TokenizerLike): string[] {
  if (env.inputMode === 'history') return historyResponses(root)
  if (env.inputMode === 'text') return textResponses(root)
  if (tokenizer === undefined) {
    throw new FulmarError(
      'INCOMPATIBLE',
      'tokenizer must be given to read responses of tokens: it is undefined',
    )
  }
  const [responses, full] = [idRowsAt(root, ['tokens', 'response']), idRowsAt(root, ['tokens', 'full'])]
  if (responses) return responses.map((ids) => tokenizer.decode(ids))
  const prompts = idRowsAt(root, ['tokens', 'prompt']) ?? []
  return (full ?? []).map((ids, at) => tokenizer.decode(ids.subarray(prompts[at]?.length ?? 0)))
}

function historyResponses(root: TensorDict): string[] {
  const key = root.has(['history', 'full']) ? 'full' : 'response'
  return chatsAt(root, ['history', key]).map((chat) => {
    const last = chat.at(-1)
    return last?.role === 'assistant' && typeof last.content === 'string' ? last.content : ''
  })
}

function textResponses(root: TensorDict): string[] {
  if (root.has(['text', 'response'])) return textsAt(root, ['text', 'response'])
  const prompts = textsAt(root, ['text', 'prompt'])
  return textsAt(root, ['text', 'full']).map((full, at) => {
    const prompt = prompts[at] ?? ''
    if (full.startsWith(prompt)) return full.slice(prompt.length)
    throw new FulmarError(
      'INCOMPATIBLE',
      `text.full of element ${at} must begin with text.prompt: got another beginning`,
    )
  })
}
