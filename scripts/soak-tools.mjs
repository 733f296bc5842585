/**
 * `node --expose-gc scripts/soak-tools.mjs [--calls 10000] [--steps 1000] [--out FILE.json]`: a long life of the tools. Half of the calls are of
 * `python` in sandboxes, half of two MCP servers; the steps are of `browser`, on a site of its own. Conversations end after some calls, and
 * some calls are hostile. Prints memory, descriptors and processes, and fails if a result is wrong or something stays. Needs `dist/`.
 */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { parseArgs } from 'node:util'
import { browserTools, mcpTools, pythonTool } from '../dist/entry/tools.js'
import { ToolRunner } from '../dist/index.js'

const { values } = parseArgs({
  options: {
    calls: { type: 'string', default: '10000' },
    steps: { type: 'string', default: '1000' },
    out: { type: 'string' },
  },
})

/** Calls of one conversation. */
const CONVERSATION = 50
/** Looks at memory. */
const SAMPLES = 20
/** Memory that may come in the second half. */
const GROWTH_MB_MAX = 30
/** Programs that tools start. */
const STARTED = /bwrap|python3|chrom|server-everything|server-memory|sleep 1000/

const startMs = performance.now()
const before = started()
const report = {}
for (const [name, count, make] of [
  ['python', Number(values.calls) / 2, pythonCalls],
  ['mcp', Number(values.calls) / 2, mcpCalls],
  ['browser', Number(values.steps), browserSteps],
])
  report[name] = await soaked(name, Math.floor(count), make)
// Ends of groups are seen a moment after their signal.
let left = started()
for (let tries = 0; left.length > before.length && tries < 100; tries++) {
  await new Promise((resolve) => setTimeout(resolve, 50))
  left = started()
}
report.seconds = Math.round((performance.now() - startMs) / 1000)
report.processesLeft = left.length - before.length
if (values.out) writeFileSync(values.out, `${JSON.stringify(report, undefined, 2)}\n`)
const isFine =
  report.processesLeft === 0 &&
  ['python', 'mcp', 'browser'].every((name) => {
    const { wrong, growthMb, descriptors } = report[name]
    return wrong === 0 && growthMb <= GROWTH_MB_MAX && descriptors.last <= descriptors.first
  })
console.log(
  `processes left: ${report.processesLeft}; ${report.seconds} s: ${isFine ? 'nothing stays' : 'FAILED'}`,
)
process.exitCode = isFine ? 0 : 1

/** Runs calls until there were `count`, and measures what they leave. */
async function soaked(name, count, make) {
  const life = await make()
  const [memory, descriptors] = [[], []]
  let [wrong, conversation] = [0, new AbortController()]
  // What is made at the first calls, such as a pool, is no growth.
  for (let call = 0; call < CONVERSATION; call++) await life.call(call, conversation.signal)
  const times = []
  for (let call = 0; call < count; call++) {
    if (call % CONVERSATION === 0) {
      conversation.abort()
      conversation = new AbortController()
    }
    const from = performance.now()
    const difference = await life.call(call, conversation.signal)
    times.push(performance.now() - from)
    if (difference !== undefined && wrong++ < 5) console.log(`${name} call ${call}: ${difference}`)
    if (call % Math.ceil(count / SAMPLES) === 0) {
      globalThis.gc?.()
      memory.push(process.memoryUsage().rss / 2 ** 20)
      descriptors.push(readdirSync('/proc/self/fd').length)
    }
  }
  conversation.abort()
  await life.close()
  const half = memory.slice(Math.floor(memory.length / 2))
  const growthMb = Number((Math.min(...half.slice(-3)) - Math.min(...half.slice(0, 3))).toFixed(1))
  const sorted = times.toSorted((one, other) => one - other)
  const p50Ms = Number((sorted[Math.floor(sorted.length / 2)] ?? 0).toFixed(2))
  const seen = { first: Math.max(...descriptors.slice(0, 5)), last: Math.min(...descriptors.slice(-5)) }
  console.log(
    `${name}: ${count} calls, ${wrong} wrong, p50 ${p50Ms} ms, ${growthMb} MB in the second half, descriptors ${seen.first} to ${seen.last}`,
  )
  return { calls: count, wrong, p50Ms, growthMb, rssMb: Math.round(memory.at(-1) ?? 0), descriptors: seen }
}

function pythonCalls() {
  const python = pythonTool({ persistent: true, numWarm: 2 })
  const runner = new ToolRunner({ tools: [python], timeoutMs: 20_000 })
  /** Code, and what its answer must have. */
  const program = (call) => {
    if (call % CONVERSATION === 0) return ['total = 0', { status: 'ok' }]
    if (call % 211 === 7) return ['import os; os._exit(3)', { status: 'ended' }]
    if (call % 97 === 5) return ['1 / 0', { status: 'error' }]
    if (call % 89 === 4) return ['print("x" * 3_000_000)', { status: 'ok', isCut: true }]
    if (call % 83 === 3)
      return [
        'import subprocess; subprocess.Popen(["sleep", "1000"], start_new_session=True); 5',
        { value: '5' },
      ]
    return [`${call} * ${call}`, { status: 'ok', value: String(call * call) }]
  }
  const call = async (number, conversation) => {
    const [code, want] = program(number)
    const [result] = await runner.run([{ tool: 'python', args: { code }, tag: null }], {
      messages: [],
      conversation,
    })
    const got = result?.ok ? result.value : { status: result?.error.message }
    const name = Object.keys(want).find((key) => got[key] !== want[key])
    return name && `${name} must be ${want[name]}: got ${got[name]} of ${JSON.stringify(code)}`
  }
  return { call, close: () => python[Symbol.dispose]() }
}

async function mcpCalls() {
  const path = (name) => createRequire(import.meta.url).resolve(`@modelcontextprotocol/${name}/dist/index.js`)
  const server = (name) => ({ command: process.execPath, args: [path(name)] })
  const mcp = await mcpTools({
    servers: { every: server('server-everything'), memory: server('server-memory') },
  })
  const runner = new ToolRunner({ tools: mcp.registry, timeoutMs: 20_000 })
  const call = async (number, conversation) => {
    const [tool, args, want] =
      number % 3 === 0
        ? ['memory.search_nodes', { query: `none-${number}` }, /entities/]
        : ['every.get-sum', { a: number, b: 1 }, new RegExp(`\\b${number + 1}\\b`)]
    const [result] = await runner.run([{ tool, args, tag: null }], { messages: [], conversation })
    const text = result?.ok ? JSON.stringify(result.value) : result?.error.message
    return want.test(text) ? undefined : `${tool}: got ${text}`
  }
  return { call, close: () => mcp.close() }
}

async function browserSteps() {
  const site = createServer(({ url = '/' }, answer) => {
    const text = `<title>Page ${url}</title><input id=name><a id=next href="/${Number(url.slice(1)) + 1}">next</a>`
    answer.writeHead(200, { 'content-type': 'text/html' }).end(text)
  })
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve))
  const { port } = site.address()
  const lookup = async () => ['127.0.0.1']
  const executablePath = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'
  const [browser] = browserTools({ allowedHosts: ['site.test'], allowsPrivate: true, lookup, executablePath })
  const runner = new ToolRunner({ tools: [browser], timeoutMs: 60_000 })
  const actions = (number) => [
    { action: 'navigate', url: `http://site.test:${port}/${number}` },
    { action: 'type', selector: '#name', text: 'me' },
    { action: 'click', selector: '#next' },
    { action: 'extract' },
    { action: 'screenshot' },
  ]
  const call = async (number, conversation) => {
    const args = actions(number)[number % 5]
    const [result] = await runner.run([{ tool: 'browser', args, tag: null }], { messages: [], conversation })
    return result?.ok ? undefined : `${args.action}: ${result?.error.message}`
  }
  const close = async () => {
    await browser[Symbol.asyncDispose]()
    site.closeAllConnections()
    await new Promise((resolve) => site.close(resolve))
  }
  return { call, close }
}

/** The programs that run now and that tools could have started. */
function started() {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
  return pids.map(commandOf).filter((command) => STARTED.test(command) && !command.includes('soak-tools'))
}

function commandOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}
