import fc from 'fast-check'
import { expect, it } from 'vitest'
import { TensorDict } from '../../src/tensor/index.js'
import { MultiStep, MultiStepTransform } from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnSteps, numbersAt, stepsOf, trajectoryOf } from './steps.js'

it('is the walk to the end of the trajectory or n steps on', () => {
  fc.assert(
    fc.property(drawnSteps, fc.integer({ min: 1, max: 4 }), (steps, nSteps) => {
      using transform = new MultiStep({ nSteps, gamma: 0.5 })
      const stepped = transform.forward(steps.dict)
      steps.rewards.forEach((_, at) => {
        const rest = trajectoryOf(steps, at).filter((step) => step >= at)
        const walk = rest.slice(0, nSteps)
        const sum = walk.reduce((total, step, ago) => total + 0.5 ** ago * (steps.rewards[step] as number), 0)
        const got = (...path: string[]) => numbersAt(stepped, ...path)[at]
        expect(got('next', 'reward')).toBe(sum)
        expect(got('next', 'observation')).toBe(1000 + (walk.at(-1) as number))
        expect(got('next', 'done')).toBe(Number(steps.done[walk.at(-1) as number]))
        expect(got('next', 'original_reward')).toBe(steps.rewards[at])
        expect(got('steps_to_next_obs')).toBe(walk.length)
        expect(got('gamma')).toBe(0.5 ** walk.length)
        expect(got('nonterminal')).toBe(Number(rest.length > 1))
      })
    }),
    { numRuns: 60 },
  )
})

it('makes the same of chunks and a flush as of the whole', () => {
  fc.assert(
    fc.property(
      drawnSteps,
      fc.integer({ min: 1, max: 4 }),
      fc.array(fc.nat(9), { maxLength: 4 }),
      (steps, nSteps, cuts) => {
        const bounds = [0, ...cuts.map((cut) => Math.min(cut, steps.length)), steps.length].sort(
          (a, b) => a - b,
        )
        const options = { nSteps, gamma: 0.5 }
        using transform = new MultiStepTransform(options)
        const stored: TensorDict[] = []
        const keep = (dict: TensorDict | undefined) => dict && stored.push(dict)
        bounds.slice(1).forEach((stop, at) => {
          keep(transform.inverse(steps.dict.at('...', { start: bounds[at] as number, stop })))
        })
        keep(transform.flush())
        expect(transform.flush()).toBe(undefined)
        const whole = new MultiStep(options).forward(steps.dict)
        expect(TensorDict.cat(stored, 1).equals(whole)).toBe(true)
      },
    ),
    { numRuns: 60 },
  )
})

it('leaves the ends of each step as they were where told to', () => {
  const { dict } = stepsOf(1, [1, 1, 1], [false, true, false])
  const ends = (legacyDone: boolean) =>
    numbersAt(new MultiStep({ nSteps: 2, gamma: 1, legacyDone }).forward(dict), 'next', 'done')
  expect(ends(false)).toEqual([1, 1, 0])
  expect(ends(true)).toEqual([0, 1, 0])
})

it('holds nothing of steps that it refuses', () => {
  using transform = new MultiStepTransform({ nSteps: 3, gamma: 1 })
  transform.inverse(stepsOf(1, [1, 2], [false, false]).dict)
  const before = transform.stateDict()
  const { dict } = stepsOf(1, [1, 2], [false, false])
  dict.delete(['next', 'done'])
  expect(codeOf(() => transform.inverse(dict))).toBe('UNKNOWN_NAME')
  expect(codeOf(() => transform.inverse(stepsOf(2, [1, 2], [false, false]).dict))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => new MultiStep({ nSteps: 1, gamma: 1 }).forward(TensorDict.from()))).toBe(
    'SHAPE_MISMATCH',
  )
  expect(transform.stateDict().equals(before)).toBe(true)
})
