import fc from 'fast-check'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

/** Bools. */
export const bools = (values: readonly boolean[], shape: readonly number[] = [values.length]): Tensor =>
  Tensor.from(Uint8Array.from(values, Number), { shape, dtype: 'bool' })

/** The elements there as numbers. */
export const numbersAt = (dict: TensorDict, ...path: string[]): number[] =>
  Array.from(dict.tensor(path).data, Number)

/** Some steps of one lane or several, and what they are made of. */
export interface Steps {
  readonly lanes: number
  readonly length: number
  readonly rewards: readonly number[]
  readonly done: readonly boolean[]
  readonly dict: TensorDict
}

/** Steps `[lanes, length]` whose observation is their number, and the next one that plus 1000. */
export function stepsOf(lanes: number, rewards: readonly number[], done: readonly boolean[]): Steps {
  const shape = [lanes, rewards.length / lanes]
  const numbers = rewards.map((_, at) => at)
  const dict = TensorDict.from({ observation: Tensor.from(numbers, { shape }) }, { batchSize: shape })
    .set(
      ['next', 'observation'],
      Tensor.from(
        numbers.map((at) => at + 1000),
        { shape },
      ),
    )
    .set(['next', 'reward'], Tensor.from(Float64Array.from(rewards), { shape }))
    .set(['next', 'done'], bools(done, [...shape, 1]))
  return { lanes, length: rewards.length / lanes, rewards, done, dict }
}

/** Steps of 1 to 3 lanes, 1 to 9 long, with drawn rewards and ends. */
export const drawnSteps: fc.Arbitrary<Steps> = fc
  .tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 9 }))
  .chain(([lanes, length]) => {
    const exactly = { minLength: lanes * length, maxLength: lanes * length }
    const rewards = fc.array(fc.integer({ min: -8, max: 8 }), exactly)
    const ends = fc.array(fc.nat(4), exactly)
    return fc.tuple(rewards, ends).map(([given, end]) =>
      stepsOf(
        lanes,
        given,
        end.map((number) => number === 0),
      ),
    )
  })

/** The steps of the trajectory of step `at`, from its first one to its last. */
export function trajectoryOf({ length, done }: Steps, at: number): number[] {
  const isCut = (step: number) => done[step] || (step + 1) % length === 0
  let [first, last] = [at, at]
  while (first % length > 0 && !isCut(first - 1)) first -= 1
  while (!isCut(last)) last += 1
  return Array.from({ length: last - first + 1 }, (_, step) => first + step)
}
