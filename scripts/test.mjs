/**
 * `npm test [stage ...]`: sets up what is missing, runs every stage, and ends with `N passed, N failed, N skipped`.
 *
 * `npm run ready` (`--stop-at-first-failure`) is the same up to the first stage that fails. `--changed` runs only what the
 * files changed since the last commit can break, or since the one of `--since COMMIT`.
 */

import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { stagesForChanges } from './changed.mjs'
import { checkTools, STAGES } from './stages.mjs'
import { asProgram, Refusal } from './steps.mjs'

/** Most stages that run at once. A stage keeps about one core busy and takes up to 2 GB of memory. */
const LANES = Math.min(availableParallelism(), 4)

/** Most reasons for skipped tests that are shown of a stage. */
const REASONS_MAX = 10

const OPTIONS = {
  'stop-at-first-failure': { type: 'boolean', default: false },
  changed: { type: 'boolean', default: false },
  since: { type: 'string' },
}

asProgram(async () => {
  const { names, since, stopAtFirst } = readCommand()
  checkTools()
  const chosen = since === undefined ? chooseStages(names) : stagesForChanges(chooseStages(names), since)
  if (since !== undefined) announceChosen(chosen)
  const start = performance.now()
  const results = await withoutLitter(() => runStages(chosen, stopAtFirst))
  return conclude(chosen, results, performance.now() - start)
})

/** Gives tests and examples a folder for their temporary files, and removes it after them. */
async function withoutLitter(work) {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-'))
  // Sandboxes of tests run as other users, as in the folder of all programs.
  chmodSync(folder, 0o1777)
  process.env.TMPDIR = folder
  try {
    return await work()
  } finally {
    try {
      rmSync(folder, { recursive: true, force: true })
    } catch (error) {
      // The counts are worth more than a clean folder.
      process.stdout.write(`left behind: ${error.message}\n`)
    }
  }
}

/** `since` is the commit whose changes are tested; `undefined` means everything is. */
function readCommand() {
  let command
  try {
    command = parseArgs({ options: OPTIONS, allowPositionals: true })
  } catch (error) {
    throw new Refusal(error.message)
  }
  const { changed, since = 'HEAD', 'stop-at-first-failure': stopAtFirst } = command.values
  if (!changed && command.values.since !== undefined) throw new Refusal('--since needs --changed')
  return { names: command.positionals, since: changed ? since : undefined, stopAtFirst }
}

/** A run of some stages must not look like a run of all. */
function announceChosen(chosen) {
  const left = STAGES.filter(({ name }) => !chosen.some((stage) => stage.name === name))
  process.stdout.write(`left out, as no changed file reaches them or they take long: ${names(left)}\n`)
  const narrowed = chosen.filter(({ scope }) => scope !== undefined)
  if (narrowed.length > 0) process.stdout.write(`only the tests near the change: ${names(narrowed)}\n`)
}

function names(stages) {
  return stages.map(({ name }) => name).join(', ')
}

/** The result of each stage that ran, by name. */
async function runStages(chosen, stopAtFirst) {
  const results = new Map()
  const running = new Map()
  const isChosen = (name) => chosen.some((stage) => stage.name === name)
  const isReady = ({ name, needs = [] }) =>
    !results.has(name) && !running.has(name) && needs.every((need) => results.has(need) || !isChosen(need))
  const hasFailed = () => [...results.values()].some(({ failed }) => failed > 0)
  for (;;) {
    const next = stopAtFirst && hasFailed() ? undefined : chosen.find(isReady)
    if (next !== undefined && running.size < LANES) {
      const noWasm = results.get('wasm-build')?.noWasm
      running.set(next.name, runStage(next, next.wasm && noWasm !== undefined))
      continue
    }
    if (running.size === 0) return results
    const { name, ...result } = await Promise.race(running.values())
    running.delete(name)
    results.set(name, result)
    report(name, result)
  }
}

async function runStage({ name, run, scope }, isSkipped) {
  const start = performance.now()
  process.stdout.write(`${name} ...\n`)
  // The number of skipped tests is known once the stage named by `like` has ended.
  const result = isSkipped ? { passed: 0, failed: 0, skipped: 1, output: '', isLike: true } : await run(scope)
  return { name, ...result, seconds: (performance.now() - start) / 1000 }
}

function chooseStages(names) {
  const unknown = names.find((name) => !STAGES.some((stage) => stage.name === name))
  if (unknown) {
    throw new Refusal(`stage must be one of ${STAGES.map((stage) => stage.name).join(', ')}: got ${unknown}`)
  }
  return names.length === 0 ? STAGES : STAGES.filter((stage) => names.includes(stage.name))
}

function report(name, { passed, failed, skipped, output, noWasm, seconds }) {
  if (noWasm) process.stdout.write(`${'!'.repeat(72)}\n! WebAssembly SKIPPED: ${noWasm}\n${'!'.repeat(72)}\n`)
  const reasons = new Set(output.match(/^.*\bSKIPPED: .*$/gm))
  for (const reason of [...reasons].slice(0, REASONS_MAX)) process.stdout.write(`${name}: ${reason}\n`)
  if (failed) process.stdout.write(`${output.trimEnd().split('\n').slice(-200).join('\n')}\n`)
  const verdict = failed ? 'FAILED' : passed ? 'ok' : 'SKIPPED'
  const rest = skipped && passed ? `, ${skipped} skipped` : ''
  process.stdout.write(`${name}: ${verdict} in ${seconds.toFixed(1)} s${rest}\n`)
}

/** The table of all stages, in their order, and the line of all counts. */
function conclude(chosen, results, milliseconds) {
  const total = { passed: 0, failed: 0, skipped: 0 }
  const ran = chosen.filter(({ name }) => results.has(name))
  const rows = ran.map(({ name, like }) => {
    const result = results.get(name)
    const found = result.isLike ? skipLike(result, results.get(like)) : result
    for (const key of Object.keys(total)) total[key] += found[key]
    return row(name, found)
  })
  const head = [
    'stage'.padEnd(20),
    'passed'.padStart(8),
    'failed'.padStart(8),
    'skipped'.padStart(8),
    'seconds'.padStart(9),
  ]
  const all = row('all', { ...total, seconds: milliseconds / 1000 })
  process.stdout.write(`\n${head.join('')}\n${rows.join('\n')}\n${all}\n\n`)
  const noWasm = results.get('wasm-build')?.noWasm
  if (noWasm) process.stdout.write(`WebAssembly was not tested: ${noWasm}\n`)
  process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`)
  return total.failed === 0 ? 0 : 1
}

/** Returns the counts of a stage that cannot run: as many skipped tests as its model has. */
function skipLike(result, model) {
  return model ? { ...result, skipped: model.passed + model.failed + model.skipped } : result
}

function row(name, { passed, failed, skipped, seconds }) {
  const counts = [passed, failed, skipped].map((count) => String(count).padStart(8)).join('')
  return `${name.padEnd(20)}${counts}${seconds.toFixed(1).padStart(9)}`
}
