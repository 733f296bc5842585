/**
 * Hashes of rows, maps, forests of rollouts and scores compared with TorchRL; searches of a table compared with mctx, compiled by JAX. All of
 * ours from Node, through its public classes.
 */

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Tensor, TensorDict } from 'fulmar'
import { MCTSForest, PUCTScore, SipHash, search, TableModel, TensorDictMap } from 'fulmar/tree'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  median,
  type Report,
  ROOT,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

const THREADS = 2
const [HASHED, WIDTH] = [100_000, 4]
const MAPPED = 1000
const [ROLLOUTS, STEPS] = [32, 10]
const [NODES, ACTIONS] = [4096, 9]
const C = 5
/** States of the table that is searched. */
const STATES = 512
/** Cost of a simulation of a long search / of a short one, above which it is not flat. */
const FLAT = 1.5

/** Work of both sides, with the numbers that both must give. */
interface Work {
  readonly work: string
  readonly kind: string
  readonly rival: 'TorchRL' | 'mctx'
  readonly request: Readonly<Record<string, unknown>>
  /** Does the work `repeats` times. */
  readonly run: (repeats: number) => unknown
  /** Gives numbers that must be equal on both sides. */
  readonly result: () => Promise<readonly number[]> | readonly number[]
  /** Calls of one sample of ours and of the rival's. */
  readonly repeats: readonly [ours: number, rival: number]
  readonly goal: Goal
  /** Units of work in a call of ours / in one of theirs. */
  readonly share?: number
}

interface Search {
  readonly policy: 'gumbel' | 'muzero'
  readonly numActions: number
  readonly numSimulations: number
  readonly batch: number
}

const options = readOptions({ rounds: 7 })
hand(await measure())

async function measure(): Promise<Report> {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  const started = 'skipped' in installed ? undefined : startPeers(installed.python)
  const versions = started ? await versionsOf(started) : {}
  const [checks, figures, notes]: [string[], Figure[], string[]] = [[], [], []]
  const works = [...torchrlWorks(), ...searchWorks()]
  const perSimulation = new Map<string, number>()
  for (const one of works) {
    say(one.work)
    const peer = started?.[one.rival]
    if (peer) checks.push(`${one.work}: ${await compare(one, peer)}`)
    const [oursRepeats, rivalRepeats] = one.repeats
    const contestants: Record<string, () => Promise<Sample>> = {
      ours: async () => ({ value: (await timed(one, oursRepeats)) / (one.share ?? 1) }),
      ...(peer && { rival: () => timedPeer(peer, one, rivalRepeats) }),
    }
    const limits = { ...options, patienceMs: options.patienceMs / works.length, warmup: 1 }
    const rounds = await alternate<string>(contestants, limits)
    const { warm } = rounds.of('ours')
    const rival = peer ? { name: one.rival, samples: rounds.of('rival').warm } : { skipped: 'no rival' }
    figures.push({ work: one.work, unit: 'us', ours: warm, rival, goal: one.goal })
    notes.push(`${one.work}: ${rounds.disturbance}`)
    perSimulation.set(one.kind, median(warm))
  }
  if (started) for (const peer of Object.values(started)) peer[Symbol.dispose]()
  notes.push(...['gumbel', 'muzero'].map((policy) => flatness(policy, perSimulation)))
  return { setting: { threads: THREADS, dtype: 'f32', states: STATES }, checks, figures, notes, versions }
}

function startPeers(python: string): Record<Work['rival'], Peer> {
  const environment = { OMP_NUM_THREADS: String(THREADS), PYTHONHASHSEED: '0', ...PYTHON_ENVIRONMENT }
  const program = (path: string) => join(fileURLToPath(new URL('benches/rival/', ROOT)), path)
  return {
    TorchRL: new Peer('TorchRL', python, [program('torchrl/tree.py')], environment),
    mctx: new Peer('mctx', python, [program('mctx/search.py')], { JAX_PLATFORMS: 'cpu', ...environment }),
  }
}

async function versionsOf(peers: Record<Work['rival'], Peer>): Promise<Record<string, string>> {
  const started = await Promise.all(Object.values(peers).map((peer) => peer.answer()))
  return Object.assign({}, ...started.map((one) => (one as { versions: Record<string, string> }).versions))
}

/** Both sides give the same numbers. */
async function compare({ kind, request, result }: Work, peer: Peer): Promise<string> {
  const mine = await result()
  const asked = JSON.stringify({ kind: 'result', name: kind, request })
  const { values } = (await peer.ask(asked)) as { values: readonly number[] }
  const differs = mine.findIndex(
    (value, at) => !(Math.abs(value - (values[at] ?? Number.NaN)) <= 1e-5 * Math.max(1, Math.abs(value))),
  )
  if (mine.length !== values.length || differs >= 0)
    throw new Error(`${kind} must give ${values[differs]} at ${differs}: got ${mine[differs]}`)
  return `${mine.length} numbers equal`
}

async function timed({ run }: Work, repeats: number): Promise<number> {
  const startMs = performance.now()
  await run(repeats)
  return ((performance.now() - startMs) * 1000) / repeats
}

async function timedPeer(peer: Peer, { kind, request }: Work, repeats: number): Promise<Sample> {
  const asked = JSON.stringify({ kind: 'run', name: kind, request, repeats })
  const { ms, cpuMs } = (await peer.ask(asked)) as { ms: number; cpuMs: number }
  return { value: (ms * 1000) / repeats, rivalCpuMs: cpuMs }
}

function torchrlWorks(): Work[] {
  const rows = Tensor.from(numbers(HASHED * WIDTH), { shape: [HASHED, WIDTH] })
  const hash = new SipHash({ compatible: true })
  const keys = TensorDict.from(
    { key: Tensor.from(numbers(MAPPED * WIDTH), { shape: [MAPPED, WIDTH] }) },
    { batchSize: [MAPPED] },
  )
  const values = TensorDict.from(
    { value: Tensor.from(numbers(MAPPED), { shape: [MAPPED, 1] }) },
    { batchSize: [MAPPED] },
  )
  const map = TensorDictMap.fromTensorDictPair(keys, values, { inKeys: ['key'], compatible: true })
  map.set(keys, values)
  const rollouts = Array.from({ length: ROLLOUTS }, (_, index) => rollout(index))
  const grown = forestOf(rollouts)
  const root = rollouts[0]?.index(0) as TensorDict
  const node = scoredNode()
  const score = new PUCTScore({ c: C, unvisited: 0 })
  const work = (
    name: string,
    kind: string,
    run: () => unknown,
    result: Work['result'],
    repeats: Work['repeats'],
    atLeast: number,
    share = 1,
  ): Work => ({
    ...{
      work: name,
      kind,
      rival: 'TorchRL' as const,
      request: {},
      result,
      repeats,
      goal: { atLeast },
      share,
    },
    run: (count) => {
      for (let at = 0; at < count; at++) run()
    },
  })
  return [
    work(
      `SipHash of ${HASHED} x ${WIDTH} f32`,
      'hash',
      () => hash.forward(rows),
      () => lowBits(hash.forward(rows).data as BigInt64Array),
      [20, 2],
      10,
    ),
    work(
      `TensorDictMap, ${MAPPED} rows set`,
      'set',
      () => map.set(keys, values),
      () => [map.length],
      [50, 20],
      5,
    ),
    work(
      `TensorDictMap, ${MAPPED} rows read`,
      'get',
      () => map.get(keys),
      () => [...map.get(keys).tensor('value').toFloat32()],
      [50, 20],
      5,
    ),
    work(
      `MCTSForest, ${ROLLOUTS} rollouts of ${STEPS} steps added`,
      'extend',
      () => forestOf(rollouts),
      () => [forestOf(rollouts).length],
      [10, 1],
      100,
    ),
    work(
      `getTree of ${ROLLOUTS * STEPS + 1} vertices`,
      'tree',
      () => grown.getTree(root, { compact: false }),
      () => [grown.getTree(root, { compact: false }).numVertices()],
      [10, 1],
      100,
    ),
    work(
      `PUCTScore of a node of ${ACTIONS}, ours in batches of ${NODES}`,
      'score',
      () => score.forward(node),
      () => [...score.forward(node).tensor('score').toFloat32().slice(0, ACTIONS)],
      [20, 200],
      50,
      NODES,
    ),
  ]
}

/** The low 32 bits of each number. */
function lowBits(hashes: BigInt64Array): number[] {
  return [...hashes].map((hash) => Number(BigInt.asUintN(32, hash)))
}

function forestOf(rollouts: readonly TensorDict[]): MCTSForest {
  const forest = new MCTSForest({ maxSize: 10_000, compatible: true })
  for (const one of rollouts) forest.extend(one)
  return forest
}

/** A rollout from the state 0, whose other states no other rollout has. */
function rollout(index: number): TensorDict {
  const state = (step: number) => (step === 0 ? 0 : 1 + index * STEPS + step)
  const column = (of: (step: number) => number) =>
    Tensor.from(
      BigInt64Array.from({ length: STEPS }, (_, step) => BigInt(of(step))),
      { shape: [STEPS, 1] },
    )
  const ends = Uint8Array.from({ length: STEPS }, (_, step) => Number(step === STEPS - 1))
  const flags = Tensor.from(ends, { shape: [STEPS, 1], dtype: 'bool' })
  return TensorDict.from(
    { observation: column(state), action: column((step) => (step === 0 ? index : step)) },
    { batchSize: [STEPS] },
  )
    .set(
      ['next', 'observation'],
      column((step) => state(step + 1)),
    )
    .set(['next', 'reward'], Tensor.from(numbers(STEPS), { shape: [STEPS, 1] }))
    .set(['next', 'done'], flags)
    .set(['next', 'terminated'], flags)
}

function scoredNode(): TensorDict {
  const cells = (of: (at: number) => number) =>
    Tensor.from(
      Float32Array.from({ length: NODES * ACTIONS }, (_, at) => of(at % ACTIONS)),
      {
        shape: [NODES, ACTIONS],
      },
    )
  return TensorDict.from(
    {
      win_count: cells((at) => at),
      visits: cells((at) => at + 1),
      total_visits: Tensor.from(new Float32Array(NODES).fill((ACTIONS * (ACTIONS + 1)) / 2), {
        shape: [NODES, 1],
      }),
      prior_prob: cells(() => 1 / ACTIONS),
    },
    { batchSize: [NODES] },
  )
}

function searchWorks(): Work[] {
  const sizes = [
    { numActions: 9, numSimulations: 64, batch: 1, repeats: [40, 5], goals: { gumbel: 3, muzero: 10 } },
    { numActions: 9, numSimulations: 64, batch: 32, repeats: [20, 3], goals: { gumbel: 3, muzero: 10 } },
    { numActions: 9, numSimulations: 64, batch: 256, repeats: [5, 1], goals: { gumbel: 8, muzero: 10 } },
    { numActions: 32, numSimulations: 256, batch: 32, repeats: [3, 1], goals: { gumbel: 8, muzero: 10 } },
    { numActions: 9, numSimulations: 800, batch: 1, repeats: [5, 1], goals: { gumbel: 8, muzero: 10 } },
  ] as const
  return (['gumbel', 'muzero'] as const).flatMap((policy) =>
    sizes.map(({ repeats, goals, ...size }) =>
      searchWork({ policy, ...size }, repeats, { atLeast: goals[policy] }),
    ),
  )
}

function searchWork(of: Search, repeats: Work['repeats'], goal: Goal): Work {
  const { policy, numActions, numSimulations, batch } = of
  const model = tableOf(numActions)
  const root = model.root(Array.from({ length: batch }, (_, tree) => tree % STATES))
  const fixed = policy === 'gumbel' ? { gumbelScale: 0 } : { dirichletFraction: 0 }
  const once = () => search({ root, model, numSimulations, policy, ...fixed })
  return {
    work: `${policy}, ${numActions} actions x ${numSimulations} simulations, batch ${batch}`,
    kind: `${policy} ${numActions} ${numSimulations} ${batch}`,
    rival: 'mctx',
    request: { ...of, numStates: STATES },
    run: async (count) => {
      for (let at = 0; at < count; at++) (await once())[Symbol.dispose]()
    },
    result: async () => {
      using found = await once()
      return [...found.summary.visitCounts.toFloat32()]
    },
    ...{ repeats, goal },
  }
}

/** The table that the rival computes too: each cell is a number of its place. */
function tableOf(numActions: number): TableModel {
  const size = STATES * numActions
  const shape = [STATES, numActions]
  const cells = (salt: number, scale: number) => Tensor.from(numbers(size, salt, scale), { shape })
  const next = Int32Array.from({ length: size }, (_, at) => mixed(at, 1) % STATES)
  return new TableModel({
    next: Tensor.from(next, { shape }),
    reward: cells(2, 1),
    discount: Tensor.from(new Float32Array(size).fill(0.984375), { shape }),
    logits: cells(3, 2),
    value: Tensor.from(numbers(STATES, 4)),
  })
}

/** Numbers in [-scale / 2, scale / 2) that a single holds exactly. */
function numbers(length: number, salt = 0, scale = 1): Float32Array {
  return Float32Array.from({ length }, (_, at) => scale * (mixed(at, salt) / 2 ** 20 - 0.5))
}

/** 20 bits of a place. The rival computes the same. */
function mixed(at: number, salt: number): number {
  let bits = Math.imul(at + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b)
  bits = Math.imul(bits ^ (bits >>> 15), 0x2c1b3c6d)
  bits = Math.imul(bits ^ (bits >>> 12), 0x297a2d39)
  return (bits ^ (bits >>> 15)) >>> 12
}

function flatness(policy: string, usOf: ReadonlyMap<string, number>): string {
  const cost = (count: number) => Number(usOf.get(`${policy} 9 ${count} 1`)) / count
  const ratio = cost(800) / cost(64)
  const said = ratio <= FLAT ? 'met' : `short by ${(ratio - FLAT).toFixed(2)}`
  return `${policy}: a simulation of 800 costs ${ratio.toFixed(2)} of one of 64 (goal ${FLAT}, ${said})`
}
