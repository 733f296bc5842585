/**
 * Replay buffers: rows of 3.1 KB drawn and written, draws and updates by priority, rollouts of any length, slices of trajectories. Ours in Rust
 * and, for rows, on Node, compared with TorchRL, as shipped and tuned, and cpprb; goals 4 to 8.
 */

import {
  alternate,
  type Figure,
  type Goal,
  hand,
  type Report,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import type { Skipped } from './peer.js'
import { type CaseName, type Checked, type Side, type SideName, startSides } from './replay-sides.js'

const WARMUP = 2
const LEVELS = 1000
const ALPHA = 0.6
const DRAWS = 65_536
/** Largest relative difference of a weight, or of a leaf that was set, from its formula. */
const WEIGHT_TOLERANCE = 1e-3
/** The largest allowed deviation of a mean of draws, in standard deviations. */
const SIGMAS = 5
/** The largest ratio of a draw's cost with 10 M rows to one with 100,000 that counts as flat: the caches hold less of it. */
const FLAT = 1.5

const LABELS: Readonly<Record<SideName, string>> = {
  node: 'Node',
  rust: 'Rust',
  torchrl: 'TorchRL as shipped',
  tuned: 'TorchRL tuned',
  cpprb: 'cpprb',
}

/** One kind of call on one buffer, and its rivals. */
interface Work {
  readonly work: string
  readonly own: readonly ['node' | 'rust', operation: string]
  /** The rivals' name of the call. */
  readonly operation: string
  readonly count: number
  /** Calls of one sample: enough to time them, few enough not to wait for. */
  readonly repeats: number
  /** The goal for the worst tenth. */
  readonly goals: Partial<Record<SideName, Goal | undefined>>
}

/** A buffer of one size that every side fills. */
interface Section {
  readonly name: CaseName
  readonly rows: number
  /** The smallest size of a row. */
  readonly payloadBytes: number
  readonly works: readonly Work[]
}

const torchrl = (factor: number) => ({ tuned: { atLeast: factor }, torchrl: { atLeast: factor } })
const both = (factor: number, cpprb: number) => ({ ...torchrl(factor), cpprb: { atLeast: cpprb } })
/** Shown without a goal. */
const SHOWN = { tuned: undefined, cpprb: undefined }

const draw = { operation: 'sample', count: 256, repeats: 100 }
const extend = { operation: 'extend', count: 400, repeats: 50 }
const add = { operation: 'add', count: 1, repeats: 500 }
const write = { operation: 'extend', count: 256, repeats: 50 }
const pad = { operation: 'sample', count: 64, repeats: 100 }

const SECTIONS: readonly Section[] = [
  {
    name: 'pixels',
    rows: 10_000,
    payloadBytes: 5 * 4 + 3 * 32 * 32,
    works: [
      { work: 'sampleInto 256 rows, Node', own: ['node', 'sampleInto'], ...draw, goals: both(8, 1.2) },
      { work: 'the same, read as typed arrays', own: ['node', 'sampleArrays'], ...draw, goals: SHOWN },
      { work: 'sample 256 rows, Node', own: ['node', 'sample'], ...draw, goals: { ...SHOWN, ...torchrl(8) } },
      { work: 'sample_into 256 rows, Rust', own: ['rust', 'sampleInto'], ...draw, goals: both(8, 1.2) },
      { work: 'extend 400 rows, Rust', own: ['rust', 'extend'], ...extend, goals: both(12, 1) },
      { work: 'extend 400 rows, Node', own: ['node', 'extend'], ...extend, goals: SHOWN },
      { work: 'add one row, Rust', own: ['rust', 'add'], ...add, goals: both(300, 25) },
      { work: 'add one row, Node', own: ['node', 'add'], ...add, goals: SHOWN },
      { work: 'add one row by columns, Node', own: ['node', 'commit'], ...add, goals: both(300, 25) },
    ],
  },
  { ...prioritized(1, 5, 9), works: [...prioritized(1, 5, 9).works, ...smallBatch()] },
  prioritized(10, 6, 7),
  prioritized(100, 9, 12),
  {
    name: 'ragged',
    rows: 4096,
    payloadBytes: 4 + 8 * 1056,
    works: [
      {
        work: 'extend 256 rollouts of 64 to 2,048 tokens',
        own: ['rust', 'extend'],
        ...write,
        goals: torchrl(3),
      },
      { work: 'sample 64 of them and pad', own: ['rust', 'sample'], ...pad, goals: torchrl(3) },
    ],
  },
  slices(100_000, {}),
  slices(1_000_000, {}),
  slices(10_000_000, torchrl(100)),
]

const options = readOptions({ rounds: 9 })
hand(await measure())

function prioritized(millions: number, sampleGoal: number, updateGoal: number): Section {
  const size = `${DRAWS.toLocaleString('en')} of ${millions} M priorities`
  const call = { count: DRAWS, repeats: 3 }
  const of = (own: string, operation: string, goal: number): Work => ({
    work: `${own} ${size}`,
    own: ['rust', own],
    operation,
    ...call,
    goals: torchrl(goal),
  })
  const works = [of('sampleInto', 'sample', sampleGoal), of('update', 'update', updateGoal)]
  return { name: 'prioritized', rows: millions * 1_000_000, payloadBytes: 0, works }
}

function smallBatch(): Work[] {
  return [['sampleInto', 'sample'] as const, ['update', 'update'] as const].map(([own, operation]) => ({
    work: `${own} 256 of 1 M priorities`,
    own: ['rust', own] as const,
    operation,
    count: 256,
    repeats: 100,
    goals: { tuned: undefined, torchrl: undefined },
  }))
}

function slices(rows: number, goals: Work['goals']): Section {
  const work = `extend 256, sample 32 slices of 64; ${rows.toLocaleString('en')} steps`
  const call = { operation: 'turn', count: 1, repeats: 10 }
  return {
    name: 'slices',
    rows,
    payloadBytes: 8 + 4 + 1,
    works: [{ work, own: ['rust', 'turn'], ...call, goals }],
  }
}

async function measure(): Promise<Report> {
  const sides = await startSides(options.rival)
  const running = entriesOf(sides).filter((entry): entry is [SideName, Side] => !('skipped' in entry[1]))
  const [checks, notes, figures]: [string[], string[], Figure[]] = [[], [], []]
  try {
    for (const section of SECTIONS) {
      say(`${section.name}, ${section.rows.toLocaleString('en')} rows`)
      const found = await measureSection(section, sides)
      figures.push(...found.figures)
      checks.push(...found.checks)
      notes.push(...found.notes)
    }
  } finally {
    for (const [, side] of running) side[Symbol.dispose]()
  }
  const versions = Object.assign({}, ...running.map(([, side]) => side.versions))
  notes.push(
    'TorchRL as shipped computes on two threads; tuned on one, as ours does, with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000; cpprb with these too',
    'priorities: samplers alone, without items; everything else through the whole buffer',
  )
  return {
    setting: { threads: 1, alpha: ALPHA },
    checks,
    figures: [...figures, ...flatness(figures)],
    notes,
    versions,
  }
}

/** Fills the buffers of all sides, compares what they hold and draw, and only then times them in turns. */
async function measureSection(
  { name, rows, payloadBytes, works }: Section,
  sides: Awaited<ReturnType<typeof startSides>>,
) {
  const wanted = new Set(works.flatMap(({ own, goals }) => [own[0], ...(Object.keys(goals) as SideName[])]))
  const present = entriesOf(sides).filter((entry): entry is [SideName, Side] => {
    const [label, side] = entry
    return wanted.has(label) && !('skipped' in side) && side.has(name)
  })
  const title = `${name}, ${rows.toLocaleString('en')} rows`
  const bytes: string[] = []
  for (const [label, side] of present) {
    const { bytesPerRow } = await side.open(name, rows)
    if (bytesPerRow !== null) bytes.push(`${LABELS[label]} ${bytesPerRow.toFixed(1)}`)
  }
  const checks = [`${title}: ${await compare(name, present)}`]
  const contestants: Record<string, () => Promise<Sample>> = {}
  for (const { own, operation, count, repeats } of works) {
    for (const [label, side] of present) {
      const asked = label === own[0] ? own[1] : operation
      if (label === own[0] || (label !== 'node' && label !== 'rust'))
        contestants[`${label} ${asked} ${count}`] = () => side.run(asked, count, repeats)
    }
  }
  const rounds = await alternate(contestants, {
    ...options,
    patienceMs: options.patienceMs / SECTIONS.length,
    warmup: WARMUP,
  })
  for (const [, side] of present) await side.close()
  const figures = works.flatMap(({ work, own, operation, count, goals }): Figure[] => {
    const key = `${own[0]} ${own[1]} ${count}`
    if (!(key in contestants)) return []
    const { cold, warm } = rounds.of(key)
    const figure = { work, unit: 'us' as const, ours: warm, cold: { ours: cold } }
    if (Object.keys(goals).length === 0) return [figure]
    return (Object.entries(goals) as [SideName, Goal | undefined][]).map(([label, goal]) => {
      const theirs = `${label} ${operation} ${count}`
      if (!(theirs in contestants)) return { ...figure, rival: whyNot(sides[label]), ...(goal && { goal }) }
      const taken = rounds.of(theirs)
      const rival = { name: LABELS[label], samples: taken.warm }
      return { ...figure, rival, ...(goal && { goal }), cold: { ours: cold, rival: taken.cold } }
    })
  })
  const notes = [
    `${title}: bytes a row, of which ${payloadBytes} are the items': ${bytes.join(', ')}`,
    `${title}: ${rounds.disturbance}`,
  ]
  return { figures, checks, notes }
}

/** Throws if a side has other rows, or draws rows that it does not have, or not as often as it should. */
async function compare(name: CaseName, present: readonly (readonly [SideName, Side])[]): Promise<string> {
  const said: string[] = []
  const states = new Map<string, SideName[]>()
  for (const [label, side] of present) {
    if (name === 'pixels') {
      await side.run('extend', 400, 2)
      await side.run('add', 1, 3)
    }
    if (name === 'ragged') await side.run('extend', 256, 3)
    if (name === 'slices') await side.run('turn', 1, 2)
    if (name !== 'prioritized') {
      const state = await side.state()
      states.set(state, [...(states.get(state) ?? []), label])
    }
    said.push(`${LABELS[label]} ${verified(label, name, await side.check())}`)
  }
  if (states.size > 1) throw new Error(`all must hold the same rows: got ${[...states.values()].join(' | ')}`)
  const held = states.size === 1 ? 'all rows equal after the same writes; ' : ''
  return `${held}of a batch ${said.join(', ')}`
}

function verified(label: SideName, name: CaseName, checked: Checked): string {
  const { wrong, of, apart = Number.NaN, priority = Number.NaN, row = Number.NaN, unreachable } = checked
  if (name !== 'prioritized') {
    if (wrong !== 0)
      throw new Error(`${LABELS[label]} must draw what was written: got ${wrong} of ${of} wrong`)
    return `${of} right`
  }
  for (const [what, distance] of [
    ['weights', apart],
    ['leaves', checked.leafApart ?? Number.NaN],
  ] as const) {
    if (!(distance <= WEIGHT_TOLERANCE))
      throw new Error(`${LABELS[label]}'s ${what} must be within ${WEIGHT_TOLERANCE}: got ${distance}`)
  }
  if (unreachable) throw new Error(`every row must be reachable: got ${unreachable} that are not`)
  const { mean, deviation } = expectedPriority()
  const offs = [(priority - mean) / (deviation / Math.sqrt(DRAWS)), (row - 0.5) / Math.sqrt(1 / 12 / DRAWS)]
  // A rival that draws wrongly is reported, not refused: at 100 M its f32 sums do not resolve every row.
  const isOff = !offs.every((off) => Math.abs(off) <= SIGMAS)
  if (isOff && label === 'rust') throw new Error(`draws must follow the priorities: got ${offs} deviations`)
  const means = `mean priority ${priority.toFixed(4)} for ${mean.toFixed(4)}, mean row ${row.toFixed(4)}`
  const reach = unreachable === 0 ? ', every row reachable' : ''
  return `weights ${apart.toExponential(1)} apart, ${means}${isOff ? ', OFF' : ''}${reach}`
}

/** Mean and standard deviation of the priority of a draw: level by its power. */
function expectedPriority(): { readonly mean: number; readonly deviation: number } {
  const levels = Array.from({ length: LEVELS }, (_, at) => (at + 1) / LEVELS)
  const moment = (power: number) => levels.reduce((sum, level) => sum + level ** (ALPHA + power), 0)
  const [total, mean] = [moment(0), moment(1) / moment(0)]
  return { mean, deviation: Math.sqrt(moment(2) / total - mean ** 2) }
}

/** Ours at 10 M and 1 M steps, relative to ours at 100,000. */
function flatness(figures: readonly Figure[]): Figure[] {
  const of = (steps: string) => figures.find(({ work }) => work.endsWith(`; ${steps} steps`))
  const [small, ...larger] = [of('100,000'), of('1,000,000'), of('10,000,000')]
  return larger.flatMap((figure) => {
    if (!small || !figure) return []
    const rival = { name: 'ours, 100,000 steps', samples: small.ours }
    return [{ work: figure.work, unit: figure.unit, ours: figure.ours, rival, goal: { atMost: FLAT } }]
  })
}

function whyNot(side: Side | Skipped): Skipped {
  return 'skipped' in side ? side : { skipped: 'it has no such buffer' }
}

function entriesOf(sides: Record<SideName, Side | Skipped>): [SideName, Side | Skipped][] {
  return Object.entries(sides) as [SideName, Side | Skipped][]
}
