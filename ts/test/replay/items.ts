import { expect } from 'vitest'
import type { ReplayBuffer } from '../../src/replay/index.js'
import { type BatchIndex, Tensor, TensorDict } from '../../src/tensor/index.js'

/** Items with a distinguishing number. */
export function numbered(...ids: number[]): TensorDict {
  return TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [ids.length] })
}

/** The numbers of {@link numbered} items, in their order. */
export function idsOf(items: TensorDict): number[] {
  using ids = items.tensor('id')
  return Array.from(ids.data as Float32Array)
}

/** Consecutive steps of episodes of these lengths: `episode`, `step`, and whether a step is the last at `['next', 'done']`. */
export function episodes(...lengths: number[]): TensorDict {
  const steps = lengths.flatMap((length, episode) =>
    Array.from({ length }, (_, step) => ({ episode, step, done: Number(step === length - 1) })),
  )
  const whole = (name: 'episode' | 'step') =>
    Tensor.from(BigInt64Array.from(steps, (step) => BigInt(step[name])))
  const done = Tensor.from(
    Uint8Array.from(steps, (step) => step.done),
    {
      shape: [steps.length, 1],
      dtype: 'bool',
    },
  )
  return TensorDict.from(
    { episode: whole('episode'), step: whole('step') },
    { batchSize: [steps.length] },
  ).set(['next', 'done'], done)
}

/** The elements of a leaf, as numbers. */
export function numbersOf(dict: TensorDict, key: string | readonly string[]): number[] {
  using tensor = dict.tensor(key)
  return Array.from(tensor.data as ArrayLike<number | bigint>, Number)
}

export const ALL: readonly BatchIndex[] = [{}]

/**
 * Holds draws of kinds to their probabilities: nothing impossible, and a chi-square below its 0.999 quantile. Kinds that are
 * expected fewer than five times count as one.
 */
export function expectDrawn(draws: readonly number[], probabilities: readonly number[]): void {
  const total = probabilities.reduce((sum, one) => sum + one, 0)
  const classes: { got: number; expected: number }[] = []
  const rare = { got: 0, expected: 0 }
  for (const [kind, probability] of probabilities.entries()) {
    const got = draws.filter((draw) => draw === kind).length
    const expected = (probability / total) * draws.length
    expect(expected > 0 || got === 0, `kind ${kind} is impossible`).toBe(true)
    if (expected >= 5) classes.push({ got, expected })
    else {
      rare.got += got
      rare.expected += expected
    }
  }
  if (rare.expected >= 5) classes.push(rare)
  const chiSquare = classes.reduce((sum, { got, expected }) => sum + (got - expected) ** 2 / expected, 0)
  const freedom = classes.length - 1
  if (freedom === 0) return
  // Wilson and Hilferty's approximation of the quantile.
  const spread = 2 / (9 * freedom)
  expect(chiSquare).toBeLessThan(freedom * (1 - spread + 3.0902 * Math.sqrt(spread)) ** 3)
}

/** Everything that a buffer can be asked for while it is at work; with `ofStorage` its storage too. */
function everythingOf(buffer: ReplayBuffer, ofStorage: boolean): Record<string, () => unknown> {
  const { storage } = buffer
  return {
    length: () => buffer.length,
    stats: () => buffer.stats,
    ranOut: () => buffer.sampler.ranOut || buffer.length,
    add: () => buffer.add(numbered(1).index(0)),
    extend: () => buffer.extend(numbered(1)),
    sample: () => buffer.sample(1),
    sampleWithInfo: () => buffer.sampleWithInfo(1),
    batchOf: () => buffer.batchOf([0]),
    at: () => buffer.at(0),
    setAt: () => buffer.setAt([[0]], numbered(1)),
    writeAt: () => buffer.writeAt([0], numbered(1)),
    updatePriority: () => buffer.updatePriority([0], 1),
    markUpdate: () => buffer.markUpdate([0]),
    generationsOf: () => buffer.generationsOf([0]),
    readAllInOrder: () => buffer.readAllInOrder(),
    query: () => buffer.query(),
    stateDict: () => buffer.stateDict(),
    clear: () => buffer.clear(),
    iterator: () => buffer[Symbol.iterator]().next(),
    ...(ofStorage && {
      'storage.length': () => storage.length,
      'storage.get': () => storage.get([0]),
      'storage.set': () => storage.set([0], numbered(1)),
      'storage.clear': () => storage.clear(),
    }),
  }
}

/** The codes that a buffer at work answers with. */
export function refusalsOf(buffer: ReplayBuffer, ofStorage: boolean): Record<string, unknown> {
  const code = (ask: () => unknown) => {
    try {
      return ask()
    } catch (error) {
      return (error as { code?: unknown }).code ?? error
    }
  }
  const asked = Object.entries(everythingOf(buffer, ofStorage))
  return Object.fromEntries(asked.map(([name, ask]) => [name, code(ask)]))
}

/** Result of {@link refusalsOf} if every call is refused. */
export function allRefused(buffer: ReplayBuffer, ofStorage: boolean): Record<string, unknown> {
  return Object.fromEntries(Object.keys(everythingOf(buffer, ofStorage)).map((name) => [name, 'FORBIDDEN']))
}
