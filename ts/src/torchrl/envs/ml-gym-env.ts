/** One agent at work on a task of machine learning. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import type { EnvContext, MessageEnv, MessageEnvInitOutput, MessageEnvStepOutput } from '../../env/index.js'
import { type Clock, systemClock, TIMER_DELAY_MS_MAX } from '../../telemetry/index.js'
import { type SandboxLimits, ToolRunner, toolCallsOf } from '../../tools/index.js'
import { checkedLimits } from '../../tools/sandbox-limits.js'
import { toolMessage } from '../../tools/tool-message.js'
import { ML_GYM_BLOCKS } from './ml-gym-blocks.js'
import { MLGymFolder } from './ml-gym-folder.js'
import { type MLGymFailure, type MLGymScore, scoreSubmission } from './ml-gym-score.js'
import { checkMLGymTask, type MLGymTask } from './ml-gym-task.js'

/** Options of {@link MLGymEnv}. */
export interface MLGymEnvOptions {
  /** After so many replies with code the submission is scored. @default 10 */
  readonly maxSteps?: number
  /** Number of replies without code that are asked for again; after one more the submission is scored. @default 3 */
  readonly maxRetries?: number
  /** Milliseconds for all commands of an episode together; the policy's own time does not count. @default 600_000 */
  readonly budgetMs?: number
  /** Limits of each command of the agent. @default 60,000 ms, 60 s of the processor; others as in {@link SandboxLimits} */
  readonly limits?: SandboxLimits
  /** Limits of the trial of a submission, and of its scorer. @default as `limits` by default */
  readonly scoreLimits?: SandboxLimits
  /** Characters of each output of a command that the agent sees: the beginning and the end. @default 8_192 */
  readonly maxChars?: number
  /** Returns the score that is subtracted. @default that of the task's own files, measured at the beginning of the episode */
  readonly baseline?: () => Promise<number>
  /** Path or name of the program `bwrap`. @default 'bwrap' */
  readonly bwrap?: string
  /** Clock of deadlines and of the budget. @default systemClock */
  readonly clock?: Clock
}

/** Result of an episode: `reward` is `score - baseline`. */
export type MLGymResult =
  | { readonly status: 'scored'; readonly score: number; readonly baseline: number; readonly reward: number }
  | MLGymFailure

/** The names of {@link MLGymEnvOptions}. */
export const ML_GYM_ENV_KEYS = [
  ...(['maxSteps', 'maxRetries', 'budgetMs', 'limits', 'scoreLimits', 'maxChars'] as const),
  ...(['baseline', 'bwrap', 'clock'] as const),
]

const LIMITS = { timeoutMs: 60_000, cpuSeconds: 60 }

/** Time for the start of sandboxes, in addition to the deadlines of the two runs of an edit. */
const START_MS = 20_000

/** Characters of JSON that a character of a result may take. */
const JSON_CHARS_PER_CHAR = 6

/**
 * One agent in a folder of its own, in a sandbox. A reply holds fenced blocks, which run in their order: `bash` and
 * `python`; `write PATH` with the content of a file; `edit PATH` with an old and a new text; `submit`. Calls of the tools of
 * these names count too. A reply without one is asked for again.
 *
 * The episode ends with `submit`, after `maxSteps`, or when the budget is used up. Then the submission is scored by
 * sandboxes that the agent never had. The last step has the signals `score`, `baseline` and `improvement`, or
 * `failed` (the agent's doing) or `unscored`, both 1; `result` has the reason. Needs bubblewrap. Node only.
 *
 * @example
 * ```ts
 * import { Sandbox } from 'fulmar/tools'
 * import { fitTable, MLGymEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new MLGymEnv(fitTable({ seed: 1 }))
 * const context = { signal: new AbortController().signal }
 * const { isUsable } = await Sandbox.support({ backend: 'bubblewrap' })
 * if (isUsable) {
 *   await env.init(context)
 *   const fence = '`'.repeat(3)
 *   const content = `${fence}bash\nhead -1 train.csv\n${fence}\n${fence}submit\n${fence}`
 *   const { done, envMessages } = await env.step({ role: 'assistant', content }, context)
 *   assert.match(String(envMessages?.[0]?.content), /x1,x2,x3,x4,kind,y/)
 *   assert.equal(done, true)
 *   assert.equal(env.result?.status === 'scored' && env.result.reward, 0) // nothing was changed
 * } else await assert.rejects(async () => env.init(context), { code: 'UNAVAILABLE' })
 * env.close()
 * ```
 */
export class MLGymEnv implements MessageEnv {
  readonly #task: MLGymTask
  readonly #numbers: { readonly maxSteps: number; readonly maxRetries: number; readonly budgetMs: number }
  readonly #maxChars: number
  readonly #limits: Required<SandboxLimits>
  readonly #scoring: { readonly limits: SandboxLimits; readonly bwrap: string; readonly clock: Clock }
  readonly #givenBaseline: (() => Promise<number>) | undefined
  readonly #conversation = new AbortController()
  readonly #messages: Message[] = []
  #work: { readonly folder: MLGymFolder; readonly runner: ToolRunner; readonly baseline: number } | undefined
  #numSteps = 0
  #numRetries = 0
  #result: MLGymResult | null = null

  /** @throws {FulmarError} `UNKNOWN_NAME` or `OUT_OF_RANGE` for an option; `MALFORMED` or `EMPTY` for the task. */
  constructor(task: MLGymTask, options: MLGymEnvOptions = {}) {
    checkKnownKeys('options', options, ML_GYM_ENV_KEYS)
    checkMLGymTask(task)
    const { maxSteps = 10, maxRetries = 3, budgetMs = 600_000, maxChars = 8_192 } = options
    const { bwrap = 'bwrap', clock = systemClock } = options
    for (const [name, value] of Object.entries({ maxSteps, maxRetries, budgetMs, maxChars })) {
      const min = name === 'maxRetries' ? 0 : 1
      if (Number.isSafeInteger(value) && value >= min && value <= TIMER_DELAY_MS_MAX) continue
      const rule = `${name} must be an integer from ${min} to ${TIMER_DELAY_MS_MAX}`
      throw new FulmarError('OUT_OF_RANGE', `${rule}: got ${describeValue(value)}`)
    }
    this.#task = task
    this.#numbers = { maxSteps, maxRetries, budgetMs }
    this.#maxChars = maxChars
    this.#limits = checkedLimits({ ...LIMITS, ...options.limits })
    this.#scoring = { limits: checkedLimits({ ...LIMITS, ...options.scoreLimits }), bwrap, clock }
    this.#givenBaseline = options.baseline
  }

  /** Result of the episode; `null` while it is under way. */
  get result(): MLGymResult | null {
    return this.#result
  }

  /**
   * Scores the files of the task by themselves.
   * @throws {FulmarError} `INCOMPATIBLE` if they cannot be scored, `UNAVAILABLE` if the sandbox failed, each with the reason.
   */
  async measureBaseline(): Promise<number> {
    const { files, submission, name } = this.#task
    const first = Object.fromEntries(
      submission.flatMap((path) => (files[path] === undefined ? [] : [[path, files[path]]])),
    )
    const scored: MLGymScore =
      submission[0] !== undefined && files[submission[0]] === undefined
        ? {
            status: 'no_submission',
            reason: `${submission[0]} must be among the files of the task: it is not`,
          }
        : await scoreSubmission(this.#task, first, this.#scoring)
    if (scored.status === 'scored') return scored.score
    const code = scored.status === 'sandbox_failed' ? 'UNAVAILABLE' : 'INCOMPATIBLE'
    throw new FulmarError(
      code,
      `task ${name} must have a baseline: got ${scored.status}, as ${scored.reason}`,
    )
  }

  /** @throws {FulmarError} As `measureBaseline`; `UNAVAILABLE` without bubblewrap. */
  async init(_context: EnvContext): Promise<MessageEnvInitOutput> {
    const { bwrap, clock } = this.#scoring
    const folder = await MLGymFolder.open(this.#task.files, {
      limits: this.#limits,
      budgetMs: this.#numbers.budgetMs,
      maxChars: this.#maxChars,
      bwrap,
      clock,
    })
    const baseline = await (this.#givenBaseline ?? (() => this.measureBaseline()))()
    const runner = new ToolRunner({
      tools: folder.tools,
      timeoutMs: Math.min(TIMER_DELAY_MS_MAX, 2 * this.#limits.timeoutMs + START_MS),
      maxResultChars: 2 * JSON_CHARS_PER_CHAR * this.#maxChars + 1_000,
      clock,
    })
    this.#work = { folder, runner, baseline }
    this.#messages.push({ role: 'system', content: FORM }, { role: 'user', content: this.#task.instructions })
    return { initPromptMessages: [...this.#messages] }
  }

  /** @throws {FulmarError} `CLOSED` before `init` and after the end; `ABORTED` if the signal fires. */
  async step(completionMessage: Message, { signal }: EnvContext): Promise<MessageEnvStepOutput> {
    if (this.#work === undefined || this.#result !== null)
      throw new FulmarError('CLOSED', 'episode must be under way: it is not')
    const { folder, runner } = this.#work
    this.#messages.push(completionMessage)
    const calls = toolCallsOf(completionMessage, ML_GYM_BLOCKS)
    if (calls.length === 0) return await this.#retry(folder, signal)
    this.#numSteps += 1
    const conversation = this.#conversation.signal
    const results = await runner.run(calls, { messages: this.#messages, signal, conversation, inOrder: true })
    const answers = joined(
      results.map((result) => toolMessage(result, result.call.id === undefined ? 'user' : 'tool')),
    )
    const { maxSteps } = this.#numbers
    const isOver = folder.isSubmitted || this.#numSteps >= maxSteps || folder.remainingMs <= 0
    if (isOver || folder.broken !== undefined) return await this.#end(answers, folder, signal)
    return this.#answer(answers)
  }

  close(): void {
    this.#conversation.abort()
    this.#work?.folder.close()
  }

  async #retry(folder: MLGymFolder, signal: AbortSignal): Promise<MessageEnvStepOutput> {
    this.#numRetries += 1
    if (this.#numRetries > this.#numbers.maxRetries) return await this.#end([], folder, signal, { retry: 1 })
    return this.#answer([{ role: 'user', content: RETRY }], { retry: 1 })
  }

  #answer(envMessages: readonly Message[], envRewards = {}): MessageEnvStepOutput {
    this.#messages.push(...envMessages)
    return { envMessages, envRewards }
  }

  async #end(
    answers: readonly Message[],
    folder: MLGymFolder,
    signal: AbortSignal,
    signals = {},
  ): Promise<MessageEnvStepOutput> {
    const result = await this.#resultOf(folder, signal)
    this.#result = result
    const envMessages = joined([...answers, { role: 'user', content: endText(result) }])
    return { envMessages, done: true, envRewards: { ...signals, ...signalsOf(result) } }
  }

  async #resultOf(folder: MLGymFolder, signal: AbortSignal): Promise<MLGymResult> {
    if (folder.broken !== undefined) return { status: 'sandbox_failed', reason: folder.broken }
    const taken = await folder.submission(this.#task, signal)
    if ('status' in taken) return taken
    const scored = await scoreSubmission(this.#task, taken.files, { ...this.#scoring, signal })
    if (scored.status !== 'scored') return scored
    const baseline = this.#work?.baseline ?? 0
    return { ...scored, baseline, reward: scored.score - baseline }
  }
}

/** Beginning of the last message of an episode without a score; the reason follows. */
export const ML_GYM_UNSCORED = 'Without a score: '

function endText(result: MLGymResult): string {
  if (result.status !== 'scored') return `${ML_GYM_UNSCORED}${result.status}: ${result.reason}`
  return `The score is ${result.score}; at the beginning it was ${result.baseline}.`
}

function signalsOf(result: MLGymResult): Readonly<Record<string, number>> {
  if (result.status === 'scored')
    return { score: result.score, baseline: result.baseline, improvement: result.reward }
  const isOfAgent = result.status === 'no_submission' || result.status === 'submission_failed'
  return isOfAgent ? { failed: 1 } : { unscored: 1 }
}

/** Messages in which texts of one user in a row are one message. */
function joined(messages: readonly Message[]): readonly Message[] {
  const all: Message[] = []
  for (const message of messages) {
    const last = all.at(-1)
    if (last?.role === 'user' && message.role === 'user')
      all[all.length - 1] = { ...last, content: `${String(last.content)}\n\n${String(message.content)}` }
    else all.push(message)
  }
  return all
}

const RETRY =
  'The reply has no block that can be run. Reply with a fenced block: bash, python, write PATH, edit PATH or submit.'

const FORM = `You work in a folder with files, and your aim is a better score. Each reply holds one or more fenced blocks, \
which run in their order; the next message shows their output. Each block is a program of its own, and only files stay.

\`\`\`bash
COMMANDS
\`\`\`

\`\`\`python
A PROGRAM
\`\`\`

\`\`\`write PATH
THE WHOLE CONTENT OF A FILE
\`\`\`

\`\`\`edit PATH
<<<<<<<
A TEXT THAT IS IN THE FILE ONCE
=======
ITS REPLACEMENT
>>>>>>>
\`\`\`

\`\`\`submit
\`\`\`

The last one ends the work. A block whose content has a line that begins with three backticks has more of them around it.`
