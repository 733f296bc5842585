/** `fulmar chat PATH`: a conversation with a model, a line each. */

import type { Message } from '../chat/index.js'
import type { CliIo } from './io.js'
import { openModel } from './open-model.js'

/** Flags of the command, as they were typed. */
export interface ChatFlags {
  readonly system?: string
  readonly maxTokens?: string
  readonly temperature?: string
  readonly seed?: string
}

/** Answers each line of standard input, with the lines and answers before it in mind. */
export async function chat(path: string, flags: ChatFlags, io: CliIo): Promise<void> {
  const { system, maxTokens, temperature = '0.7', seed = '0' } = flags
  const model = await openModel(path, io)
  const messages: Message[] = system === undefined ? [] : [{ role: 'system', content: system }]
  try {
    for await (const line of io.readLines('> ')) {
      messages.push({ role: 'user', content: line })
      const answer = await model.chat(messages, {
        ...{ temperature: Number(temperature), seed: Number(seed) + messages.length, signal: io.signal },
        ...(maxTokens !== undefined && { maxTokens: Number(maxTokens) }),
      })
      messages.push(answer)
      io.stdout.write(`${String(answer.content)}\n`)
    }
  } finally {
    model[Symbol.dispose]()
  }
}
