/** Curves of runs: each metric of each phase, by step. */

import { type ChartPoint, lineChart } from '../telemetry/line-chart.js'
import type { RunTail } from './run-tail.js'

/** Points of a curve that the page gets; longer curves are averaged over equal runs of neighbours. */
export const SERIES_POINTS_MAX = 2_000

/** A chart that the page shows without being asked, where a run has one of its metrics. */
export interface StandardChart {
  readonly title: string
  /** Names without the phase, the first that a run has is drawn. */
  readonly metrics: readonly string[]
}

/** The charts, in the order of the page. */
export const STANDARD_CHARTS: readonly StandardChart[] = [
  { title: 'Mean reward', metrics: ['reward'] },
  { title: 'Held-out pass rate', metrics: ['passRate'] },
  { title: 'KL to the reference or the sampler', metrics: ['kl'] },
  { title: 'Entropy', metrics: ['entropy'] },
  { title: 'Clipped share of tokens', metrics: ['clipFraction'] },
  { title: 'Effective sample size', metrics: ['ess'] },
  { title: 'Staleness in steps', metrics: ['train_batch/policy_age/mean'] },
  { title: 'Tokens per second', metrics: ['tokensPerSecond'] },
  { title: 'Gradient norm', metrics: ['gradientNorm'] },
  { title: 'Tokens of a response', metrics: ['rollout/response_length/mean'] },
  { title: 'Unscored share', metrics: ['rollout/unscored_rate/mean'] },
  { title: 'Loss', metrics: ['loss'] },
]

/** A curve as two columns. */
export interface Series {
  readonly steps: readonly number[]
  readonly values: readonly number[]
}

/** Names by run, with the revision that they are of: a page asks every two seconds. */
const namesOfRuns = new WeakMap<RunTail, { readonly revision: number; readonly names: readonly string[] }>()

/** Names of the metrics of a run, `phase/metric` each, in the order of first appearance. */
export function seriesNames(run: RunTail): readonly string[] {
  const { revision, events } = run
  const known = namesOfRuns.get(run)
  if (known?.revision === revision) return known.names
  const found = new Set<string>()
  for (const event of events) {
    if (event.event === 'eval') found.add(`${event.phase}/passRate`)
    if (event.event === 'step')
      for (const metric of Object.keys(event.metrics)) found.add(`${event.phase}/${metric}`)
  }
  const names = [...found]
  namesOfRuns.set(run, { revision, names })
  return names
}

/** The points of one curve; none if the run lacks it. */
function seriesPoints({ events }: RunTail, name: string): ChartPoint[] {
  const [phase, metric] = [name.slice(0, name.indexOf('/')), name.slice(name.indexOf('/') + 1)]
  return events.flatMap((event) => {
    if (event.event === 'result' || event.phase !== phase) return []
    if (event.event === 'eval') return metric === 'passRate' ? [{ x: event.step, y: event.passRate }] : []
    const value = Object.hasOwn(event.metrics, metric) ? event.metrics[metric] : undefined
    return value === undefined ? [] : [{ x: event.step, y: value }]
  })
}

/** One curve as the page gets it, of at most {@link SERIES_POINTS_MAX} points. */
export function seriesOf(run: RunTail, name: string): Series {
  const points = thinOut(seriesPoints(run, name), SERIES_POINTS_MAX)
  return { steps: points.map(({ x }) => x), values: points.map(({ y }) => y) }
}

/** Means of equal runs of neighbours. */
function thinOut(points: readonly ChartPoint[], most: number): readonly ChartPoint[] {
  const size = Math.ceil(points.length / most)
  if (size <= 1) return points
  return Array.from({ length: Math.ceil(points.length / size) }, (_, index) => {
    const some = points.slice(index * size, (index + 1) * size)
    const mean = (pick: (point: ChartPoint) => number) =>
      some.reduce((sum, point) => sum + pick(point), 0) / some.length
    return { x: mean(({ x }) => x), y: mean(({ y }) => y) }
  })
}

/** One metric of several runs as an SVG file of its own, drawn as the charts of `report.html` are. */
export function chartSvg(
  name: string,
  runs: readonly { readonly run: RunTail; readonly label: string; readonly style: string }[],
): string {
  const series = runs.map(({ run, label, style }) => ({ label, style, points: seriesPoints(run, name) }))
  const chart = lineChart({ title: name, xLabel: `step of ${name.slice(0, name.indexOf('/'))}`, series })
  const opening = '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="300" '
  const [first = '', ...rest] = chart.split('\n')
  return `<?xml version="1.0" encoding="UTF-8"?>\n${[first.replace('<svg ', opening), `<style>${STYLE}</style>`, ...rest].join('\n')}\n`
}

/** Colours of runs, which differ also without red and green; the page has the same. */
const COLOURS = ['#1668b8', '#c2540a', '#2a7f4f', '#8a3ea8', '#a8871a', '#0f8f9c', '#b03060', '#5d6b7a']

const STYLE = `svg{background:#fff;font:12px sans-serif}.curve{fill:none;stroke-width:2}.grid{stroke:#d9e0e7}.axis,.legend{fill:#5d6b7a}${COLOURS.map(
  (colour, index) => `.curve-run${index}{stroke:${colour}}`,
).join('')}`

/** Number of colours of runs; later runs begin again with the first. */
export const NUM_COLOURS: number = COLOURS.length
