/** `fulmar train CONFIG`: a whole run with a progress line, a table and a report. */

import { describeBuild } from '../core/index.js'
import { ProgressLine, type RunEvent, writeReport } from '../telemetry/index.js'
import { checkTrainConfig, runTraining, type TrainResult, trainConfigSchema } from '../train/index.js'
import { type CliIo, percent, printJson, printTable, readJsonInput } from './io.js'

/** Flags of the command. */
export interface TrainFlags {
  readonly resume?: boolean
  readonly json?: boolean
  readonly schema?: boolean
}

/** Runs the training that the JSON file at `path` describes, or prints the JSON Schema of such files. */
export async function train(
  path: string,
  { resume = false, json = false, schema = false }: TrainFlags,
  io: CliIo,
): Promise<void> {
  if (schema) return void io.stdout.write(`${JSON.stringify(trainConfigSchema(), null, 2)}\n`)
  const config = checkTrainConfig(withBackend(await readJsonInput('config', path, io)), { tasks: {} })
  const progress = new ProgressLine({ stream: io.stderr })
  const onEvent = (event: RunEvent) => {
    if (event.event === 'step') progress.update(event)
    if (event.event === 'eval') {
      progress.print(
        `${event.phase} step ${event.step}: pass rate ${percent(event.passRate)} of ${event.numProblems}`,
      )
    }
  }
  try {
    const result = await runTraining(config, { onEvent, resume, signal: io.signal })
    const report = await writeReport(config.runDir)
    if (json) printJson(result, io)
    else printTable(tableOf(result, report), io)
  } finally {
    progress.end()
  }
}

/** A configuration that names no build of the core means the one that is loaded. */
function withBackend(json: unknown): unknown {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return json
  return { backend: describeBuild().backend, ...json }
}

function tableOf(result: TrainResult, report: string): [string, string][] {
  return [
    ['held-out problems', String(result.numProblems)],
    ['pass rate before GRPO', percent(result.passRateBefore)],
    ['pass rate after GRPO', percent(result.passRateAfter)],
    ['seconds per step', result.secondsPerStep.toFixed(3)],
    ['sampled tokens/s', result.tokensPerSecond.toFixed(0)],
    ['run folder', result.runDir],
    ['report', report],
  ]
}
