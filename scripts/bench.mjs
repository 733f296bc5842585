/**
 * `npm run bench -- [name...] [--rounds N] [--patience SECONDS] [--no-rival] [--no-build] [--no-record]`: measures ours
 * and its rivals in turn.
 *
 * Runs the programs of `benches/ts` that have a name in `BENCHES`, each in a process of its own; all but `build` where
 * none is named. Prints a table for each and writes `benches/record/<machine>/<bench>-<date>.json`. See benches/README.md.
 */

import { fork } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { formatReport, machine, recordOf } from './bench-report.mjs'
import {
  asProgram,
  buildAddon,
  buildWasm,
  checkTools,
  compileExamples,
  compileSources,
  installPackages,
  Refusal,
  root,
} from './steps.mjs'

const BENCHES = [
  'grpo-step',
  'smollm2',
  'smollm2-memory',
  'smollm2-grpo',
  'speculation',
  'chat',
  'replay',
  'store',
  'objective',
  'products',
  'packing',
  'collector',
  'chat-task',
  'python',
  'dataset',
  'tree',
  'vllm',
  'agent',
  'eval',
  'node-boundary',
  'micro',
]
/** Builds a clone of the last commit, again and again, for an hour: it runs where it is named. */
const BUILD = 'build'
/** Measures the WebAssembly module too. */
const IN_WASM = 'chat'
/** The rivals' figures were measured on two cores. */
const THREADS = '2'
/** Fewer rounds are a look and no measurement. */
const RECORDED_ROUNDS_MIN = 7

const OPTIONS = {
  rounds: { type: 'string' },
  patience: { type: 'string' },
  rival: { type: 'boolean', default: true },
  build: { type: 'boolean', default: true },
  record: { type: 'boolean', default: true },
}

asProgram(async () => {
  const { values, positionals } = readCommand()
  checkTools()
  const benches = positionals.length > 0 ? positionals : BENCHES
  if (values.build)
    await build({
      needsAddon: benches.some((name) => name !== BUILD),
      needsWasm: benches.includes(IN_WASM),
    })
  await compileExamples()
  const keepsRecord = values.record && values.build && !(Number(values.rounds) < RECORDED_ROUNDS_MIN)
  let code = 0
  for (const bench of benches) {
    process.stdout.write(`\n${bench}\n`)
    const report = await runBench(bench, values)
    if (!report) {
      code = 1
      continue
    }
    process.stdout.write(formatReport(report))
    if (keepsRecord) process.stdout.write(`record: ${writeRecord(bench, report)}\n`)
  }
  return code
})

function readCommand() {
  let command
  try {
    command = parseArgs({ options: OPTIONS, allowPositionals: true, allowNegative: true })
  } catch (error) {
    throw new Refusal(error.message)
  }
  const { rounds, patience } = command.values
  for (const [name, value, least] of [
    ['rounds', rounds, 1],
    ['patience', patience, 0],
  ]) {
    if (value !== undefined && !(Number.isInteger(Number(value)) && Number(value) >= least))
      throw new Refusal(`--${name} must be an integer of at least ${least}: got ${value}`)
  }
  const unknown = command.positionals.find((name) => ![...BENCHES, BUILD].includes(name))
  if (unknown) throw new Refusal(`bench must be one of ${[...BENCHES, BUILD].join(', ')}: got ${unknown}`)
  return command
}

/** Figures of an old build would be wrong, so it is rebuilt unless an option forbids it. */
async function build({ needsAddon, needsWasm }) {
  await installPackages()
  if (needsAddon) await buildAddon({ release: true })
  const missing = needsWasm ? await buildWasm({ release: true }) : undefined
  if (missing) throw new Refusal(`bench ${IN_WASM} must have the WebAssembly module: ${missing}`)
  await compileSources()
}

/** The report of one bench; `undefined` where it failed, after its own words. */
function runBench(bench, { rounds, patience, rival }) {
  const args = [rounds && `--rounds=${rounds}`, patience && `--patience=${patience}`, !rival && '--no-rival']
  const child = fork(`${root}build/benches/ts/${bench}.js`, args.filter(Boolean), {
    cwd: root,
    env: { ...process.env, RAYON_NUM_THREADS: THREADS },
    execArgv: ['--enable-source-maps'],
  })
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => child.kill(signal))
  let report
  child.on('message', (message) => {
    report = message
  })
  return new Promise((resolve) => child.on('close', (code) => resolve(code === 0 ? report : undefined)))
}

/** Writes the record of today and tells its path in the repository. */
function writeRecord(bench, report) {
  const folder = `benches/record/${machine().name}`
  const path = `${folder}/${bench}-${new Date().toISOString().slice(0, 10)}.json`
  mkdirSync(root + folder, { recursive: true })
  writeFileSync(root + path, `${JSON.stringify(recordOf(bench, report), null, 2)}\n`)
  return path
}
