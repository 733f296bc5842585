/** Checks an environment against its specs. */

import { checkGiven, checkKnownKeys, FulmarError, Rng } from '../core/index.js'
import { Tensor, type TensorDict } from '../tensor/index.js'
import { Composite } from './composite.js'
import { checkNoExclusiveKeys, consolidateSpec } from './lazy.js'
import type { TensorSpec } from './tensor-spec.js'

/** An environment over dictionaries of tensors, with specs that describe them. */
export interface SpecEnv {
  /** Spec of observations of `reset` and `step`. */
  readonly observationSpec: Composite
  /** Spec of actions. */
  readonly actionSpec: Composite
  /** Spec of rewards. */
  readonly rewardSpec: Composite
  /** Spec of the flags of the end, bools: `done`, and optionally `terminated` and `truncated`. */
  readonly doneSpec: Composite
  /** Spec of entries that a step needs from the one before, besides the observation. @default none */
  readonly stateSpec?: Composite
  /** The first observation, flags (none of them set) and state. Episodes with the same seed are the same. */
  reset(seed?: number): TensorDict | Promise<TensorDict>
  /**
   * The next observation, reward, flags and state after an action; `dict` is the result of `reset` or of the step before, with the
   * action.
   */
  step(dict: TensorDict): TensorDict | Promise<TensorDict>
}

/** Options of {@link checkEnvSpecs}. */
export interface CheckEnvSpecsOptions {
  /** Number of steps; after the end of an episode the next one begins. @default 3 */
  readonly steps?: number
  /** The seed of the actions, and of the environment. @default 0 */
  readonly seed?: number
}

/**
 * Takes a few steps with random actions and refuses what does not fit: keys that are missing or too many, shapes, dtypes,
 * numbers outside their domain (NaN is in none), flags that contradict each other, a reset that begins at an end, another
 * episode under the same seed, and specs that cannot draw their own values.
 *
 * @throws {FulmarError} The errors of {@link TensorSpec.check}, with the place (`reset`, `step 2`, ...) and the key before the
 *   message; `INCOMPATIBLE` for flags and episodes that contradict; `OUT_OF_RANGE` if `steps` is not an integer from 1;
 *   `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Binary, Bounded, Categorical, checkEnvSpecs, Composite, type SpecEnv } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const flag = (value: number) => Tensor.from(Uint8Array.of(value), { dtype: 'bool' })
 * const at = (place: number) => ({ place: Tensor.from([place]), done: flag(place >= 2 ? 1 : 0) })
 * const corridor: SpecEnv = {
 *   observationSpec: new Composite({ place: new Bounded(0, 2, { shape: [1] }) }),
 *   actionSpec: new Composite({ action: new Categorical(2) }),
 *   rewardSpec: new Composite({ reward: new Bounded(0, 1, { shape: [1] }) }),
 *   doneSpec: new Composite({ done: new Binary(1, { dtype: 'bool' }) }),
 *   reset: () => TensorDict.from(at(0)),
 *   step(dict) {
 *     const place = Number(dict.tensor('place').data[0]) + Number(dict.tensor('action').data[0])
 *     return TensorDict.from({ ...at(place), reward: Tensor.from([place / 2]) })
 *   },
 * }
 * await checkEnvSpecs(corridor, { steps: 20 })
 *
 * const rewardSpec = new Composite({ reward: new Bounded(0, 0.25, { shape: [1] }) })
 * await assert.rejects(checkEnvSpecs({ ...corridor, rewardSpec }, { steps: 20 }), {
 *   message: /^step \d+: "reward": value must be from 0 to 0.25: got 0.5$/,
 * })
 * ```
 */
export async function checkEnvSpecs(env: SpecEnv, options: CheckEnvSpecsOptions = {}): Promise<void> {
  checkKnownKeys('options', options, ['steps', 'seed'])
  checkGiven('env', env)
  const { steps = 3, seed = 0 } = options
  if (!Number.isSafeInteger(steps) || steps < 1) {
    throw new FulmarError('OUT_OF_RANGE', `options.steps must be an integer from 1: got ${steps}`)
  }
  const specs = specsOf(env)
  checkDraws(env, seed)
  const first = await rollout(env, specs, steps, seed)
  const second = await rollout(env, specs, steps, seed)
  for (const [at, [place, dict]] of first.entries()) {
    const again = second[at]?.[1]
    if (again?.equals(dict)) continue
    const detail = `${place}: an episode must be the same under seed ${seed}: got another`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
}

/** Specs of a dictionary after a reset, and after a step. */
interface EnvSpecs {
  readonly reset: TensorSpec
  readonly step: TensorSpec
}

function specsOf(env: SpecEnv): EnvSpecs {
  const reset = joined([env.observationSpec, env.doneSpec, env.stateSpec])
  return { reset, step: joined([reset, env.rewardSpec]) }
}

function joined(specs: readonly (Composite | undefined)[]): Composite {
  const all: Composite = new Composite({}, { shape: specs[0]?.shape ?? [] })
  for (const spec of specs) if (spec) all.update(spec)
  const whole = consolidateSpec(all)
  if (checkNoExclusiveKeys(whole) && whole instanceof Composite) return whole
  throw new FulmarError('INCOMPATIBLE', 'specs must have no keys in some of a stack only: got some')
}

/** Each spec draws its own values, which checks of data alone would never find out. */
function checkDraws(env: SpecEnv, seed: number): void {
  using rng = Rng.fromSeed(seed).stream('specs')
  const { observationSpec, actionSpec, rewardSpec, doneSpec, stateSpec } = env
  for (const [name, spec] of Object.entries({
    observationSpec,
    actionSpec,
    rewardSpec,
    doneSpec,
    stateSpec,
  })) {
    if (spec) placed(name, () => spec.check(spec.rand(rng), { strict: true }))
  }
}

/** The dictionaries of a reset and of each step, with their places; each is checked. */
async function rollout(
  env: SpecEnv,
  specs: EnvSpecs,
  steps: number,
  seed: number,
): Promise<[place: string, dict: TensorDict][]> {
  using rng = Rng.fromSeed(seed).stream('actions')
  let dict = await freshEpisode(env, specs, 'reset', seed)
  const seen: [string, TensorDict][] = [['reset', dict]]
  for (let step = 1; step <= steps; step += 1) {
    const place = `step ${step}`
    const root = dict.select(dict.keys())
    env.actionSpec.randUpdate(root, rng)
    dict = await env.step(root)
    const next = dict
    placed(place, () => checkDict(next, specs.step, env.doneSpec))
    seen.push([place, dict])
    if (!isDone(dict, env.doneSpec)) continue
    dict = await freshEpisode(env, specs, `reset after ${place}`, seed + step)
    seen.push([`reset after ${place}`, dict])
  }
  const last = await freshEpisode(env, specs, 'last reset', seed)
  return [...seen, ['last reset', last]]
}

async function freshEpisode(env: SpecEnv, specs: EnvSpecs, place: string, seed: number): Promise<TensorDict> {
  const dict = await env.reset(seed)
  placed(place, () => {
    checkDict(dict, specs.reset, env.doneSpec)
    if (isDone(dict, env.doneSpec)) {
      throw new FulmarError('INCOMPATIBLE', 'an episode must begin before its end: got a flag that is set')
    }
  })
  return dict
}

function checkDict(dict: TensorDict, spec: TensorSpec, doneSpec: Composite): void {
  spec.check(dict, { strict: true })
  for (const parent of parentsOf(doneSpec)) {
    const flag = (name: string) => {
      const entry = dict.get([...parent, name])
      return entry instanceof Tensor ? Array.from(entry.data, Boolean) : undefined
    }
    const [done, ends] = [flag('done'), [flag('terminated'), flag('truncated')].filter((end) => end)]
    if (!done || ends.length < 2) continue
    const want = done.map((_, at) => ends.some((end) => end?.[at]))
    if (done.every((isSet, at) => isSet === want[at])) continue
    const detail = `${JSON.stringify([...parent, 'done'])} must be terminated or truncated: got another`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
}

/** Returns the keys of the dictionaries that hold flags. */
function parentsOf(doneSpec: Composite): string[][] {
  const parents = doneSpec.leafKeys().map((key) => key.slice(0, -1))
  return parents.filter((parent, at) => parents.findIndex((other) => `${other}` === `${parent}`) === at)
}

function isDone(dict: TensorDict, doneSpec: Composite): boolean {
  return doneSpec.leafKeys().some((key) => Array.from(dict.tensor(key).data, Boolean).includes(true))
}

function placed(place: string, body: () => void): void {
  try {
    body()
  } catch (error) {
    if (!(error instanceof FulmarError)) throw error
    throw new FulmarError(error.code, `${place}: ${error.message}`, { cause: error })
  }
}
