/**
 * `node --expose-gc scripts/soak-rollouts.mjs [--minutes 10] [--groups 64]`: rollouts and training side by side for a long time,
 * with a policy that answers from a script and is replaced at every step, failing environments, and runs that are stopped
 * in their middle. Prints how memory and handles grow: a line that is not flat is a leak. Needs `dist/`.
 */

import { parseArgs } from 'node:util'
import { createRenderer } from '../dist/entry/chat.js'
import { Controller, ParkingPolicy, WeightSync, windowedFifo } from '../dist/entry/collect.js'
import { Rollouter } from '../dist/entry/rollout.js'
import { sumDigits } from '../dist/entry/task.js'
import { ScriptedPolicy } from '../dist/entry/testing.js'
import { CharTokenizer } from '../dist/entry/tokenizer.js'

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, groups: { type: 'string', default: '64' } },
})
const totalMs = 60_000 * Number(values.minutes)
const groupsPerStep = Number(values.groups)
/** Figures of the first tenth are those of caches that fill. */
const WARM_UP = 0.1

const tokenizer = new CharTokenizer()
const renderer = createRenderer(tokenizer, { name: 'chatml' })
const task = sumDigits()
const totals = { runs: 0, steps: 0, rollouts: 0, errors: 0, lost: 0, doubled: 0 }
const samples = []
const startMs = performance.now()

while (performance.now() - startMs < totalMs) {
  await oneRun(totals.runs % 3 === 2)
  totals.runs += 1
  globalThis.gc?.()
  const { rss, heapUsed, external } = process.memoryUsage()
  const handles = process.getActiveResourcesInfo().length
  samples.push({ minutes: (performance.now() - startMs) / 60_000, rss, heapUsed, external, handles })
}
renderer[Symbol.dispose]()
tokenizer[Symbol.dispose]()
report()

/** Twenty steps, or fewer where the run is stopped in the middle. */
async function oneRun(isStopped) {
  const scripted = (version) => new ScriptedPolicy({ reply: answer, version })
  const policy = new ParkingPolicy(scripted(0))
  const weightSync = new WeightSync({ capture: scripted, receivers: [policy] })
  const flaky = { ...task, makeEnv: (sample) => flakyEnv(task.makeEnv(sample)) }
  const rollouter = new Rollouter({
    ...{ policy, task: flaky, renderer, groupSize: 8, maxTokens: 32, seed: totals.runs, retries: 1 },
    onError: 'drop',
  })
  let version = 0
  const controller = new Controller({
    ...{ rollouter, policy, weightSync, groupsPerStep, steps: 20 },
    staleness: windowedFifo({ groupsPerStep, offPolicySteps: 1 }),
    train: async (_, { beforeUpdate }) => {
      await beforeUpdate()
      version += 1
      return { version, metrics: {} }
    },
  })
  const seen = new Set()
  for await (const { index, groups } of controller) {
    totals.steps += 1
    for (const { groupId, rollouts } of groups) {
      if (seen.has(groupId)) totals.doubled += 1
      seen.add(groupId)
      totals.rollouts += rollouts.length
      totals.errors += rollouts.filter(({ status }) => status.startsWith('error')).length
    }
    if (isStopped && index === 7) break
  }
  const { pending, rollouter: stands } = controller.stateDict()
  totals.lost += stands.numGroups - seen.size - pending.length
}

/** A later turn of the event loop, right for the second of two. */
async function answer({ requestId }, call) {
  await new Promise((resolve) => setImmediate(resolve))
  const text = requestId.includes('rollout=0') ? 'I do not know' : `[ANSWER] ${call % 40}`
  return [...tokenizer.encode(text).ids, renderer.stopIds[0]]
}

/** One in ten steps fails. */
function flakyEnv(env) {
  return {
    init: (context) => env.init(context),
    step: (message, context) => {
      if (Math.random() < 0.1) throw new Error('the sandbox died')
      return env.step(message, context)
    },
    close: () => env.close(),
  }
}

function report() {
  const counted = samples.slice(Math.floor(samples.length * WARM_UP))
  const mb = (name) => slope(counted.map((sample) => [sample.minutes, sample[name] / 2 ** 20]))
  const handles = slope(counted.map((sample) => [sample.minutes, sample.handles]))
  console.log(
    `${totals.runs} runs, ${totals.steps} steps, ${totals.rollouts} rollouts, ${totals.errors} ended with errors`,
  )
  console.log(`groups lost ${totals.lost}, doubled ${totals.doubled}`)
  for (const name of ['rss', 'heapUsed', 'external']) {
    const last = (counted.at(-1)?.[name] ?? 0) / 2 ** 20
    console.log(`${name}: ${last.toFixed(1)} MB at the end, ${mb(name).toFixed(3)} MB a minute`)
  }
  console.log(`handles: ${counted.at(-1)?.handles} at the end, ${handles.toFixed(3)} a minute`)
}

/** Of the line of least squares through `points`. */
function slope(points) {
  const mean = (at) => points.reduce((sum, point) => sum + point[at], 0) / points.length
  const [x0, y0] = [mean(0), mean(1)]
  const across = points.reduce((sum, [x, y]) => sum + (x - x0) * (y - y0), 0)
  const along = points.reduce((sum, [x]) => sum + (x - x0) ** 2, 0)
  return along === 0 ? 0 : across / along
}
