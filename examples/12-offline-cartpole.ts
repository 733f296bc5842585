/**
 * A policy from a data set alone: 5,659 steps of CartPole by a controller of which 35 % of the actions are random, as a data set of Minari.
 * A small decoder learns to say which action follows what was seen (behaviour cloning); random actions are noise without a pattern, so the
 * most likely action is the controller's. Then it plays 20 fresh episodes. The data's mean return is 189.
 *
 * An observation is four tokens, one for each number: the part of the data's values that it is among. The fifth token is the action.
 *
 *     npm run build && node scripts/examples.mjs native
 *     node build/examples/12-offline-cartpole.js
 *     node build/examples/12-offline-cartpole.js --d4rl    # the same steps from a file of D4RL
 */

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AdamW, Decoder, describeBuild, Rng } from 'fulmar'
import { loadDataset, readD4RL, readMinari } from 'fulmar/dataset'
import { TensorDictReplayBuffer, TensorStorage } from 'fulmar/replay'
import type { TensorDict } from 'fulmar/tensor'

const smoke = process.argv.includes('--smoke')
const NUM_UPDATES = smoke ? 150 : 600
const ROWS = 128
const NUM_BINS = 32
const WIDTH = 4
const SEQUENCE = WIDTH + 1
const ACTION_ID = WIDTH * NUM_BINS
const NUM_EPISODES = 20
const MOST_STEPS = 500

const root = await mkdtemp(join(tmpdir(), 'fulmar-'))
const minari = await openBuffer()
const d4rl = await openD4RL()
for (const key of ['observation', 'action']) {
  const [ours, theirs] = [minari, d4rl].map((steps) => steps.readAllInOrder().tensor(key).toFloat32())
  assert.deepEqual(ours?.slice(0, theirs?.length), theirs, `both files must have the same steps at ${key}`)
}
const buffer = process.argv.includes('--d4rl') ? d4rl : minari
const edges = edgesOf(buffer.readAllInOrder())
console.log(`${buffer.length} steps, ${NUM_BINS} tokens for each of ${WIDTH} numbers`)

using decoder = Decoder.fromSeed(
  {
    model_type: 'qwen2',
    vocab_size: ACTION_ID + 2,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 2,
  },
  { seed: 1 },
)
using optimizer = new AdamW(decoder, { learningRate: 3e-3 })
const startMs = performance.now()
for (let update = 1; update <= NUM_UPDATES; update += 1) {
  const batch = buffer.sample(ROWS)
  const observation = batch.tensor('observation').toFloat32()
  const actions = Array.from(batch.tensor('action').data, Number)
  const tokens = sequencesOf(observation, actions)
  const { logProb } = await decoder.forward(tokens)
  // The gradient of the mean of -log p over the actions.
  await decoder.backward(Float32Array.from(tokens.mask, (isAction) => -isAction / ROWS))
  await optimizer.step()
  if (update % 50 > 0) continue
  const loss = -logProb.reduce((sum, value, at) => sum + value * (tokens.mask[at] ?? 0), 0) / ROWS
  console.log(`update ${update}: loss ${loss.toFixed(3)}`)
}
const trainedMs = performance.now()

const returns = await play()
const mean = returns.reduce((sum, value) => sum + value, 0) / NUM_EPISODES
const seconds = (ms: number) => (ms / 1000).toFixed(1)
console.log(
  `mean return of ${NUM_EPISODES} episodes: ${mean} of ${MOST_STEPS} (trained in ${seconds(trainedMs - startMs)} s, played in ${seconds(performance.now() - trainedMs)} s)`,
)
await rm(root, { recursive: true })
assert.ok(mean >= (smoke ? 250 : 450), `the mean return is too low: ${mean}`)

/** The data set, converted to a folder; in WebAssembly, which has no files, from its bytes. */
async function openBuffer(): Promise<TensorDictReplayBuffer> {
  const minariRoot = 'examples/data/minari'
  const id = 'cartpole/noisy-v0'
  if (describeBuild().backend === 'native')
    return await loadDataset(`minari:${id}`, { root, minariRoot, loadFromLocalMinari: true, seed: 3 })
  const bytes = new Uint8Array(await readFile(join(minariRoot, id, 'data/main_data.hdf5')))
  const { steps } = readMinari(bytes, await readFile(join(minariRoot, id, 'data/metadata.json'), 'utf8'))
  return new TensorDictReplayBuffer({ storage: new TensorStorage(steps), seed: 3 })
}

/** The same steps from a file of D4RL, whose last row is dropped. */
async function openD4RL(): Promise<TensorDictReplayBuffer> {
  const bytes = new Uint8Array(await readFile('examples/data/d4rl/cartpole-noisy.hdf5'))
  return new TensorDictReplayBuffer({ storage: new TensorStorage(readD4RL(bytes).steps), seed: 3 })
}

/** For each number of an observation the values between its tokens: each token is as frequent as the others. */
function edgesOf(rows: TensorDict): readonly Float32Array[] {
  const values = rows.tensor('observation').toFloat32()
  return Array.from({ length: WIDTH }, (_, column) => {
    const sorted = values.filter((_, at) => at % WIDTH === column).sort()
    return Float32Array.from(
      { length: NUM_BINS - 1 },
      (_, bin) => sorted[Math.floor(((bin + 1) * sorted.length) / NUM_BINS)] ?? 0,
    )
  })
}

/** Sequences of observations `[N, 4]` and actions, with a mask of the actions. */
function sequencesOf(observation: Float32Array, actions: readonly number[]) {
  const ids = new Uint32Array(actions.length * SEQUENCE)
  const mask = new Uint8Array(ids.length)
  for (const [row, action] of actions.entries()) {
    for (const [column, bounds] of edges.entries()) {
      const value = observation[row * WIDTH + column] ?? 0
      const bin = bounds.filter((bound) => value >= bound).length
      ids[row * SEQUENCE + column] = column * NUM_BINS + bin
    }
    ids[row * SEQUENCE + WIDTH] = ACTION_ID + action
    mask[row * SEQUENCE + WIDTH] = 1
  }
  const offsets = Uint32Array.from({ length: actions.length + 1 }, (_, row) => row * SEQUENCE)
  return { ids, mask, offsets }
}

/** Plays episodes side by side with the more likely action, and returns how long each lasts. */
async function play(): Promise<number[]> {
  using rng = Rng.fromSeed(5)
  const states: Float32Array[] = Array.from({ length: NUM_EPISODES }, () =>
    Float32Array.from({ length: WIDTH }, () => 0.1 * rng.uniform() - 0.05),
  )
  const returns = new Array<number>(NUM_EPISODES).fill(0)
  let running = [...states.keys()]
  for (let step = 0; step < MOST_STEPS && running.length > 0; step += 1) {
    const seen = running.flatMap((episode) => [...(states[episode] ?? [])])
    const tokens = sequencesOf(
      Float32Array.from([...seen, ...seen]),
      [0, 1].flatMap((action) => running.map(() => action)),
    )
    const { logProb } = await decoder.score(tokens)
    const score = (row: number) => logProb[row * SEQUENCE + WIDTH] ?? 0
    const actions = running.map((_, at) => Number(score(at + running.length) > score(at)))
    running = running.filter((episode, at) => {
      returns[episode] = (returns[episode] ?? 0) + 1
      const next = stepOf(states[episode] ?? new Float32Array(WIDTH), actions[at] ?? 0)
      states[episode] = next
      return Math.abs(next[0] ?? 0) <= 2.4 && Math.abs(next[2] ?? 0) <= (12 * Math.PI) / 180
    })
  }
  return returns
}

/** CartPole as in Gymnasium (Barto, Sutton and Anderson, 1983): position, speed, angle and its speed after 0.02 s of a push. */
function stepOf([x = 0, speed = 0, angle = 0, turn = 0]: Float32Array, action: number): Float32Array {
  const [gravity, poleMass, totalMass, halfPole, tau] = [9.8, 0.1, 1.1, 0.5, 0.02]
  const force = action === 1 ? 10 : -10
  const [sin, cos] = [Math.sin(angle), Math.cos(angle)]
  const push = (force + poleMass * halfPole * turn ** 2 * sin) / totalMass
  const angular = (gravity * sin - cos * push) / (halfPole * (4 / 3 - (poleMass * cos ** 2) / totalMass))
  const linear = push - (poleMass * halfPole * angular * cos) / totalMass
  return Float32Array.of(x + tau * speed, speed + tau * linear, angle + tau * turn, turn + tau * angular)
}
