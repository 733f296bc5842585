/**
 * Trains a tiny language model from nothing: a short supervised warm start until it answers in the right form, then
 * GRPO on its own rollouts until its answers are right. The task: `Sum of digits: [24, 13]` -> `[ANSWER] 10`.
 *
 *     npm run quickstart -- [--seed 7] [--steps 400] [--json] [--backend native|wasm]
 */

import { parseArgs } from 'node:util'
import { describeBuild } from 'fulmar'
import { checkTrainConfig, ProgressLine, runTraining, type TrainResult, writeReport } from 'fulmar/train'

const { values: flags } = parseArgs({
  options: {
    seed: { type: 'string', default: '0' },
    steps: { type: 'string', default: '400' },
    json: { type: 'boolean', default: false },
    smoke: { type: 'boolean', default: false },
  },
})
const seed = Number(flags.seed)

// Two numbers of two digits: 8,100 problems, of which every tenth is held out and never trained on.
const config = checkTrainConfig({
  seed,
  backend: describeBuild().backend,
  runDir: `runs/sum-digits-seed${seed}`,
  task: { name: 'sumDigits', numbers: [2, 2], min: 10, max: 99, prompt: 'short' },
  model: flags.smoke ? { hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 } : {},
  sft: {
    steps: flags.smoke ? 3 : 140,
    batchSize: flags.smoke ? 4 : 64,
    learningRate: 1e-3,
    optimizer: { beta2: 0.98 },
  },
  grpo: {
    steps: flags.smoke ? 2 : Number(flags.steps),
    promptsPerStep: flags.smoke ? 2 : 16,
    groupSize: 8,
    maxTokens: 14,
    learningRate: 2e-4,
    optimizer: { beta2: 0.98 },
    stdNormalize: true,
  },
  eval: { numProblems: flags.smoke ? 10 : 500, everySteps: 50 },
})

const progress = new ProgressLine({ stream: process.stderr })
const result = await runTraining(config, {
  onEvent: (event) => {
    if (event.event === 'step') progress.update(event)
    if (event.event === 'eval') progress.print(`pass rate on held-out problems: ${percent(event.passRate)}`)
  },
})
const report = await writeReport(config.runDir)
printTable(result)
if (flags.json) console.log(JSON.stringify(result))

/** Prints the effect of GRPO on held-out problems. */
function printTable({
  passRateBefore,
  passRateAfter,
  numProblems,
  secondsPerStep,
  tokensPerSecond,
  runDir,
}: TrainResult) {
  const print = flags.json ? console.error : console.log
  print(`
held-out problems    ${numProblems}, one answer each, drawn at temperature 1
pass rate before     ${percent(passRateBefore)}   (after the warm start)
pass rate after      ${percent(passRateAfter)}   (after ${config.grpo.steps} steps of GRPO)
speed                ${(secondsPerStep * 1000).toFixed(0)} ms a step, ${tokensPerSecond.toFixed(0)} sampled tokens/s
run folder           ${runDir}   (config, log, samples, checkpoints)
learning curve       ${report}`)
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1).padStart(5)} %`
}
