/** Uses a thread, and a server over the runtime's own HTTP client. */

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { AsyncVLLM, Decoder, DecoderPolicy, WorkerPolicy } from 'fulmar'

const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8 }
const decoder = Decoder.fromSeed({ ...shape, num_hidden_layers: 1, num_attention_heads: 2 }, { seed: 1 })
const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 7, maxTokens: 4, stopIds: [] }
const here = await new DecoderPolicy(decoder).generate(request)
const thread = await WorkerPolicy.launch(decoder)
assert.deepEqual((await thread.generate(request)).ids, here.ids)
await thread.close()
decoder[Symbol.dispose]()

/** An engine that answers every token with 7. */
const server = createServer(async (incoming, outgoing) => {
  let body = ''
  for await (const part of incoming) body += part
  outgoing.setHeader('content-type', 'application/json')
  if (incoming.url === '/v1/models')
    return outgoing.end(JSON.stringify({ data: [{ id: 'tiny', max_model_len: 64 }] }))
  const { prompt, request_id, max_tokens } = JSON.parse(body)
  const token_ids = new Array(max_tokens).fill(7)
  const logprobs = { token_logprobs: token_ids.map(() => -0.5) }
  const choice = { token_ids, prompt_token_ids: prompt, logprobs, finish_reason: 'length' }
  outgoing.end(JSON.stringify({ id: `cmpl-${request_id}`, choices: [choice] }))
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const policy = await AsyncVLLM.connect(`http://127.0.0.1:${server.address().port}`)
const answers = await Promise.all(
  [1, 2, 3].map((maxTokens) => policy.generate({ ...request, requestId: `r${maxTokens}`, maxTokens })),
)
assert.deepEqual(
  answers.map(({ ids }) => [...ids]),
  [[7], [7, 7], [7, 7, 7]],
)
await policy.close()
server.close()
