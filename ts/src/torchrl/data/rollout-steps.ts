/** Steps of answers to prompts as a dictionary, with their rewards. B prompts, N steps, W tokens of a row. */

import { FulmarError } from '../../core/index.js'
import { Tensor, TensorDict } from '../../tensor/index.js'
import { type PromptData, promptEnds } from './prompt-data.js'

/** Most ids of the steps of one rollout: each step has the whole row. */
const ROLLOUT_IDS_MAX = 2 ** 27

/** A prompt with its answer. */
export interface Answer {
  /** `[W]`, padded. */
  readonly ids: Uint32Array
  /** Number of tokens of the prompt. */
  readonly start: number
  /** Number of tokens without the end. */
  readonly length: number
  /** Step that draws the last token. */
  readonly last: number
}

/** The prompts of a batch, and the whole texts without padding. */
export function rowsOf(batch: PromptData): { readonly prompt: Uint32Array; readonly whole: Uint32Array }[] {
  const [numRows = 0, width = 0] = batch.input_ids.shape
  if (batch.input_ids.shape.length !== 2) checkShape('input_ids', batch.input_ids, [numRows, width])
  checkShape('attention_mask', batch.attention_mask, [numRows, width])
  return promptEnds(batch, width).map((end, row) => {
    const ids = Uint32Array.from(batch.input_ids.data.subarray(row * width, (row + 1) * width), Number)
    const mask = batch.attention_mask.data.subarray(row * width, (row + 1) * width)
    return { prompt: ids.slice(0, end), whole: ids.filter((_, at) => mask[at] !== 0n) }
  })
}

/** A value within `most` of 0. */
export const clipped = (value: number, most: number): number => Math.min(most, Math.max(-most, value))

/** Rewards of steps, `[B, N]`. */
interface Rewards {
  readonly total: Float32Array
  readonly raw: Float32Array
  readonly kl: Float32Array
}

/** The rewards of answers: gains at their ends, less the penalty of the log-ratio at each step. */
export function rewardsOf({
  answers,
  gains,
  logRatio,
  klCoef,
  steps,
}: {
  readonly answers: readonly Answer[]
  readonly gains: readonly number[]
  readonly logRatio: Tensor<'f32'>
  readonly klCoef: number
  readonly steps: number
}): Rewards {
  const kl = logRatio.data.map((one) => -klCoef * one)
  const raw = new Float32Array(kl.length)
  for (const [row, { last }] of answers.entries()) raw[row * steps + last] = gains[row] ?? 0
  return { total: kl.map((one, at) => one + (raw[at] ?? 0)), raw, kl }
}

/** The dictionary of the steps. */
export function stepsOf({
  answers,
  steps,
  width,
  endId,
  logProbs,
  reward,
}: {
  readonly answers: readonly Answer[]
  readonly steps: number
  readonly width: number
  readonly endId: number
  readonly logProbs: Tensor<'f32'>
  readonly reward: Rewards
}): TensorDict {
  const batchSize = [answers.length, steps]
  const flags = (of: (answer: Answer) => number) => {
    const values = new Uint8Array(answers.length * steps)
    for (const [row, answer] of answers.entries()) if (of(answer) >= 0) values[row * steps + of(answer)] = 1
    return Tensor.from(values, { dtype: 'bool', shape: [...batchSize, 1] })
  }
  const rewards = (values: Float32Array) => Tensor.from(values, { shape: [...batchSize, 1] })
  const action = answers.flatMap(({ ids, start }) => [...ids.subarray(start, start + steps)])
  const next = {
    ...seenAt(answers, 1, { steps, width, endId }),
    done: flags(({ last }) => last),
    // An answer that ends with the last step is cut off, as in TorchRL.
    terminated: flags(({ last }) => (last < steps - 1 ? last : -1)),
    ...{ reward: rewards(reward.total), reward_raw: rewards(reward.raw), reward_kl: rewards(reward.kl) },
  }
  return TensorDict.from(
    {
      action: Tensor.from(BigInt64Array.from(action, BigInt), { shape: batchSize }),
      ...seenAt(answers, 0, { steps, width, endId }),
      sample_log_prob: logProbs,
      next: TensorDict.from(next, { batchSize }),
    },
    { batchSize },
  )
}

/** The tokens that each step sees, `[B, N, W]`, and those behind `shift` more steps. */
function seenAt(
  answers: readonly Answer[],
  shift: number,
  { steps, width, endId }: { readonly steps: number; readonly width: number; readonly endId: number },
) {
  const shape = [answers.length, steps, width]
  const ids = new BigInt64Array(answers.length * steps * width).fill(BigInt(endId))
  const mask = new Uint8Array(ids.length)
  for (const [row, answer] of answers.entries()) {
    const own = BigInt64Array.from(answer.ids, BigInt)
    for (let step = 0; step < steps; step++) {
      const at = (row * steps + step) * width
      const seen = answer.start + step + shift
      ids.set(own.subarray(0, seen), at)
      mask.fill(1, at, at + Math.min(seen, answer.length))
    }
  }
  return {
    input_ids: Tensor.from(ids, { shape }),
    attention_mask: Tensor.from(mask, { dtype: 'bool', shape }),
  }
}

/** @throws {FulmarError} `SHAPE_MISMATCH` for another shape. */
export function checkShape(name: string, { shape }: Tensor, wanted: readonly number[]): void {
  if (shape.length === wanted.length && shape.every((size, dim) => size === wanted[dim])) return
  const [want, got] = [wanted, shape].map((sizes) => `[${sizes.join(', ')}]`)
  throw new FulmarError('SHAPE_MISMATCH', `${name} must be of ${want}: got ${got}`)
}

/** @throws {FulmarError} `LIMIT_EXCEEDED` above {@link ROLLOUT_IDS_MAX} ids. */
export function checkSize(numRows: number, steps: number, width: number): void {
  const count = numRows * steps * width
  if (count <= ROLLOUT_IDS_MAX) return
  const detail = `a rollout must have at most ${ROLLOUT_IDS_MAX} ids: got ${numRows} rows of ${steps} steps of ${width}`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
}
