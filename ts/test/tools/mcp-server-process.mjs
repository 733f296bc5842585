/** An MCP server without a library, which misbehaves as its tools ask: `node mcp-server-process.mjs [MODE]`. */

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const [, , mode = ''] = process.argv
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const text = (value) => ({ content: [{ type: 'text', text: value }] })
const TOOLS = [
  'ok',
  'hang',
  'die',
  'flood',
  'long',
  'garbage',
  'noise',
  'rename',
  'progress',
  'wait',
  'fail',
  'refuse',
  'wrong',
  'spawn',
]
let names = [...TOOLS, 'bad name', 'n'.repeat(80)]
let isDeaf = false

if (mode === 'many') names = Array.from({ length: 513 }, (_, index) => `t${index}`)
if (mode === 'noise') process.stdout.write('Welcome!\n{"not": "a message"}\n\n[1]\n')
if (mode === 'die') {
  process.stderr.write('no license\n')
  process.exit(3)
}

const CALLS = {
  ok: () => text('fine'),
  hang: () => {
    isDeaf = true
  },
  die: () => process.exit(7),
  flood: () => {
    const line = `${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x'.repeat(60_000) } })}\n`
    const more = () => {
      while (process.stdout.write(line));
      process.stdout.once('drain', more)
    }
    more()
  },
  long: () => {
    for (let count = 0; count < 20; count++) process.stdout.write('x'.repeat(2_000_000))
  },
  garbage: () => process.stdout.write('no message\n'.repeat(2_000)),
  noise: () => {
    process.stdout.write('log: working\n{"jsonrpc": "2.0", "id": 999, "result": {}}\n')
    return text('heard')
  },
  rename: () => {
    names = ['renamed']
    send({ method: 'notifications/tools/list_changed' })
    return text('done')
  },
  progress: (_id, params) => {
    const progressToken = params._meta?.progressToken
    for (const progress of [1, 2])
      send({
        method: 'notifications/progress',
        params: { progressToken, progress, total: 2, message: `part ${progress}` },
      })
    return text('done')
  },
  wait: () => {}, // until it is cancelled
  fail: () => ({ ...text('it is broken'), isError: true }),
  wrong: () => ({ content: 7 }),
  spawn: (_id, params) => {
    spawn(process.execPath, ['-e', 'setTimeout(() => {}, 1e6)', params.arguments.mark], { stdio: 'inherit' })
    return text('running')
  },
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (method === 'notifications/cancelled') process.stderr.write(`cancelled ${params.requestId}\n`)
  if (isDeaf || id === undefined) return
  if (method === 'initialize') {
    if (mode === 'hang') return
    const { protocolVersion } = params
    send({
      id,
      result: {
        protocolVersion,
        capabilities: { tools: { listChanged: true } },
        serverInfo: { name: 'test', version: '1' },
      },
    })
  } else if (method === 'tools/list') {
    send({
      id,
      result: {
        tools: names.map((name) => ({
          name,
          description: 'd'.repeat(10_000),
          inputSchema: { type: 'object' },
        })),
      },
    })
  } else if (method === 'ping') send({ id, result: {} })
  else if (method === 'tools/call' && params.name === 'refuse')
    send({ id, error: { code: -32000, message: 'not today' } })
  else if (method === 'tools/call') {
    const result = CALLS[params.name]?.(id, params)
    if (typeof result === 'object') send({ id, result })
  } else send({ id, error: { code: -32601, message: 'no such method' } })
})
