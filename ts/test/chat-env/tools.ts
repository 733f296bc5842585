/** Tools that the tests of this room call, and dictionaries in which a policy has called them. */

import {
  ChatEnv,
  chatsAt,
  type EnvTransform,
  replyPolicy,
  type Tool,
  TransformedEnv,
} from '../../src/chat-env/index.js'
import { asked } from './chats.js'

export const add: Tool = {
  name: 'add',
  description: 'Adds.',
  parameters: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  run: ({ a, b }) => ({ sum: Number(a) + Number(b) }),
}
export const echo: Tool = { name: 'echo', run: (args) => args }
export const boom: Tool = {
  name: 'boom',
  run: () => {
    throw new Error('boom')
  },
}

/** The conversations after each element said its text, without the question and the text. */
export async function answersTo(transform: EnvTransform, ...texts: string[]) {
  const env = new TransformedEnv(new ChatEnv({ batchSize: [texts.length] }), [transform])
  const dict = await env.reset(asked(...texts.map(() => 'q')))
  const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => texts[at] ?? '' })
  const next = await env.step(await policy(dict))
  return chatsAt(next, ['history', 'prompt']).map((chat) => chat.slice(2))
}
