/** One turn of a batch whose elements are asked one by one, side by side: one that hangs or throws ends alone. */

import { withDeadline } from '../../async/index.js'
import { FulmarError, messageOf } from '../../core/index.js'
import { isError, type RolloutStatus } from '../../env/index.js'
import type { Clock } from '../../telemetry/index.js'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from '../../tensor/index.js'
import type { DictPolicy, EnvBase } from './env.js'
import { flags, flagsAt } from './flag.js'

/** Time limit of an answer. */
export interface Patience {
  readonly clock: Clock
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
}

/** A dictionary with its actions, and what came of them. */
export interface Turn {
  readonly root: TensorDict
  readonly next: TensorDict
}

/** Failure of an element. */
interface Failure {
  readonly status: RolloutStatus
  readonly message: string
}

/** Answer of one element, if any. */
interface Answer {
  readonly root?: TensorDict
  readonly next?: TensorDict
  readonly failure?: Failure
}

/**
 * Takes a turn. `['next', 'error']` has the failure of each element, or `null`; one that failed is truncated, its rewards are
 * NaN, and what it did not give is zeros, empty rows and `null`, in the form of `before` or of the elements that answered.
 * @throws {FulmarError} `ABORTED` if the signal fires; `TIMEOUT` or `USER_CODE` if no element answered and there is no turn before.
 */
export async function takeTurnApart(
  env: EnvBase,
  policy: DictPolicy,
  dict: TensorDict,
  patience: Patience,
  before: Turn | undefined,
): Promise<Turn> {
  const owns = Array.from({ length: dict.batchSize[0] ?? 0 }, (_, at) => dict.indexSelect([at]))
  const answers = await Promise.all(owns.map((own) => askOne(env, policy, own, patience)))
  const whole = answers.find(({ next }) => next !== undefined)
  const root = whole?.root ?? before?.root.indexSelect([0])
  const next = whole?.next ?? before?.next.exclude(['error']).indexSelect([0])
  if (root === undefined || next === undefined) throw nobody(answers)
  const rows = answers.map((answer, at) => {
    const { failure } = answer
    if (failure === undefined) return { root: answer.root ?? root, next: withTruncated(answer.next ?? next) }
    return { root: answer.root ?? blank(root).update(owns[at] ?? dict), next: ended(env, next) }
  })
  const errors = answers.map(({ failure }) => (failure ? { ...failure } : null))
  return {
    root: TensorDict.cat(rows.map((row) => row.root)),
    next: TensorDict.cat(rows.map((row) => row.next)).set('error', new NonTensorStack(errors)),
  }
}

/** Waits for a whole batch. @throws {FulmarError} `TIMEOUT` if it does not come; what it throws. */
export async function answered<T>(
  what: string,
  { clock, timeoutMs, signal }: Patience,
  run: () => T | Promise<T>,
): Promise<T> {
  const result = await withDeadline({ clock, timeoutMs, signal, run })
  if (result.kind === 'value') return result.value
  if (result.kind === 'thrown') throw result.error
  throw new FulmarError('TIMEOUT', late(what, timeoutMs))
}

async function askOne(
  env: EnvBase,
  policy: DictPolicy,
  own: TensorDict,
  patience: Patience,
): Promise<Answer> {
  const acted = await ask('policy', patience, () => policy(own))
  if (!(acted instanceof TensorDict)) return { failure: acted }
  // A policy may write into what it is given; the step gets what is there now.
  const came = await ask('step', patience, () => env.step(acted))
  return came instanceof TensorDict ? { root: acted, next: came } : { root: acted, failure: came }
}

async function ask(
  what: string,
  { clock, timeoutMs, signal }: Patience,
  run: () => TensorDict | Promise<TensorDict>,
): Promise<TensorDict | Failure> {
  const result = await withDeadline({ clock, timeoutMs, signal, run })
  if (result.kind === 'timeout') return { status: 'error_timeout', message: late(what, timeoutMs) }
  if (result.kind === 'thrown') return { status: 'error', message: messageOf(result.error) }
  if (result.value instanceof TensorDict && result.value.batchSize[0] === 1) return result.value
  return { status: 'error', message: `${what} must give a TensorDict of one element: got another` }
}

function late(what: string, timeoutMs: number): string {
  return `${what} must answer within ${timeoutMs} ms: got no answer`
}

function nobody(answers: readonly Answer[]): FulmarError {
  const failure = answers.find((answer) => answer.failure && isError(answer.failure.status))?.failure
  const code = failure?.status === 'error_timeout' ? 'TIMEOUT' : 'USER_CODE'
  return new FulmarError(code, `an element must answer the first turn: all failed (${failure?.message})`)
}

/** Returns the end of an element that failed, in the form of `like`. */
function ended(env: EnvBase, like: TensorDict): TensorDict {
  const next = withTruncated(blank(like))
  for (const key of env.rewardSpec.leafKeys()) {
    const reward = next.has(key) ? next.get(key) : undefined
    // No reward is not a reward of 0.
    if (reward instanceof Tensor && reward.dtype === 'f32')
      next.set(
        key,
        Tensor.from(new Float32Array(reward.data.length).fill(Number.NaN), { shape: reward.shape }),
      )
  }
  return next.set('done', flags([1], [true])).set('truncated', flags([1], [true]))
}

function withTruncated(next: TensorDict): TensorDict {
  return next.has('truncated') ? next : next.clone().set('truncated', flags([1], flagsAt(next, 'truncated')))
}

/** The keys of `like` with nothing in them. */
function blank(like: TensorDict): TensorDict {
  const empty = like.zerosLike()
  for (const key of empty.leafKeys()) {
    const entry = empty.get(key)
    if (entry instanceof NonTensorStack) empty.set(key, new NonTensorStack([null]))
    else if (entry instanceof NonTensorData) empty.set(key, new NonTensorData(null))
    else if (entry instanceof Ragged)
      empty.set(key, Ragged.from(entry.values.slice({ end: 0 }), Uint32Array.of(0, 0)))
  }
  return empty
}
