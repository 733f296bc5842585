/** `fulmar eval RUN_DIR`: measures the policy of a run on held-out problems. */

import { readRun } from '../telemetry/index.js'
import { checkTrainConfig, evaluateRun } from '../train/index.js'
import { type CliIo, percent, printJson, printTable } from './io.js'
import { readTask } from './task-file.js'

/** Flags of the command, as they were typed. */
export interface EvaluateFlags {
  readonly numProblems?: string
  readonly temperature?: string
  readonly task?: string
  readonly json?: boolean
}

/** Evaluates the policy in `runDir` on the problems that its configuration describes. */
export async function evaluate(runDir: string, flags: EvaluateFlags, io: CliIo): Promise<void> {
  const { config: written } = await readRun(runDir)
  const task = flags.task === undefined ? undefined : await readTask(flags.task)
  const tasks = task ? { [task.name]: task.factory } : {}
  const config = checkTrainConfig(typeof written === 'object' ? { ...written, runDir } : written, { tasks })
  const { numProblems = config.eval.numProblems, temperature = config.eval.temperature, json = false } = flags
  const options = {
    numProblems: Number(numProblems),
    temperature: Number(temperature),
    signal: io.signal,
    tasks,
  }
  const evaluation = await evaluateRun(config, options)
  const { samples: _, ...summary } = evaluation
  if (json) return printJson(summary, io)
  const meanReward =
    evaluation.meanReward === null ? 'no rollout could be scored' : evaluation.meanReward.toFixed(3)
  const rows: [string, string][] = [
    ['held-out problems', String(evaluation.numProblems)],
    ['temperature', String(options.temperature)],
    ['pass rate', `${percent(evaluation.passRate)} (95 %: ${evaluation.interval.map(percent).join(' to ')})`],
    ['mean reward', meanReward],
  ]
  printTable(rows, io)
}
