/** Decoders of many versions, for tests of policies that take new weights. */

import { AdamW, Decoder } from '../../src/model/index.js'
import { TINY } from '../model/tiny.js'

/** A decoder of that version, with weights that no other version has. */
export async function versioned(version: number): Promise<Decoder> {
  using fresh = Decoder.fromSeed(TINY, { seed: version })
  return Decoder.fromSafetensors(TINY, await fresh.toSafetensors(), { version })
}

/** A decoder with an adapter that has taken steps. */
export async function adapted(): Promise<Decoder> {
  const decoder = Decoder.fromSeed(TINY, { seed: 2 })
  await decoder.addLora({ r: 2, target_modules: ['q_proj', 'v_proj', 'up_proj'] }, { seed: 0 })
  await train(decoder, 3)
  return decoder
}

/** Takes steps of an optimizer of its own. */
export async function train(decoder: Decoder, numSteps: number): Promise<void> {
  using optimizer = new AdamW(decoder, { learningRate: 0.1 })
  const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) }
  for (let step = 0; step < numSteps; step++) {
    await decoder.forward(batch)
    await decoder.backward(Float32Array.of(0, -1, -1))
    await optimizer.step()
  }
}
