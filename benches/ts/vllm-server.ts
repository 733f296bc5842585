/**
 * A server that answers as `vllm serve` does, always the same tokens. Says its address on standard output, and to each line of standard input
 * how much processor time it took so far: what it costs is not ours.
 */

import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'

const LOG_PROB = -0.5

const server = createServer((request, response) => {
  void text(request).then((body) => {
    const answer =
      request.url === '/v1/models' ? { data: [{ id: 'fake', max_model_len: 8192 }] } : complete(body)
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  })
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  const port = typeof address === 'object' ? address?.port : 0
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}` }))
})

createInterface({ input: process.stdin }).on('line', () => {
  const { user, system } = process.cpuUsage()
  console.log(JSON.stringify({ cpuMs: (user + system) / 1000 }))
})

function complete(body: string): object {
  const {
    prompt,
    request_id: id,
    max_tokens: length,
  } = JSON.parse(body) as {
    readonly prompt: readonly number[]
    readonly request_id: string
    readonly max_tokens: number
  }
  const ids = Array.from({ length }, (_, at) => 7 + at)
  const choice = {
    ...{ index: 0, text: '', finish_reason: 'length', stop_reason: null },
    logprobs: { token_logprobs: ids.map(() => LOG_PROB) },
    ...{ token_ids: ids, prompt_token_ids: prompt },
  }
  return { id: `cmpl-${id}`, object: 'text_completion', model: 'fake', choices: [choice] }
}
