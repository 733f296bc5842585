/** Dictionaries in which a policy has called tools. */

import {
  ChatEnv,
  chatsAt,
  type EnvTransform,
  replyPolicy,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked } from './chats.js'

/** The conversations after each element said its text, without the question and the text. */
export async function answersTo(transform: EnvTransform, ...texts: string[]) {
  const env = new TransformedEnv(new ChatEnv({ batchSize: [texts.length] }), [transform])
  const dict = await env.reset(asked(...texts.map(() => 'q')))
  const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => texts[at] ?? '' })
  const next = await env.step(await policy(dict))
  return chatsAt(next, ['history', 'prompt']).map((chat) => chat.slice(2))
}
