/** `fulmar eval`: measures a model on a task, a run on its own, or compares two evaluations. */

import type { Evaluation, EvaluationSample, MeasureOptions } from '../rollout/index.js'
import { ProgressLine, systemClock } from '../telemetry/index.js'
import { compareFolders } from './compare-evaluations.js'
import { EvaluationFolder } from './evaluation-folder.js'
import { type EvaluationPlan, planEvaluation } from './evaluation-plan.js'
import { summaryOf, tableOfSummary } from './evaluation-summary.js'
import { CliError, type CliIo, printJson, printTable } from './io.js'

/** Flags of the command, as they were typed. */
export interface EvaluateFlags {
  readonly model?: string
  readonly apiBaseUrl?: string
  readonly apiKeyVar?: string
  readonly taskArgs?: string
  readonly task?: string
  readonly numProblems?: string
  readonly rolloutsPerProblem?: string
  readonly maxConcurrent?: string
  readonly temperature?: string
  readonly maxTokens?: string
  readonly samplingArgs?: string
  readonly maxTurns?: string
  readonly maxRetries?: string
  readonly timeout?: string
  readonly seed?: string
  /** A folder, or true for the one of the task and the model. */
  readonly save?: string | true
  readonly resume?: boolean
  readonly compare?: readonly string[]
  readonly json?: boolean
}

/** Evaluates `target`: a task, or the folder of a run. */
export async function evaluate(target: string | undefined, flags: EvaluateFlags, io: CliIo): Promise<void> {
  if (flags.compare !== undefined) return await compareFolders(flags.compare, flags, io)
  if (target === undefined)
    throw new CliError('MALFORMED', 'a task or the folder of a run must be given: got neither')
  const plan = await planEvaluation(target, flags, io)
  try {
    await run(plan, flags, io)
  } finally {
    await plan.close()
  }
}

async function run(plan: EvaluationPlan, { save, resume = false, json = false }: EvaluateFlags, io: CliIo) {
  const { setup, numProblems, numAnswers } = plan
  const place = save === true || save === undefined ? defaultFolder(plan) : save
  const folder =
    save !== undefined || resume ? await EvaluationFolder.open(place, setup, { resume }) : undefined
  const startMs = systemClock.nowMs()
  let evaluation: Evaluation
  const fresh: EvaluationSample[] = []
  const progress = new AnswerProgress(io, numProblems * numAnswers)
  try {
    evaluation = await plan.measure({
      ...{ numProblems, numAnswers, signal: io.signal, known: folder?.known ?? [] },
      onAnswer: (answer, rollout) => {
        fresh.push(answer)
        folder?.append(answer, rollout)
        progress.note(answer)
      },
    })
  } finally {
    progress.end()
    folder?.close()
  }
  const seconds = (systemClock.nowMs() - startMs) / 1000
  const summary = summaryOf(setup, evaluation, { numAnswers, fresh, seconds })
  await folder?.finish(summary)
  if (json) printJson(summary, io)
  else printTable([...tableOfSummary(summary), ...(folder ? [['results', folder.results] as const] : [])], io)
  if (summary.numScored > 0) return
  const [why = 'none was run'] = Object.values(summary.reasons)
  throw new CliError('EMPTY', `an answer must be scored: none could be (${why})`)
}

function defaultFolder({ setup: { task, model } }: EvaluationPlan): string {
  const plain = (text: string) => text.replace(/[/\\]+/g, '--').replace(/[^\w.@-]+/g, '_')
  return `outputs/evals/${plain(task)}--${plain(model)}`
}

/** The living line of an evaluation. */
class AnswerProgress {
  readonly #line: ProgressLine
  readonly #numAnswers: number
  #numDone = 0
  #numScored = 0
  #numSolved = 0
  #reward = 0

  constructor(io: CliIo, numAnswers: number) {
    this.#line = new ProgressLine({ stream: io.stderr })
    this.#numAnswers = numAnswers
  }

  note({ reward, isSolved }: MeasuredAnswer): void {
    this.#numDone += 1
    if (reward !== null) {
      this.#numScored += 1
      this.#reward += reward
      this.#numSolved += Number(isSolved)
    }
    const [scored, numErrors] = [this.#numScored, this.#numDone - this.#numScored]
    this.#line.update({
      ...{ event: 'step', phase: 'eval', step: this.#numDone, numSteps: this.#numAnswers },
      metrics: {
        ...(scored > 0 && { reward: this.#reward / scored, passRate: this.#numSolved / scored }),
        ...(numErrors > 0 && { numErrors }),
      },
    })
  }

  end(): void {
    this.#line.end()
  }
}

type MeasuredAnswer = Parameters<NonNullable<MeasureOptions['onAnswer']>>[0]
