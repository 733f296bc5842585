/** Curves as inline SVG: no script, no fonts, no request; the colours are the page's. */

import { checkGiven, checkKnownKeys } from '../core/index.js'

/** One curve. */
export interface Series {
  /** Text of the legend. */
  readonly label: string
  /** CSS class suffix: `curve-<style>`. */
  readonly style: string
  /** Points from left to right; points that are not finite, or beyond 1e100, are left out. */
  readonly points: readonly ChartPoint[]
  /** Draws a dot at each point besides the line: for series of few points. */
  readonly dots?: boolean
}

/** A point of a curve. */
export interface ChartPoint {
  readonly x: number
  readonly y: number
}

/** Content of a chart. */
export interface LineChartOptions {
  /** Read by screen readers. */
  readonly title: string
  /** Below the horizontal axis. */
  readonly xLabel: string
  readonly series: readonly Series[]
}

const WIDTH = 720
const HEIGHT = 300
const MARGIN = { left: 48, right: 16, top: 16, bottom: 44 }
/** Longer curves are averaged in this many steps; a screen has no more columns to show them. */
export const CHART_POINTS_MAX = 360
const NUM_TICKS = 5
/** Larger values are left out, as infinities are: the axis of such a point would hide all others. */
const VALUE_MAX = 1e100

/**
 * Draws curves over common axes. Without a single finite point it draws empty axes.
 */
export function lineChart(options: LineChartOptions): string {
  checkKnownKeys('options', options, ['title', 'xLabel', 'series'], ['title', 'xLabel', 'series'])
  const { title, xLabel, series } = options
  const curves = series.map((one) => ({ ...one, points: thinOut(one.points.filter(isDrawable)) }))
  const points = curves.flatMap((curve) => curve.points)
  const xScale = scaleOf(
    points.map(({ x }) => x),
    [MARGIN.left, WIDTH - MARGIN.right],
  )
  const yScale = scaleOf(
    points.map(({ y }) => y),
    [HEIGHT - MARGIN.bottom, MARGIN.top],
  )
  const place = ({ x, y }: ChartPoint) => `${fixed(xScale.at(x))},${fixed(yScale.at(y))}`
  return [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escapeHtml(title)}">`,
    ...yScale.ticks.map((tick) => horizontalTick(tick, yScale.at(tick))),
    ...xScale.ticks.map((tick) => verticalTick(tick, xScale.at(tick))),
    `<text class="axis" x="${WIDTH / 2}" y="${HEIGHT - 6}" text-anchor="middle">${escapeHtml(xLabel)}</text>`,
    ...curves.map(({ style, points: line }) => {
      return `<polyline class="curve curve-${escapeHtml(style)}" points="${line.map(place).join(' ')}"/>`
    }),
    ...curves.flatMap(({ style, dots, points: line }) => {
      const dot = (point: ChartPoint) =>
        `<circle class="dot dot-${escapeHtml(style)}" cx="${fixed(xScale.at(point.x))}" cy="${fixed(yScale.at(point.y))}" r="4"/>`
      return dots ? line.map(dot) : []
    }),
    ...curves.map(({ label, style }, index) => legend(label, style, index)),
    '</svg>',
  ].join('\n')
}

/**
 * Text that is safe inside HTML and inside its quoted attributes.
 */
export function escapeHtml(text: string): string {
  checkGiven('text', text)
  return text.replace(/[&<>"']/g, (character) => ESCAPES[character] ?? character)
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

function isDrawable({ x, y }: ChartPoint): boolean {
  return Math.abs(x) <= VALUE_MAX && Math.abs(y) <= VALUE_MAX
}

/** Means of equal runs of neighbours. */
function thinOut(points: readonly ChartPoint[]): readonly ChartPoint[] {
  const size = Math.ceil(points.length / CHART_POINTS_MAX)
  if (size <= 1) return points
  const numRuns = Math.ceil(points.length / size)
  return Array.from({ length: numRuns }, (_, index) => {
    const run = points.slice(index * size, (index + 1) * size)
    const mean = (pick: (point: ChartPoint) => number) =>
      run.reduce((sum, point) => sum + pick(point), 0) / run.length
    return { x: mean(({ x }) => x), y: mean(({ y }) => y) }
  })
}

interface Scale {
  readonly ticks: readonly number[]
  /** Returns the position of a value on the page. */
  at(value: number): number
}

/** A linear scale over round numbers that holds all values. */
function scaleOf(values: readonly number[], [start, end]: readonly [number, number]): Scale {
  const low = values.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY)
  const high = values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY)
  const [min, max] = widen(low, high)
  const step = roundUp((max - min) / NUM_TICKS)
  const first = Math.floor(min / step)
  const last = Math.ceil(max / step)
  const ticks = Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step)
  const span = (last - first) * step
  return { ticks, at: (value) => start + ((value - first * step) / span) * (end - start) }
}

/** Room around values that are all alike, or too near to each other for round numbers between them. */
function widen(low: number, high: number): readonly [number, number] {
  if (low > high) return [0, 1]
  const size = Math.max(1, Math.abs(low), Math.abs(high))
  return high - low > size * 1e-9 ? [low, high] : [low - size / 2, high + size / 2]
}

/** The next number of the form 1, 2 or 5 times a power of ten. */
function roundUp(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step))
  const digit = [1, 2, 5].find((candidate) => candidate * power >= step * (1 - 1e-9))
  return (digit ?? 10) * power
}

function horizontalTick(value: number, y: number): string {
  const line = `<line class="grid" x1="${MARGIN.left}" y1="${fixed(y)}" x2="${WIDTH - MARGIN.right}" y2="${fixed(y)}"/>`
  return `${line}<text class="axis" x="${MARGIN.left - 6}" y="${fixed(y + 4)}" text-anchor="end">${formatTick(value)}</text>`
}

function verticalTick(value: number, x: number): string {
  const y = HEIGHT - MARGIN.bottom + 16
  return `<text class="axis" x="${fixed(x)}" y="${y}" text-anchor="middle">${formatTick(value)}</text>`
}

function legend(label: string, style: string, index: number): string {
  const y = MARGIN.top + 14 + index * 18
  const x = MARGIN.left + 12
  const key = `<line class="curve curve-${escapeHtml(style)}" x1="${x}" y1="${y - 4}" x2="${x + 20}" y2="${y - 4}"/>`
  return `${key}<text class="legend" x="${x + 26}" y="${y}">${escapeHtml(label)}</text>`
}

function formatTick(value: number): string {
  return String(Number(value.toPrecision(6)))
}

function fixed(value: number): string {
  return String(Number(value.toFixed(2)))
}
