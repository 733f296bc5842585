/** SmolLM2-135M, batches of random ids, and a training step of them, as `smollm2` measures them. */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { type Decoder, GRPOLoss, type Rng } from 'fulmar'
import type { AdamW } from 'fulmar/model'
import { ROOT } from './measure.js'

/** The file of the model. */
export const MODEL = fileURLToPath(new URL('models/SmolLM2-135M-Instruct.Q4_1.gguf', ROOT))
export const LEARNING_RATE = 1e-6
/** Sequences of a training step, and their tokens. */
export const TRAINED = [8, 256] as const
const VOCAB = 49_152
/** Ids below are of special tokens. */
const FIRST_ID = 17

/** Reads {@link MODEL}. */
export async function readModel(): Promise<Uint8Array> {
  if (!existsSync(MODEL)) throw new Error(`${MODEL} must be there: node scripts/smollm2.mjs gets it`)
  return await readFile(MODEL)
}

/** Forward, a clipped loss on every token but the first, backward, clipping by norm, and a step of all weights. */
export async function trainStep(decoder: Decoder, optimizer: AdamW, ids: number[][]): Promise<void> {
  const { mask, ...batch } = batchOf(ids, (at) => at > 0)
  const { logProb } = await decoder.forward({ ...batch, mask })
  const advantage = Float32Array.from(ids, () => 1)
  const { gradLogProb } = new GRPOLoss().forward({
    logProb,
    oldLogProb: logProb,
    advantage,
    mask,
    offsets: batch.offsets,
  })
  await decoder.backward(gradLogProb)
  await optimizer.step({ maxGradNorm: 1 })
}

/** Sequences that begin differently, so that none shares what another computes. */
export function idsOf(rng: Rng, rows: number, length: number): number[][] {
  const id = () => FIRST_ID + rng.below(VOCAB - FIRST_ID)
  return Array.from({ length: rows }, () => Array.from({ length }, id))
}

export function batchOf(rows: number[][], isScored: (at: number, length: number) => boolean) {
  const length = rows[0]?.length ?? 0
  return {
    ids: Uint32Array.from(rows.flat()),
    offsets: Uint32Array.from({ length: rows.length + 1 }, (_, row) => row * length),
    mask: Uint8Array.from({ length: rows.length * length }, (_, at) => Number(isScored(at % length, length))),
  }
}
