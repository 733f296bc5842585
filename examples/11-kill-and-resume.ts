/**
 * A run that is killed loses nothing. Trains as a configuration says; trains so again, kills that process with SIGKILL
 * while it is at work, and resumes it; then compares both run logs line by line, but for times, the sampled rollouts, and the
 * weights bit for bit. Leaves with status 1 if anything differs, or if training changed no weight.
 *
 *     node scripts/smollm2.mjs
 *     npm run build && node scripts/examples.mjs native      # compiles the examples
 *     node build/examples/11-kill-and-resume.js [--config examples/configs/grpo-gsm8k.json] [--kill-after 11]
 *
 * The configuration names files of GSM8K's rows (MIT, https://github.com/openai/grade-school-math), which are not part of this
 * repository. docs/runs/smollm2-gsm8k-resume/ shows a run. `--smoke` trains a tiny decoder on the sum of digits.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { describeBuild } from 'fulmar'
import { checkTrainConfig, type RunEvent, runTraining } from 'fulmar/train'

const { values: flags } = parseArgs({
  options: {
    config: { type: 'string', default: 'examples/configs/grpo-gsm8k.json' },
    'kill-after': { type: 'string', default: '11' },
    folder: { type: 'string', default: 'runs/kill-and-resume' },
    smoke: { type: 'boolean', default: false },
    train: { type: 'string' },
    resume: { type: 'boolean', default: false },
  },
})

/** Long enough that no machine is done with it before the kill arrives. */
const SMOKE = {
  seed: 5,
  model: { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 },
  sft: { steps: 20, batchSize: 8, learningRate: 0.02 },
  grpo: { steps: 60, promptsPerStep: 2, groupSize: 4, maxTokens: 12 },
  eval: { numProblems: 4, everySteps: 20 },
  checkpointEverySteps: 5,
}

if (flags.train === undefined) process.exitCode = (await compare()) ? 0 : 1
else await trainHere(flags.train)

/** The program of a child: trains, and tells its parent of every line of the log. */
async function trainHere(path: string) {
  const config = checkTrainConfig(JSON.parse(await readFile(path, 'utf8')))
  await runTraining(config, { resume: flags.resume, onEvent: (event) => void process.send?.(event) })
  process.disconnect()
}

async function compare(): Promise<boolean> {
  const killAfter = Number(flags['kill-after'])
  const folder = flags.smoke ? await mkdtemp(join(tmpdir(), 'fulmar-resume-')) : flags.folder
  const config = flags.smoke ? SMOKE : JSON.parse(await readFile(flags.config, 'utf8'))
  const [whole, resumed] = [join(folder, 'whole'), join(folder, 'resumed')]
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })

  const paths: string[] = []
  for (const runDir of [whole, resumed]) {
    const path = `${runDir}.json`
    await writeFile(path, JSON.stringify({ ...config, backend: describeBuild().backend, runDir }))
    paths.push(path)
  }
  const [wholePath = '', resumedPath = ''] = paths

  await finish('whole', start(wholePath))
  const expected = await resultOf(whole)

  const killed = start(resumedPath)
  killed.on('message', (event: RunEvent) => {
    if (event.event === 'step' && event.phase === 'grpo' && event.step === killAfter) killed.kill('SIGKILL')
  })
  if ((await finish('killed', killed)) !== 'SIGKILL')
    throw new Error(`the run must be alive after step ${killAfter}: got its end`)
  console.log(`killed after step ${killAfter}`)
  await finish('resumed', start(resumedPath, '--resume'))
  const found = await resultOf(resumed)
  if (flags.smoke) await rm(folder, { recursive: true })

  const checks = [
    isSame('log.jsonl', expected.log, found.log),
    isSame('samples.jsonl', expected.samples, found.samples),
    isSame('weights', [expected.weights], [found.weights]),
  ]
  const hasLearnt = expected.weights !== expected.firstWeights
  if (!hasLearnt) console.log('GRPO left the weights as they were: there was nothing to compare')
  const isEqual = hasLearnt && !checks.includes(false)
  console.log(isEqual ? 'EQUAL: the killed run is the whole run' : 'NOT EQUAL')
  return isEqual
}

function start(path: string, ...more: readonly string[]): ChildProcess {
  return fork(fileURLToPath(import.meta.url), ['--train', path, ...more])
}

/** Prints what a run says of itself; resolves with the signal that ended it, if one did. */
async function finish(name: string, child: ChildProcess): Promise<NodeJS.Signals | null> {
  child.on('message', (event: RunEvent) => {
    if (!flags.smoke) console.log(`${name.padEnd(8)} ${describe(event)}`)
  })
  const { code, signal } = await new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) =>
    child.on('close', (code, signal) => done({ code, signal })),
  )
  if (code !== 0 && signal === null) throw new Error(`${name}: the run must end with status 0: got ${code}`)
  return signal
}

function describe(event: RunEvent): string {
  const rounded = (value: number | undefined) => (value === undefined ? '-' : value.toPrecision(4))
  if (event.event === 'eval')
    return `${event.phase} step ${event.step}: solves ${event.passRate} of ${event.numProblems}`
  if (event.event === 'result') return 'done'
  const { phase, step, numSteps, metrics } = event
  const { loss, reward, gradientNorm, seconds } = metrics
  const learnt = phase === 'grpo' ? `reward ${rounded(reward)}` : `loss ${rounded(loss)}`
  return `${phase} ${step}/${numSteps}: ${learnt}, gradient norm ${rounded(gradientNorm)}, ${rounded(seconds)} s`
}

interface RunResult {
  /** Lines of the log as JSON, without what depends on the clock. */
  readonly log: readonly string[]
  readonly samples: readonly string[]
  /** SHA-256 of the weights at the end, and of those that GRPO began with. */
  readonly weights: string
  readonly firstWeights: string
}

async function resultOf(runDir: string): Promise<RunResult> {
  const [log, samples] = [join(runDir, 'log.jsonl'), join(runDir, 'samples.jsonl')]
  const result = {
    log: (await linesOf(log)).map((line) => timeless(JSON.parse(line))),
    samples: await linesOf(samples),
    weights: await digestOf(join(runDir, 'policy', 'model.safetensors')),
    firstWeights: await digestOf(join(runDir, 'warm-start', 'model.safetensors')),
  }
  // Weights and moments in 32 bits are 12 bytes a weight, and one set is enough.
  await rm(join(runDir, 'checkpoint'), { recursive: true, force: true })
  return result
}

async function linesOf(path: string): Promise<string[]> {
  return (await readFile(path, 'utf8')).trimEnd().split('\n')
}

function timeless(line: unknown): string {
  const isTime = (key: string) => /seconds|tokensPerSecond/i.test(key)
  return JSON.stringify(line, (key, value) => (isTime(key) ? undefined : value))
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path)) hash.update(chunk)
  return hash.digest('hex')
}

function isSame(name: string, expected: readonly string[], found: readonly string[]): boolean {
  const length = Math.max(expected.length, found.length)
  const differing = Array.from({ length }, (_, at) => at).filter((at) => expected[at] !== found[at])
  for (const at of differing.slice(0, 3)) {
    console.log(`${name}, line ${at + 1}:\n  whole:   ${expected[at]}\n  resumed: ${found[at]}`)
  }
  const verdict = differing.length === 0 ? 'the same' : `${differing.length} differ`
  console.log(`${name}: ${length} ${length === 1 ? 'line' : 'lines'}, ${verdict}`)
  return differing.length === 0
}
