/**
 * A server that answers every request for a chat completion at once with the same text, its first
 * argument, whole or as a stream. Writes its address to standard
 * output, and to each line of standard input the number of requests so far and the processor time that it took.
 */

import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'

const CONTENT = process.argv[2] ?? ''
const FRAME = { id: 'chatcmpl-0', created: 0, model: 'any' }
const USAGE = { prompt_tokens: 16, completion_tokens: 8, total_tokens: 24 }
const CHOICE = { index: 0, logprobs: null }

const WHOLE = JSON.stringify({
  ...{ ...FRAME, object: 'chat.completion', usage: USAGE },
  choices: [{ ...CHOICE, message: { role: 'assistant', content: CONTENT }, finish_reason: 'stop' }],
})

const EVENTS = [
  { choices: [{ ...CHOICE, delta: { role: 'assistant', content: CONTENT }, finish_reason: null }] },
  { choices: [{ ...CHOICE, delta: {}, finish_reason: 'stop' }] },
  { choices: [], usage: USAGE },
]
  .map((chunk) => JSON.stringify({ ...FRAME, object: 'chat.completion.chunk', ...chunk }))
  .concat('[DONE]')
  .map((data) => `data: ${data}\n\n`)
  .join('')

let numRequests = 0
const server = createServer((request, response) => {
  void text(request).then((body) => {
    numRequests += 1
    const streams = JSON.parse(body).stream === true
    response
      .writeHead(200, { 'content-type': streams ? 'text/event-stream' : 'application/json' })
      .end(streams ? EVENTS : WHOLE)
  })
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  const port = typeof address === 'object' ? address?.port : 0
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}` }))
})

createInterface({ input: process.stdin }).on('line', () => {
  const { user, system } = process.cpuUsage()
  console.log(JSON.stringify({ requests: numRequests, cpuMs: (user + system) / 1000 }))
})
