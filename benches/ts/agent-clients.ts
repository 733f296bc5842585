/**
 * Agents that hold conversations with an endpoint, all at once. Reads a line of JSON `{ url, keys, turns }`, and answers with the
 * number of requests, the wall time and its own processor time, which is not the endpoint's.
 */

import { Agent, request } from 'node:http'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'

interface Order {
  readonly url: string
  readonly keys: readonly string[]
  readonly turns: number
}

const pool = new Agent({ keepAlive: true })

createInterface({ input: process.stdin }).on('line', (line) => {
  void run(JSON.parse(line)).then((answer) => console.log(JSON.stringify(answer)))
})

async function run({ url, keys, turns }: Order): Promise<object> {
  const [cpu, startMs] = [process.cpuUsage(), performance.now()]
  await Promise.all(keys.map((key) => converse(url, key, turns)))
  const { user, system } = process.cpuUsage(cpu)
  return { requests: keys.length * turns, wallMs: performance.now() - startMs, cpuMs: (user + system) / 1000 }
}

async function converse(url: string, key: string, turns: number): Promise<void> {
  const messages: object[] = [{ role: 'user', content: 'Read the report page by page.' }]
  for (let turn = 0; turn < turns; turn++) {
    const { choices } = JSON.parse(await post(url, key, JSON.stringify({ model: 'any', messages })))
    messages.push(choices[0].message, { role: 'user', content: 'This page says nothing of the harbour.' })
  }
}

function post(url: string, key: string, body: string): Promise<string> {
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  }
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/chat/completions`, { method: 'POST', agent: pool, headers }, (answer) => {
      text(answer).then(resolve, reject)
    })
    sent.on('error', reject).end(body)
  })
}
