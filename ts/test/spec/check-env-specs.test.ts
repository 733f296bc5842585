import { expect, test } from 'vitest'
import { Rng } from '../../src/core/index.js'
import {
  Binary,
  Bounded,
  Categorical,
  Composite,
  checkEnvSpecs,
  type SpecEnv,
  Unbounded,
} from '../../src/spec/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

const flag = (value: boolean) => Tensor.from(Uint8Array.of(value ? 1 : 0), { dtype: 'bool' })
const isDone = () => new Binary(1, { dtype: 'bool' })

/** A walk that ends at 3 and may be cut off after 4 steps; it begins at a place that the seed decides. */
function walk(change: Partial<SpecEnv> = {}): SpecEnv {
  let [place, steps] = [0, 0]
  const show = () => ({
    place: Tensor.from([place]),
    terminated: flag(place >= 3),
    truncated: flag(steps >= 4),
    done: flag(place >= 3 || steps >= 4),
  })
  return {
    observationSpec: new Composite({ place: new Bounded(0, 4, { shape: [1] }) }),
    actionSpec: new Composite({ action: new Categorical(2) }),
    rewardSpec: new Composite({ reward: new Unbounded() }),
    doneSpec: new Composite({ terminated: isDone(), truncated: isDone(), done: isDone() }),
    reset(seed = 0) {
      ;[place, steps] = [Rng.fromSeed(seed).below(2), 0]
      return TensorDict.from(show())
    },
    async step(dict) {
      place += Number(dict.tensor('action').data[0])
      steps += 1
      return TensorDict.from({ ...show(), reward: Tensor.from([place]) })
    },
    ...change,
  }
}

/** The walk, of which every dictionary is changed. */
function altered(alter: (dict: TensorDict) => TensorDict): SpecEnv {
  const env = walk()
  return {
    ...env,
    reset: async (seed) => alter(await env.reset(seed)),
    step: async (dict) => alter(await env.step(dict)),
  }
}

test('an environment that does what it says passes, over several episodes', async () => {
  await checkEnvSpecs(walk(), { steps: 40, seed: 5 })
})

test.each([
  [/^reset: value must have the key "place": got/, (dict: TensorDict) => dict.exclude(['place'])],
  [/^reset: value must have no key "more": got one/, (dict: TensorDict) => dict.set('more', flag(true))],
  [
    /^reset: "place": dtype must be f32: got f64/,
    (dict: TensorDict) => dict.set('place', Tensor.from(Float64Array.of(1))),
  ],
  [
    /^reset: "place": shape must end with \[1\]: got \[2\]/,
    (dict: TensorDict) => dict.set('place', Tensor.zeros('f32', [2])),
  ],
  [
    /^reset: "place": value must be from 0 to 4: got 9/,
    (dict: TensorDict) => dict.set('place', Tensor.from([9])),
  ],
  [
    /^reset: "place": value must be from 0 to 4: got NaN/,
    (dict: TensorDict) => dict.set('place', Tensor.from([Number.NaN])),
  ],
  [
    /^reset: an episode must begin before its end/,
    (dict: TensorDict) => dict.set('done', flag(true)).set('terminated', flag(true)),
  ],
  [
    /^reset: \["done"\] must be terminated or truncated/,
    (dict: TensorDict) => dict.set('terminated', flag(true)).set('done', flag(false)),
  ],
])('what does not fit is refused with its place: %s', async (message, alter) => {
  await expect(checkEnvSpecs(altered(alter))).rejects.toThrow(message)
})

test('a reset that stays at the end is found', async () => {
  const env = walk()
  let isStuck = false
  const stuck: SpecEnv = {
    ...env,
    reset: async (seed) => {
      const dict = await env.reset(seed)
      return isStuck ? dict.set('done', flag(true)).set('terminated', flag(true)) : dict
    },
    step: async (dict) => {
      const next = await env.step(dict)
      isStuck ||= next.tensor('done').data[0] === 1
      return next
    },
  }
  await expect(checkEnvSpecs(stuck, { steps: 20 })).rejects.toThrow(
    /^reset after step \d+: an episode must begin/,
  )
})

test('a reset at an end is found after the steps too', async () => {
  let count = 0
  const env = altered((dict) =>
    ++count > 4 ? dict.set('done', flag(true)).set('truncated', flag(true)) : dict,
  )
  await expect(checkEnvSpecs(env, { steps: 3 })).rejects.toThrow(/^(last reset|reset after step 4): /)
})

test('another episode under the same seed is found', async () => {
  let calls = 0
  const env = walk({ reset: () => walk().reset(++calls) })
  const places = new Set([0, 1, 2, 3, 4, 5].map((seed) => Rng.fromSeed(seed).below(2)))
  expect(places.size).toBe(2)
  const restless: SpecEnv = {
    ...env,
    reset: () =>
      TensorDict.from({
        place: Tensor.from([++calls % 4]),
        terminated: flag(false),
        truncated: flag(false),
        done: flag(false),
      }),
  }
  await expect(checkEnvSpecs(restless, { steps: 2 })).rejects.toThrow(
    /an episode must be the same under seed 0/,
  )
})

test('a reward outside its spec is found at its step', async () => {
  const env = walk({ rewardSpec: new Composite({ reward: new Bounded(0, 1, { shape: [1] }) }) })
  await expect(checkEnvSpecs(env, { steps: 30 })).rejects.toThrow(
    /^step \d+: "reward": value must be from 0 to 1: got 2/,
  )
})

test('infinite bounds draw finite values', async () => {
  const place = new Bounded(Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, { shape: [1] })
  await checkEnvSpecs(walk({ observationSpec: new Composite({ place }) }))
})

test('options are closed', async () => {
  await expect(checkEnvSpecs(walk(), { step: 3 } as object)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  await expect(checkEnvSpecs(walk(), { steps: 0 })).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
})
