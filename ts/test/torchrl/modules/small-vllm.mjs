/** A program in place of `vllm serve`: `node small-vllm.mjs PORT [unhealthy|fails]`. It starts a process of its own, as vLLM does. */

import { spawn } from 'node:child_process'
import { createServer } from 'node:http'

const [port, mode] = process.argv.slice(2)
const { CUDA_VISIBLE_DEVICES: devices, VLLM_RAY_BUNDLE_INDICES: bundles, FULMAR_TEST: extra } = process.env
const worker = spawn('sleep', ['1000'], { stdio: 'ignore' })
console.log(`worker ${worker.pid} devices ${devices} bundles ${bundles} extra ${extra}`)
if (mode === 'fails') {
  console.error('no such model')
  process.exit(3)
}
let numAsked = 0
const server = createServer(async (request, response) => {
  let body = ''
  for await (const part of request) body += part
  const answer = (status, value) => {
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(JSON.stringify(value))
  }
  numAsked += 1
  if (request.url === '/health') return answer(mode === 'unhealthy' || numAsked < 3 ? 503 : 200, {})
  if (request.url === '/v1/models') return answer(200, { data: [{ id: `on ${devices} of ${worker.pid}` }] })
  const { prompt, request_id: id, max_tokens: count } = JSON.parse(body)
  const token_ids = new Array(count).fill(7)
  const logprobs = { token_logprobs: token_ids.map(() => -0.5) }
  const choice = { token_ids, prompt_token_ids: prompt, logprobs, finish_reason: 'length' }
  answer(200, { id: `cmpl-${id}`, choices: [choice] })
})
server.listen(Number(port), '127.0.0.1')
