/** The dialect of `POST /v1/chat/completions`. */

import { type ChatRequest, readChatRequest } from './chat-request.js'
import { ChatChunks, type ChatFrame, chatCompletion } from './chat-response.js'
import { type AnswerContext, type Dialect, eventOf } from './dialect.js'

/** OpenAI's chat completions. */
export const chatDialect: Dialect<ChatRequest> = {
  path: '/chat/completions',
  read: readChatRequest,
  whole: (context, exchange, answers) =>
    chatCompletion(frameOf(context), context.request, exchange, answers, context.textOf),
  events: (context) => {
    const chunks = new ChatChunks(frameOf(context), context.request, context.textOf)
    return {
      part: (part) => chunks.part(part).map((chunk) => eventOf(chunk)),
      end: (answers, { prompt }) => [
        ...chunks.end(answers, prompt.ids.length).map((chunk) => eventOf(chunk)),
        eventOf('[DONE]'),
      ],
      fail: (error) => [eventOf(error.toJSON())],
    }
  },
}

function frameOf({ id, created, request: { model } }: AnswerContext<ChatRequest>): ChatFrame {
  return { id: `chatcmpl-${id}`, created, model }
}
