/** Reads the flags of `fulmar eval`: which task, which model, how many answers, and how they are sampled. */

import { stat } from 'node:fs/promises'
import type { Task } from '../env/index.js'
import type { Evaluation, MeasureOptions } from '../rollout/index.js'
import { readRun } from '../telemetry/index.js'
import {
  checkTrainConfig,
  type EvaluateOptions,
  evaluate,
  evaluateRun,
  taskFactories,
} from '../train/index.js'
import { makeTask, TASK_KINDS } from '../train/task-factory.js'
import { ChatEndpoint } from '../vllm/index.js'
import type { EvaluateFlags } from './evaluate.js'
import type { EvaluationSetup } from './evaluation-folder.js'
import { numHeldOut } from './held-out.js'
import { CliError, type CliIo } from './io.js'
import { openModel } from './open-model.js'
import { readTask } from './task-file.js'

/** An evaluation before it runs. */
export interface EvaluationPlan {
  /** Everything that the answers depend on. */
  readonly setup: EvaluationSetup
  readonly numProblems: number
  readonly numAnswers: number
  readonly measure: (options: MeasureOptions) => Promise<Evaluation>
  /** Frees the model. */
  readonly close: () => Promise<void>
}

type Json = Readonly<Record<string, unknown>>

/** Defaults of problems, answers to each and rollouts at once: those of `vf-eval`. */
const NUM_PROBLEMS_DEFAULT = 5
const NUM_ANSWERS_DEFAULT = 3
const CONCURRENCY_DEFAULT = 32
const RETRIES_DEFAULT = 3
const API_KEY_VAR_DEFAULT = 'OPENAI_API_KEY'

/**
 * Plans the evaluation of a run folder, if no model is given, else of a model on a task.
 * @throws {CliError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME` for a flag. @throws {FulmarError} Errors of tasks and models.
 */
export async function planEvaluation(
  target: string,
  flags: EvaluateFlags,
  io: CliIo,
): Promise<EvaluationPlan> {
  return flags.model === undefined
    ? await planRun(target, flags)
    : await planTask(target, flags.model, flags, io)
}

/** Flags that the configuration of a run decides. */
const DECIDED_BY_RUN = [
  ...(['apiBaseUrl', 'apiKeyVar', 'taskArgs', 'maxConcurrent', 'maxTokens', 'samplingArgs'] as const),
  ...(['maxTurns', 'maxRetries', 'timeout', 'seed'] as const),
] satisfies (keyof EvaluateFlags)[]

async function planRun(runDir: string, flags: EvaluateFlags): Promise<EvaluationPlan> {
  if (Object.hasOwn(taskFactories, runDir))
    throw new CliError(
      'MALFORMED',
      `the model must be given by --model for the task ${runDir}: it is missing`,
    )
  const decided = DECIDED_BY_RUN.find((name) => flags[name] !== undefined)
  if (decided !== undefined)
    throw new CliError('MALFORMED', `the run decides ${decided}; give a task, and the run by --model`)
  const { config: written } = await readRun(runDir)
  const file = flags.task === undefined ? undefined : await readTask(flags.task)
  const tasks = file ? { [file.name]: file.factory } : {}
  const config = checkTrainConfig(typeof written === 'object' ? { ...written, runDir } : written, { tasks })
  const temperature = Number(flags.temperature ?? config.eval.temperature)
  const { maxTokens } = config.grpo
  return {
    setup: {
      task: config.task.name,
      model: runDir,
      isTrainable: true,
      seed: config.seed,
      maxTokens,
      temperature,
    },
    numProblems: Number(flags.numProblems ?? config.eval.numProblems),
    numAnswers: Number(flags.rolloutsPerProblem ?? 1),
    measure: (options) => evaluateRun(config, { ...options, temperature, tasks }),
    close: async () => undefined,
  }
}

async function planTask(
  target: string,
  model: string,
  flags: EvaluateFlags,
  io: CliIo,
): Promise<EvaluationPlan> {
  const args = flags.taskArgs === undefined ? {} : parseObject('--task-args', flags.taskArgs)
  const seed = numberOf('--seed', flags.seed, 0)
  const task = await openTask(target, args, seed)
  const numAsked = numberOf('--num-problems', flags.numProblems, NUM_PROBLEMS_DEFAULT)
  const numProblems = numHeldOut(task, numAsked)
  if (numProblems < numAsked)
    io.stderr.write(`the task has ${numProblems} held-out problems: each is asked once\n`)
  const common = {
    ...{ task, seed, onError: 'drop' as const },
    concurrency: numberOf('--max-concurrent', flags.maxConcurrent, CONCURRENCY_DEFAULT),
    ...(flags.maxTurns !== undefined && { maxTurns: numberOf('--max-turns', flags.maxTurns, 1) }),
    ...(flags.timeout !== undefined && { rolloutTimeoutMs: 1000 * numberOf('--timeout', flags.timeout, 1) }),
  }
  const opened =
    flags.apiBaseUrl === undefined
      ? await openLocal(model, flags, io)
      : openEndpoint(model, flags.apiBaseUrl, flags, io)
  return {
    setup: { task: target, args, model, seed, ...opened.setup },
    numProblems,
    numAnswers: numberOf('--rollouts-per-problem', flags.rolloutsPerProblem, NUM_ANSWERS_DEFAULT),
    measure: (options) => evaluate<unknown>({ ...common, ...opened.options, ...options }),
    close: opened.close,
  }
}

/** Returns the built-in task of a name, or that of a module. */
async function openTask(target: string, args: Json, seed: number): Promise<Task<unknown>> {
  const known: Readonly<Record<string, (typeof taskFactories)[keyof typeof taskFactories]>> = taskFactories
  const kind = TASK_KINDS.find((name) => name === target)
  if (kind !== undefined) return await makeTask(checkTrainConfig({ task: { ...args, kind } }).task, seed)
  const isBuiltIn = Object.hasOwn(known, target)
  if (!isBuiltIn && !(await isThere(target))) {
    const names = [...Object.keys(known), ...TASK_KINDS].join(', ')
    const detail = `the task must be the path of a module or one of ${names}: got ${target}`
    throw new CliError('UNKNOWN_NAME', detail)
  }
  const factory = isBuiltIn ? known[target] : (await readTask(target, args)).factory
  if (factory === undefined) throw new CliError('UNKNOWN_NAME', `the task must be known: got ${target}`)
  if (isBuiltIn && args.rows === undefined && NEEDS_ROWS.includes(target)) {
    const detail = `the task ${target} must have the file of its rows, such as -a '{"rows": "${target}.jsonl"}': it is missing`
    throw new CliError('MALFORMED', detail)
  }
  return await factory(args, { seed })
}

/** Built-in tasks that generate no problems. */
const NEEDS_ROWS = ['gsm8k', 'math', 'ifeval', 'search']

interface Opened {
  readonly setup: Pick<EvaluationSetup, 'isTrainable'> & Json
  readonly options: Pick<EvaluateOptions<unknown>, 'model'> & Partial<EvaluateOptions<unknown>>
  readonly close: () => Promise<void>
}

async function openLocal(path: string, flags: EvaluateFlags, io: CliIo): Promise<Opened> {
  const sampling = localSampling(flags)
  const model = await openModel(path, io)
  return {
    setup: { isTrainable: true, ...sampling },
    options: { model, ...sampling },
    close: async () => model[Symbol.dispose](),
  }
}

/** Names of OpenAI's fields for our options. */
const LOCAL_FIELDS: Readonly<Record<string, keyof EvaluateOptions<unknown>>> = {
  temperature: 'temperature',
  top_p: 'topP',
  top_k: 'topK',
  max_tokens: 'maxTokens',
  max_completion_tokens: 'maxTokens',
  stop: 'stopStrings',
}

/** Returns the options of sampling; fields of `--sampling-args` come before flags. */
function localSampling(flags: EvaluateFlags): Json {
  const given = Object.entries(samplingArgs(flags)).map(([name, value]) => {
    const option = Object.hasOwn(LOCAL_FIELDS, name) ? LOCAL_FIELDS[name] : undefined
    if (option === undefined) {
      const known = Object.keys(LOCAL_FIELDS).join(', ')
      throw new CliError(
        'UNKNOWN_NAME',
        `--sampling-args must have only ${known} for a local model: got ${name}`,
      )
    }
    return [option, name === 'stop' ? [value].flat() : value] as const
  })
  const { temperature, maxTokens } = flags
  return {
    ...(temperature !== undefined && { temperature: numberOf('--temperature', temperature, 1) }),
    ...(maxTokens !== undefined && { maxTokens: numberOf('--max-tokens', maxTokens, 1) }),
    ...Object.fromEntries(given),
  }
}

function openEndpoint(model: string, url: string, flags: EvaluateFlags, io: CliIo): Opened {
  const body = samplingArgs(flags)
  const { temperature, maxTokens, seed, apiKeyVar = API_KEY_VAR_DEFAULT } = flags
  const apiKey = io.env[apiKeyVar]
  if (apiKey === undefined && flags.apiKeyVar !== undefined)
    throw new CliError('MALFORMED', `--api-key-var must name a variable that is set: got ${apiKeyVar}`)
  const endpoint = new ChatEndpoint(url, {
    ...{ model, body, sendSeeds: seed !== undefined },
    ...(apiKey !== undefined && { apiKey }),
    maxAttempts: 1 + numberOf('--max-retries', flags.maxRetries, RETRIES_DEFAULT),
  })
  const sampling = {
    ...(temperature !== undefined && { temperature: numberOf('--temperature', temperature, 1) }),
    ...(maxTokens !== undefined && { maxTokens: numberOf('--max-tokens', maxTokens, 1) }),
  }
  return {
    setup: { isTrainable: false, url, ...sampling, body },
    options: { model: endpoint, ...sampling },
    close: () => endpoint.close(),
  }
}

function samplingArgs({ samplingArgs: text }: EvaluateFlags): Json {
  return text === undefined ? {} : parseObject('--sampling-args', text)
}

function parseObject(flag: string, text: string): Json {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // Reported below.
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw new CliError('MALFORMED', `${flag} must be an object of JSON: got ${text.slice(0, 80)}`)
}

function numberOf(flag: string, text: string | undefined, missing: number): number {
  const value = text === undefined ? missing : Number(text)
  if (text?.trim() !== '' && Number.isFinite(value)) return value
  throw new CliError('OUT_OF_RANGE', `${flag} must be a number: got ${text}`)
}

async function isThere(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  )
}
