/** Blocks of Python that a model wrote, in sandboxes, compared with TorchRL's interpreters, which have none; 1 and 16 at once. */

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ToolRunner } from 'fulmar'
import { pythonTool, Sandbox } from 'fulmar/tools'
import { alternate, type Figure, hand, median, quantile, ROOT, readOptions, verdict } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

const RIVAL = join(fileURLToPath(new URL('benches/rival/torchrl/', ROOT)), 'python.py')
/** Ours is to be no slower, with the sandbox on. */
const GOAL = { atLeast: 1 }
/** Medians of single calls in milliseconds. */
const FRESH_MS = 80
const PERSISTENT_MS = 5
/** Single calls of a sample; one alone is too short to time. */
const CALLS = { fresh: 5, persistent: 50 }

const options = readOptions({ rounds: 9 })
const support = await Sandbox.support()
if (!support.isUsable) throw new Error(`a sandbox must work here: ${support.reason}`)
const rival = startRival()
const versions = rival instanceof Peer ? await versionsOf(rival) : {}
const figures: Figure[] = []
const notes: string[] = []
for (const persistent of [false, true])
  for (const count of [1, 16]) figures.push(await measure(persistent, count))
if (rival instanceof Peer) rival[Symbol.dispose]()
hand({
  setting: { code: 'print(1 + 1)', callsOfASample: CALLS, sandbox: 'bubblewrap' },
  checks: ['every call on both sides printed 2'],
  figures,
  notes,
  versions,
})

function startRival(): Peer | { readonly skipped: string } {
  if (!options.rival) return { skipped: '--no-rival' }
  const installed = installTrl()
  return 'skipped' in installed
    ? installed
    : new Peer('TorchRL', installed.python, [RIVAL], PYTHON_ENVIRONMENT)
}

async function versionsOf(peer: Peer): Promise<Record<string, string>> {
  return ((await peer.answer()) as { versions: Record<string, string> }).versions
}

async function measure(persistent: boolean, count: number): Promise<Figure> {
  const warm = persistent ? { numWarm: 0 } : count > 1 ? { numWarm: count } : {}
  using python = pythonTool({ persistent, ...warm })
  const runner = new ToolRunner({ tools: [python] })
  const conversations = Array.from({ length: count }, () => new AbortController())
  const latencies: number[] = []
  const call = async ({ signal }: AbortController) => {
    const startMs = performance.now()
    const calls = [{ tool: 'python', args: { code: 'print(1 + 1)' }, tag: null }]
    const [result] = await runner.run(calls, { messages: [], conversation: signal })
    latencies.push(performance.now() - startMs)
    const value = result?.ok ? result.value : undefined
    const printed = typeof value === 'object' && value !== null && 'stdout' in value ? value.stdout : result
    if (printed !== '2\n') throw new Error(`each call must print 2: got ${JSON.stringify(printed)}`)
  }
  const repeats = persistent ? CALLS.persistent : CALLS.fresh
  const ours = async () => {
    const startMs = performance.now()
    for (let repeat = 0; repeat < repeats; repeat++) await Promise.all(conversations.map(call))
    return { value: (performance.now() - startMs) / repeats }
  }
  const theirs = async (peer: Peer) => {
    let total = 0
    for (let repeat = 0; repeat < repeats; repeat++) {
      const { ms } = (await peer.ask(JSON.stringify({ kind: 'run', persistent, count }))) as { ms: number }
      total += ms
    }
    return { value: total / repeats }
  }
  const contestants = rival instanceof Peer ? { ours, rival: () => theirs(rival) } : { ours }
  const rounds = await alternate<string>(contestants, { ...options, warmup: 1 })
  for (const conversation of conversations) conversation.abort()
  const work = `${count} ${persistent ? 'persistent' : 'fresh'} ${count === 1 ? 'call' : 'calls at once'}`
  if (count === 1) {
    const goal = verdict(median(latencies), persistent ? PERSISTENT_MS : FRESH_MS, 'ms')
    notes.push(
      `${work}: p50 ${median(latencies).toFixed(2)} ms (${goal}), p99 ${quantile(latencies, 0.99).toFixed(2)} ms`,
    )
  }
  notes.push(`${work}: ${rounds.disturbance}`)
  return {
    work,
    unit: 'ms',
    ours: rounds.of('ours').warm,
    rival: rival instanceof Peer ? { name: 'TorchRL', samples: rounds.of('rival').warm } : rival,
    goal: GOAL,
  }
}
