/** A chat environment of TorchRL's kind as a task, compared with the same conversation written by hand. */

import { CharTokenizer, createRenderer, listDataset, type MessageEnv, Rollouter, type Task } from 'fulmar'
import { ScriptedPolicy } from 'fulmar/testing'
import { chatTask, DatasetChatEnv, type EnvTransform, StepCounter } from 'fulmar/torchrl'
import { alternate, type Figure, hand, readOptions } from './measure.js'

type Row = Readonly<Record<string, string>>

const GROUP_SIZE = 8
const GOAL = { atMost: 1.5 }
/** Groups of one sample: one is too short to time. */
const REPEATS = 8
const REWARD = { name: 'one', score: () => 1 }
const ANSWER = { role: 'user', content: 'Go on, please: what comes next?' }

const options = readOptions({ rounds: 15 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const row: Row = { query: 'Begin.' }
const reply = [...tokenizer.encode('This is an answer of the policy.').ids, renderer.stopIds[0] ?? 0]
const figures: Figure[] = []
const checks: string[] = []
for (const numTurns of [1, 8, 64]) figures.push(await measure(numTurns))
hand({
  setting: { groupSize: GROUP_SIZE, groupsPerSample: REPEATS, threads: 1 },
  checks,
  figures,
  notes: ['whole rollouts: rendering, ledger, a policy that answers from a script, rewards'],
  versions: {},
})

async function measure(numTurns: number): Promise<Figure> {
  const [ours, theirs] = [rollouterOf(ofChatEnv(numTurns), numTurns), rollouterOf(byHand(numTurns), numTurns)]
  const [own, hands] = [await idsOf(ours), await idsOf(theirs)]
  if (own !== hands) throw new Error(`rollouts of ${numTurns} turns must hold the same tokens: they differ`)
  checks.push(`${numTurns} turns: the same tokens on both sides`)
  const timed = (rollouter: Rollouter<Row>) => async () => {
    const start = performance.now()
    for (let repeat = 0; repeat < REPEATS; repeat++) await run(rollouter)
    return { value: ((performance.now() - start) * 1000) / (REPEATS * GROUP_SIZE * numTurns) }
  }
  const rounds = await alternate<string>(
    { ours: timed(ours), hand: timed(theirs) },
    { ...options, warmup: 2 },
  )
  return {
    work: `a turn of a rollout of ${numTurns}`,
    unit: 'us',
    ours: rounds.of('ours').warm,
    rival: { name: 'MessageEnv by hand', samples: rounds.of('hand').warm },
    ...(numTurns === 64 && { goal: GOAL }),
  }
}

function rollouterOf(task: Task<Row>, numTurns: number): Rollouter<Row> {
  const policy = new ScriptedPolicy({ reply: () => reply })
  return new Rollouter({
    policy,
    task,
    renderer,
    groupSize: GROUP_SIZE,
    maxTokens: 64,
    maxTurns: numTurns + 1,
  })
}

async function run(rollouter: Rollouter<Row>): Promise<void> {
  const group = await rollouter.runGroup({ sample: row, groupId: 0 })
  group[Symbol.dispose]()
}

/** Every token of a group, as text. */
async function idsOf(rollouter: Rollouter<Row>): Promise<string> {
  using group = await rollouter.runGroup({ sample: row, groupId: 0 })
  return JSON.stringify(
    group.rollouts.map(({ turns }) =>
      turns.map(({ promptIds, completionIds }) => [[...promptIds], [...completionIds]]),
    ),
  )
}

function ofChatEnv(numTurns: number): Task<Row> {
  const goOn: EnvTransform = {
    afterStep: (next) => next,
    chatTurns: () => (turn) => void turn.messages.push(ANSWER),
  }
  const transforms = [goOn, new StepCounter({ maxSteps: numTurns })]
  const env = new DatasetChatEnv<Row>({ dataset: [row], transforms })
  const task = chatTask({ name: 'chat', env, makeDataset: () => listDataset({ items: [row] }) })
  return { ...task, rewardFns: [REWARD] }
}

function byHand(numTurns: number): Task<Row> {
  const makeEnv = (): MessageEnv => {
    let count = 0
    return {
      init: () => ({ initPromptMessages: [{ role: 'user', content: row.query ?? '' }] }),
      step: () => {
        count += 1
        return { envMessages: [ANSWER], done: count >= numTurns }
      },
      close: () => undefined,
    }
  }
  return {
    name: 'hand',
    makeDataset: () => listDataset({ items: [row] }),
    makeEnv,
    rewardFns: [REWARD],
    isSolved: () => true,
  }
}
