/** `fulmar train CONFIG`: a whole run with a progress line, a table and a report. */

import { join } from 'node:path'
import { describeBuild } from '../core/index.js'
import { ProgressLine, type RunEvent, writeReport } from '../telemetry/index.js'
import {
  checkTrainConfig,
  hasCheckpoint,
  runTraining,
  type TrainResult,
  trainConfigSchema,
} from '../train/index.js'
import { CliError, type CliIo, percent, printJson, printTable, readJsonInput } from './io.js'
import { readTask, type TaskModule } from './task-file.js'

/** Flags of the command. */
export interface TrainFlags {
  readonly resume?: boolean
  readonly overwrite?: boolean
  readonly task?: string
  readonly model?: string
  readonly loraRank?: string
  readonly steps?: string
  readonly recordRollouts?: boolean
  readonly json?: boolean
  readonly schema?: boolean
}

/** Runs the training that the JSON file at `path` describes, or prints the JSON Schema of such files. */
export async function train(
  path: string | undefined,
  { resume = false, overwrite = false, task: file, json = false, schema = false, ...flags }: TrainFlags,
  io: CliIo,
): Promise<void> {
  if (schema) return void io.stdout.write(`${JSON.stringify(trainConfigSchema(), null, 2)}\n`)
  const task = file === undefined ? undefined : await readTask(file)
  const tasks = task ? { [task.name]: task.factory } : {}
  const given = path === undefined ? {} : await readJsonInput('config', path, io)
  const config = checkTrainConfig(withFlags(given, task, flags), { tasks })
  if (!resume && !overwrite) await refuseOtherRun(config.runDir)
  const progress = new ProgressLine({ stream: io.stderr })
  const onEvent = (event: RunEvent) => {
    if (event.event === 'step') progress.update(event)
    if (event.event === 'eval') {
      const { meanReward } = event
      const mean = meanReward === undefined ? '' : `, mean reward ${meanReward.toFixed(3)}`
      progress.print(
        `${event.phase} step ${event.step}: pass rate ${percent(event.passRate)} of ${event.numProblems}${mean}`,
      )
    }
  }
  progress.print(`run folder ${config.runDir}, ${config.eval.numProblems} held-out problems before and after`)
  try {
    const result = await runTraining(config, { onEvent, resume, tasks, signal: io.signal })
    const report = await writeReport(config.runDir)
    if (json) printJson(result, io)
    else printTable(tableOf(result, report), io)
  } finally {
    progress.end()
  }
}

/** @throws {CliError} `INCOMPATIBLE` if the folder holds a checkpoint, which a new run would remove. */
async function refuseOtherRun(runDir: string): Promise<void> {
  if (!(await hasCheckpoint(join(runDir, 'checkpoint')))) return
  const remedy = 'continue it by --resume, replace it by --overwrite, or give another runDir'
  throw new CliError('INCOMPATIBLE', `${runDir} holds a run: ${remedy}`)
}

/** Adds the build of the core that is loaded, where none is named, and the flags, which come before what is named. */
function withFlags(
  json: unknown,
  task: TaskModule | undefined,
  { model: path, loraRank, steps, recordRollouts }: TrainFlags,
): unknown {
  if (!isRecord(json)) return json
  const { model = {}, sft = {}, grpo = {} } = json
  const noExamples = task !== undefined && !task.hasExamples
  return {
    backend: describeBuild().backend,
    ...json,
    ...(task !== undefined && { task: { name: task.name } }),
    ...(isRecord(sft) && noExamples && { sft: { steps: 0, ...sft } }),
    ...(isRecord(model) && {
      model: {
        ...model,
        ...(path !== undefined && { path }),
        ...(loraRank !== undefined && { lora: { ...toRecord(model.lora), r: Number(loraRank) } }),
      },
    }),
    ...(recordRollouts && { record: { rollouts: 'all', tokens: true } }),
    ...(isRecord(grpo) && steps !== undefined && { grpo: { ...grpo, steps: Number(steps) } }),
  }
}

const toRecord = (value: unknown): Readonly<Record<string, unknown>> => (isRecord(value) ? value : {})

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

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
