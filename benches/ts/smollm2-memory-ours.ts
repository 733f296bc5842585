/**
 * The most resident memory, in MiB, of a process that trains SmolLM2-135M for so many steps:
 * `smollm2-memory-ours.js (all | recomputed) STEPS`. `recomputed` stores only the inputs of layers. `smollm2-memory` runs it.
 */

import { AdamW, Decoder, Rng } from 'fulmar'
import { idsOf, LEARNING_RATE, readModel, TRAINED, trainStep } from './smollm2-step.js'

using rng = Rng.fromSeed(1)
using decoder = await Decoder.fromGguf(await readModel())
const [activations, steps] = process.argv.slice(2)
decoder.recomputeActivations(activations === 'recomputed')
using optimizer = new AdamW(decoder, { learningRate: LEARNING_RATE })
for (let step = 0; step < Number(steps); step++) await trainStep(decoder, optimizer, idsOf(rng, ...TRAINED))
process.stdout.write(`${process.resourceUsage().maxRSS / 1024}`)
