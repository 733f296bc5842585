/** Scores of submissions, each measured in sandboxes that the agent never had. */

import { FulmarError, messageOf, parseJson } from '../../core/index.js'
import { Sandbox, type SandboxOptions, type SandboxResult } from '../../tools/index.js'
import type { MLGymFiles, MLGymTask } from './ml-gym-task.js'

/** Ends of an {@link MLGymEnv} without a score. */
export type MLGymFailure = {
  /**
   * `no_submission`: a file is missing, or is no regular file. `submission_failed`: its trial failed, or the scorer
   * called it invalid. `scorer_failed` and `sandbox_failed` are not the agent's doing.
   */
  readonly status: 'no_submission' | 'submission_failed' | 'scorer_failed' | 'sandbox_failed'
  /** One sentence. */
  readonly reason: string
}

/** Score of a submission, or the reason for its absence. */
export type MLGymScore = { readonly status: 'scored'; readonly score: number } | MLGymFailure

/** Sandboxes of {@link scoreSubmission}. */
export type ScoringOptions = Pick<SandboxOptions, 'limits' | 'bwrap' | 'clock'> & {
  readonly signal?: AbortSignal | undefined
}

/** Characters of the output of a program that a reason repeats. */
const SHOWN_CHARS_MAX = 300

/**
 * Runs the trial of a submission and its scorer, each in a fresh sandbox.
 * @throws {FulmarError} `ABORTED` if the signal fires.
 */
export async function scoreSubmission(
  { trial, scorer }: MLGymTask,
  submission: MLGymFiles,
  options: ScoringOptions,
): Promise<MLGymScore> {
  try {
    let output = ''
    if (trial !== undefined) {
      const end = await runFresh(trial.command, { ...submission, ...trial.files }, '', options)
      const failure = failureOf(end)
      if (failure !== undefined)
        return { status: 'submission_failed', reason: `the trial of the submission ${failure}` }
      output = end.stdout
    }
    const below = Object.entries(submission).map(([path, data]) => [`submission/${path}`, data] as const)
    const files = { ...Object.fromEntries(below), ...scorer.files }
    return scoreOf(await runFresh(scorer.command, files, output, options))
  } catch (error) {
    if (error instanceof FulmarError && error.code === 'ABORTED') throw error
    return { status: 'sandbox_failed', reason: messageOf(error) }
  }
}

async function runFresh(
  command: readonly string[],
  files: MLGymFiles,
  stdin: string,
  { signal, ...options }: ScoringOptions,
): Promise<SandboxResult> {
  using sandbox = await Sandbox.open({ ...options, backend: 'bubblewrap', files })
  return await sandbox.run({ command }, { stdin, ...(signal && { signal }) })
}

/** The way in which a program failed; `undefined` if it did not. */
function failureOf({ status, exitCode, stderr }: SandboxResult): string | undefined {
  if (status === 'timeout') return 'passed its deadline'
  if (status === 'output') return 'wrote too much output'
  return exitCode === 0
    ? undefined
    : `ended with exit code ${exitCode}: ${stderr.trim().slice(-SHOWN_CHARS_MAX)}`
}

function scoreOf(end: SandboxResult): MLGymScore {
  const failure = failureOf(end)
  if (failure !== undefined) return { status: 'scorer_failed', reason: `the scorer ${failure}` }
  const said = new Map(Object.entries(Object(jsonOf(end.stdout))))
  const [score, invalid] = [said.get('score'), said.get('invalid')]
  if (typeof invalid === 'string')
    return {
      status: 'submission_failed',
      reason: `the submission is invalid: ${invalid.slice(0, SHOWN_CHARS_MAX)}`,
    }
  if (typeof score === 'number' && Number.isFinite(score)) return { status: 'scored', score }
  const got = JSON.stringify(end.stdout.slice(0, SHOWN_CHARS_MAX))
  return { status: 'scorer_failed', reason: `the scorer must print {"score": NUMBER}: got ${got}` }
}

function jsonOf(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return undefined
  }
}
