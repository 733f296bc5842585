/**
 * One page about a run, made only from its folder: results, learning curves, sample rollouts, configuration.
 *
 * The page is one file without scripts and without requests, and forbids itself both. Everything that comes from the
 * run (texts of a policy, names in a configuration) is escaped.
 */

import { join } from 'node:path'
import { checkGiven } from '../core/index.js'
import { writeFileAtomic } from './atomic-file.js'
import { type ChartPoint, escapeHtml, lineChart } from './line-chart.js'
import type { EvalEvent, RunEvent, StepEvent } from './run-event.js'
import { type RunRecord, readRun } from './run-log.js'

/** Sample rollouts on the page: the first and the last ones of the run. */
export const REPORT_SAMPLES_MAX = 12

/**
 * Reads a run folder, finished or not, and writes `report.html` into it. Gives the path of the report. Node only.
 * @throws {FulmarError} `IO` or `CORRUPT` if the folder cannot be read; `IO` if the report cannot be written.
 *
 * @example
 * ```ts
 * import { RunLog, writeReport } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, readFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder, config: { seed: 7 } })
 * log.append({ event: 'eval', phase: 'grpo', step: 0, passRate: 0.25, numProblems: 4 })
 * log.close()
 * const path = await writeReport(folder)
 * assert.match(await readFile(path, 'utf8'), /25\.0 %/)
 * ```
 */
export async function writeReport(folder: string): Promise<string> {
  checkGiven('folder', folder)
  const path = join(folder, 'report.html')
  await writeFileAtomic(path, renderReport(await readRun(folder)))
  return path
}

/**
 * The page of a run as HTML.
 *
 * @example
 * ```ts
 * import { renderReport } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const html = renderReport({ config: { note: '<script>' }, events: [], samples: [] })
 * assert.ok(html.includes('&lt;script&gt;') && !html.includes('<script>'))
 * ```
 */
export function renderReport(run: RunRecord): string {
  checkGiven('run', run)
  const { config, events, samples } = run
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Fulmar run</title>
<style>${STYLE}</style>
</head>
<body>
<h1>Fulmar run</h1>
${resultTable(events)}
${learningCurves(events)}
${preferenceCurves(events)}
${warmStartCurve(events)}
${sampleSection(samples)}
<h2>Configuration</h2>
<pre>${escapeHtml(JSON.stringify(config, null, 2) ?? 'none')}</pre>
</body>
</html>
`
}

/** Held-out pass rate before training by rewards or pairs, after it, and the last event of the run. */
function resultTable(events: readonly RunEvent[]): string {
  const evaluations = events.filter((event): event is EvalEvent => event.event === 'eval')
  const [before, after] = [evaluations[0], evaluations.at(-1)]
  const rows: (readonly [string, string])[] = []
  if (before && after) {
    rows.push(['held-out problems', String(after.numProblems)])
    rows.push([`pass rate before (${before.phase} step ${before.step})`, percent(before.passRate)])
    rows.push([`pass rate after (${after.phase} step ${after.step})`, percent(after.passRate)])
    rows.push(['gain', `${((after.passRate - before.passRate) * 100).toFixed(1)} points`])
    // Rewards that are graded may never reach what counts as solved.
    for (const [name, { meanReward }] of [
      ['mean reward before', before],
      ['mean reward after', after],
    ] as const)
      if (meanReward !== undefined) rows.push([name, meanReward.toFixed(3)])
  }
  const result = events.find((event) => event.event === 'result')
  const shown = Object.entries(result?.metrics ?? {}).filter(([name]) => !/passRate|numProblems/.test(name))
  rows.push(...shown.map(([name, value]) => [name, String(Number(value.toPrecision(4)))] as const))
  if (result === undefined) rows.push(['state', 'not finished'])
  const cells = rows.map(
    ([name, value]) => `<tr><th>${escapeHtml(name)}</th><td>${escapeHtml(value)}</td></tr>`,
  )
  return `<table>\n${cells.join('\n')}\n</table>`
}

function learningCurves(events: readonly RunEvent[]): string {
  const hasPhase = (phase: StepEvent['phase']) =>
    events.some((event) => event.event === 'step' && event.phase === phase)
  // The curves of a run that trained only on pairs are below.
  if (hasPhase('dpo') && !hasPhase('grpo')) return ''
  const evaluations = events.filter(
    (event): event is EvalEvent => event.event === 'eval' && event.phase === 'grpo',
  )
  const passRate = evaluations.map(({ step, passRate: y }) => ({ x: step, y }))
  const series = [
    { label: 'mean reward of a step', style: 'reward', points: metricPoints(events, 'grpo', 'reward') },
    { label: 'pass rate on held-out problems', style: 'pass', points: passRate, dots: true },
  ]
  const title = 'Mean reward and held-out pass rate by GRPO step'
  return `<h2>Learning curve</h2>\n${lineChart({ title, xLabel: 'GRPO step', series })}`
}

function preferenceCurves(events: readonly RunEvent[]): string {
  const loss = metricPoints(events, 'dpo', 'loss')
  if (loss.length === 0) return ''
  const xLabel = 'DPO step'
  const accuracy = metricPoints(events, 'dpo', 'accuracy')
  const margin = metricPoints(events, 'dpo', 'margin')
  const charts = [
    {
      title: 'Loss and accuracy on pairs by DPO step',
      series: [
        { label: 'loss', style: 'loss', points: loss },
        { label: 'share of pairs in the right order', style: 'pass', points: accuracy },
      ],
    },
    { title: 'Reward margin by DPO step', series: [{ label: 'margin', style: 'reward', points: margin }] },
  ]
  const shown = charts.filter(({ series }) => series.some(({ points }) => points.length > 0))
  return `<h2>Preferences</h2>\n${shown.map((chart) => lineChart({ ...chart, xLabel })).join('\n')}`
}

function warmStartCurve(events: readonly RunEvent[]): string {
  const points = metricPoints(events, 'sft', 'loss')
  if (points.length === 0) return ''
  const series = [{ label: 'supervised loss', style: 'loss', points }]
  return `<h2>Warm start</h2>\n${lineChart({ title: 'Supervised loss by step', xLabel: 'supervised step', series })}`
}

function metricPoints(events: readonly RunEvent[], phase: StepEvent['phase'], name: string): ChartPoint[] {
  const steps = events.filter((event): event is StepEvent => event.event === 'step' && event.phase === phase)
  return steps.flatMap(({ step, metrics }) => {
    const value = metrics[name]
    return value === undefined ? [] : [{ x: step, y: value }]
  })
}

function sampleSection(samples: readonly unknown[]): string {
  if (samples.length === 0) return ''
  const half = REPORT_SAMPLES_MAX / 2
  const early = samples.slice(0, half)
  const late = samples.slice(Math.max(half, samples.length - half))
  const part = (title: string, some: readonly unknown[]) =>
    some.length === 0 ? '' : `<h3>${title}</h3>\n${some.map(sampleArticle).join('\n')}`
  return `<h2>Sample rollouts</h2>\n${part('Early', early)}\n${part('Late', late)}`
}

/** One rollout as a conversation. The line comes from a file, so nothing of its form is taken for granted. */
function sampleArticle(sample: unknown): string {
  const { groupId, rolloutId, status, reward, turns } = fieldsOf(sample)
  const scored = typeof reward === 'number' ? reward.toFixed(3) : 'none'
  const head = `group ${textOf(groupId)}, rollout ${textOf(rolloutId)}: ${textOf(status)}, reward ${scored}`
  const messages = listOf(turns).flatMap((turn, index) => {
    const { promptMessages, completionMessage, envMessages } = fieldsOf(turn)
    return [...(index === 0 ? listOf(promptMessages) : []), completionMessage, ...listOf(envMessages)]
  })
  return `<article><h4>${escapeHtml(head)}</h4>\n${messages.map(messageBlock).join('\n')}\n</article>`
}

function messageBlock(message: unknown): string {
  const { role = 'nothing that could be parsed', content } = fieldsOf(message)
  return `<p><b>${escapeHtml(textOf(role))}</b></p><pre>${escapeHtml(textOf(content))}</pre>`
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {}
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}

const STYLE = `
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5d6b7a; --line: #d9e0e7; --paper: #ffffff; --card: #f5f7f9;
  --reward: #1668b8; --pass: #c2540a; --loss: #5b3fa0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #97a4b2; --line: #313b46; --paper: #12171c;
  --card: #1b2229; --reward: #6db3f2; --pass: #f2a15f; --loss: #b39ddb; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 48rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
th, td { text-align: left; font-weight: normal; padding: .25rem 1.5rem .25rem 0; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; text-align: right; padding-right: 0; }
svg { width: 100%; height: auto; }
.curve { fill: none; stroke-width: 2; }
.curve-reward { stroke: var(--reward); } .curve-pass { stroke: var(--pass); } .curve-loss { stroke: var(--loss); }
.dot-pass { fill: var(--pass); }
.grid { stroke: var(--line); }
.axis, .legend { fill: var(--soft); font-size: 12px; }
article { background: var(--card); border-radius: 6px; padding: .5rem 1rem; margin: 1rem 0; }
article p { margin: .5rem 0 0; color: var(--soft); font-size: .85rem; }
h4 { margin: .25rem 0; font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: .85rem; }
`
