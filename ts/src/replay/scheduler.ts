/** Schedules that drive a parameter of a sampler, such as `beta`. */

import { checkGiven, checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawParameterScheduler, raw } from '../native/index.js'
import { type ReplayBuffer, withRawBuffer } from './replay-buffer.js'

/** A parameter that changes by steps. */
export interface ParameterScheduler {
  /** Takes a step. @throws {FulmarError} `UNKNOWN_NAME` if the sampler has no such parameter, `OUT_OF_RANGE` if it cannot have the value. */
  step(): void
}

/** Bounds of a schedule; 0 is one. */
export interface ScheduleBounds {
  /** The value that the parameter is never below. @default none */
  readonly minValue?: number
  /** The value that it is never above. @default none */
  readonly maxValue?: number
}

/** Options of {@link LinearScheduler}. */
export interface LinearSchedulerOptions extends ScheduleBounds {
  /** The last value. */
  readonly finalValue: number
  /** After how many steps it is reached, from 1. */
  readonly numSteps: number
}

/** Options of {@link StepScheduler}. */
export interface StepSchedulerOptions extends ScheduleBounds {
  /** The factor, or the summand. @default 0.9 */
  readonly gamma?: number
  /** Number of steps between changes, from 1. @default 1 */
  readonly numSteps?: number
  /** Use of `gamma` as a factor or as a summand. @default 'multiplicative' */
  readonly mode?: 'multiplicative' | 'additive'
}

abstract class Scheduler implements ParameterScheduler {
  readonly #native: Handle<RawParameterScheduler>
  readonly #buffer: ReplayBuffer

  protected constructor(buffer: ReplayBuffer, parameter: string, schedule: object, bounds: ScheduleBounds) {
    const { minValue: min, maxValue: max } = bounds
    const core = JSON.stringify({ parameter, schedule, min, max, numTaken: 0 })
    this.#native = new Handle('ParameterScheduler', () => raw.ParameterScheduler.create(core))
    this.#buffer = buffer
  }

  step(): void {
    this.#native.call((scheduler) => withRawBuffer(this.#buffer, (buffer) => scheduler.step(buffer)))
  }
}

/**
 * A parameter in equal steps to a last value.
 *
 * @example
 * ```ts
 * import { LinearScheduler, PrioritizedSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ beta: 0.5 })
 * const buffer = new ReplayBuffer({ sampler })
 * const schedule = new LinearScheduler(buffer, 'beta', { finalValue: 1, numSteps: 2 })
 * schedule.step()
 * assert.equal(sampler.beta, 0.75)
 * ```
 */
export class LinearScheduler extends Scheduler {
  constructor(buffer: ReplayBuffer, parameter: string, options: LinearSchedulerOptions) {
    checkKnownKeys('options', options, ['finalValue', 'numSteps', 'minValue', 'maxValue'])
    const { finalValue, numSteps } = options
    super(buffer, parameter, { kind: 'linear', finalValue, numSteps }, options)
  }
}

/**
 * A parameter that changes by a factor or a summand every so many steps.
 *
 * @example
 * ```ts
 * import { PrioritizedSampler, ReplayBuffer, StepScheduler } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ beta: 0.5 })
 * const buffer = new ReplayBuffer({ sampler })
 * new StepScheduler(buffer, 'beta', { gamma: 0.25, mode: 'additive' }).step()
 * assert.equal(sampler.beta, 0.75)
 * ```
 */
export class StepScheduler extends Scheduler {
  constructor(buffer: ReplayBuffer, parameter: string, options: StepSchedulerOptions = {}) {
    checkKnownKeys('options', options, ['gamma', 'numSteps', 'mode', 'minValue', 'maxValue'])
    const { gamma = 0.9, numSteps = 1, mode = 'multiplicative' } = options
    if (mode !== 'multiplicative' && mode !== 'additive') {
      throw new FulmarError('UNKNOWN_NAME', `mode must be multiplicative or additive: got ${mode}`)
    }
    const kind = mode === 'additive' ? 'add' : 'multiply'
    super(buffer, parameter, { kind, gamma, numSteps }, options)
  }
}

/**
 * A parameter that is its first value times a function of the step.
 *
 * @example
 * ```ts
 * import { LambdaScheduler, PrioritizedSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ beta: 0.25 })
 * const buffer = new ReplayBuffer({ sampler })
 * new LambdaScheduler(buffer, 'beta', (step) => 1 + step).step()
 * assert.equal(sampler.beta, 0.5)
 * ```
 */
export class LambdaScheduler implements ParameterScheduler {
  readonly #buffer: ReplayBuffer
  readonly #parameter: string
  readonly #factor: (step: number) => number
  readonly #bounds: ScheduleBounds
  #initial: number | undefined
  #numTaken = 0

  constructor(
    buffer: ReplayBuffer,
    parameter: string,
    factor: (step: number) => number,
    options: ScheduleBounds = {},
  ) {
    checkKnownKeys('options', options, ['minValue', 'maxValue'])
    this.#buffer = buffer
    this.#parameter = parameter
    this.#factor = factor
    this.#bounds = options
  }

  step(): void {
    this.#initial ??= withRawBuffer(this.#buffer, (buffer) => buffer.parameter(this.#parameter))
    this.#numTaken += 1
    const { minValue = Number.NEGATIVE_INFINITY, maxValue = Number.POSITIVE_INFINITY } = this.#bounds
    const value = this.#initial * this.#factor(this.#numTaken)
    const bounded = Math.min(Math.max(value, minValue), maxValue)
    withRawBuffer(this.#buffer, (buffer) => buffer.setParameter(this.#parameter, bounded))
  }
}

/**
 * Schedules that step together.
 *
 * @example
 * ```ts
 * import { LinearScheduler, PrioritizedSampler, ReplayBuffer, SchedulerList } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ alpha: 0, beta: 0 })
 * const buffer = new ReplayBuffer({ sampler })
 * const to = { finalValue: 1, numSteps: 1 }
 * new SchedulerList([new LinearScheduler(buffer, 'alpha', to), new LinearScheduler(buffer, 'beta', to)]).step()
 * assert.deepEqual([sampler.alpha, sampler.beta], [1, 1])
 * ```
 */
export class SchedulerList implements ParameterScheduler {
  readonly #schedulers: readonly ParameterScheduler[]

  constructor(schedulers: readonly ParameterScheduler[]) {
    checkGiven('schedulers', schedulers)
    this.#schedulers = [...schedulers]
  }

  step(): void {
    for (const scheduler of this.#schedulers) scheduler.step()
  }
}
