/** Conversations on their way to the core, many at a time. */

import { checkKnownKeys } from '../core/index.js'
import { type CheckMessage, pack } from './packed-messages.js'
import { withDefaults } from './render-options.js'
import type { ConversationText } from './renderer.js'

/** Keys of a conversation to render. */
export const CONVERSATION_KEYS = [
  'messages',
  'tools',
  'addGenerationPrompt',
] satisfies (keyof ConversationText)[]

/** Length from which a packed text is rendered: V8 allocates new memory for each long string. */
const PACKED_UNITS = 1 << 12

/** Conversations in a packed form: for each a record of its options, its messages, and an empty record. */
export interface PackedTexts {
  readonly text: string
  readonly numRecords: number
  /** Index after the last of these conversations. */
  readonly end: number
}

/** Packs conversations from the index `first` on; `undefined` if the first cannot be packed. */
export function packTexts(
  conversations: readonly ConversationText[],
  first: number,
  check: CheckMessage | undefined,
): PackedTexts | undefined {
  let [text, numRecords, end] = ['', 0, first]
  while (end < conversations.length && text.length < PACKED_UNITS) {
    const next = packOne(conversations[end], check)
    if (next === undefined) break
    text += next.text
    numRecords += next.numRecords
    end += 1
  }
  return end === first ? undefined : { text, numRecords, end }
}

/** Returns `undefined` for what is not a conversation, which is refused where it is rendered alone. */
function packOne(
  conversation: ConversationText | undefined,
  check: CheckMessage | undefined,
): { readonly text: string; readonly numRecords: number } | undefined {
  if (typeof conversation !== 'object' || conversation === null) return undefined
  try {
    checkKnownKeys('conversation', conversation, CONVERSATION_KEYS)
    const { messages } = conversation
    const packed = typeof messages === 'string' ? undefined : pack(messages, check)
    if (packed === undefined) return undefined
    const { addGenerationPrompt, tools } = withDefaults(conversation)
    const text = `${addGenerationPrompt ? 'p' : ''}${tools}\0${packed}\0`
    return { text, numRecords: messages.length + 2 }
  } catch {
    return undefined
  }
}
