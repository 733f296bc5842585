/** Requests about runs and their curves. */

import { type Answer, json, type Route } from './answer.js'
import { PROMETHEUS_TYPE, prometheusOf } from './prometheus.js'
import { checkedQuery, integerOf, RequestRefusal } from './request-guard.js'
import { chartSvg, NUM_COLOURS, STANDARD_CHARTS, seriesNames, seriesOf } from './run-series.js'
import { labelsOf, type RunTail } from './run-tail.js'

/** Curves of one answer. */
const SERIES_MAX = 64

/** The routes by path. */
export const RUN_ROUTES: readonly (readonly [path: string, route: Route])[] = [
  ['/api/runs', answerRuns],
  ['/api/series', answerSeries],
  ['/chart.svg', answerChart],
  ['/metrics', answerMetrics],
]

/** The runs with what they have, after reading what was appended. */
async function answerRuns(runs: readonly RunTail[], url: URL): Promise<Answer> {
  checkedQuery(url, [])
  await Promise.all(runs.map((run) => run.refresh()))
  const names = labelsOf(runs)
  return json({
    charts: STANDARD_CHARTS,
    runs: runs.map((run, id) => describeRun(run, id, names[id] ?? run.name)),
  })
}

/** The last values of all runs, after reading what was appended. */
async function answerMetrics(runs: readonly RunTail[], url: URL): Promise<Answer> {
  checkedQuery(url, [])
  await Promise.all(runs.map((run) => run.refresh()))
  return { type: PROMETHEUS_TYPE, body: prometheusOf(runs) }
}

function describeRun(run: RunTail, id: number, name: string): object {
  const { folder, isHere, revision, notes, state, rollouts } = run
  return {
    id,
    name,
    folder,
    isHere,
    revision,
    notes,
    state,
    numRollouts: rollouts.length,
    series: seriesNames(run),
  }
}

function answerSeries(runs: readonly RunTail[], url: URL): Answer {
  const query = checkedQuery(url, [], ['name', 'run'])
  const chosen = chosenRuns(runs, query)
  const names = query.get('name') ?? []
  if (names.length > SERIES_MAX)
    throw new RequestRefusal(
      400,
      'too_many',
      `name must be given at most ${SERIES_MAX} times: got ${names.length}`,
    )
  const curves = (name: string) => chosen.map(({ id, run }) => ({ run: id, ...seriesOf(run, name) }))
  return json({ series: names.map((name) => ({ name, curves: curves(name) })) })
}

function answerChart(runs: readonly RunTail[], url: URL): Answer {
  const query = checkedQuery(url, ['name'], ['run'])
  const name = query.get('name')?.[0] ?? ''
  const labels = labelsOf(runs)
  const drawn = chosenRuns(runs, query).map(({ id, run }) => ({
    run,
    label: labels[id] ?? run.name,
    style: `run${id % NUM_COLOURS}`,
  }))
  const file = name.replaceAll(/[^\w.-]+/g, '-').slice(0, 64)
  const headers = { 'content-disposition': `attachment; filename="${file}.svg"` }
  return { type: 'image/svg+xml', body: chartSvg(name, drawn), headers }
}

/** The runs that a query names; all without one. */
function chosenRuns(
  runs: readonly RunTail[],
  query: ReadonlyMap<string, readonly string[]>,
): readonly { readonly id: number; readonly run: RunTail }[] {
  const given = query.get('run')
  const ids = given?.map((text) => integerOf(new Map([['run', [text]]]), 'run', { max: runs.length - 1 }))
  return runs.flatMap((run, id) => (ids === undefined || ids.includes(id) ? [{ id, run }] : []))
}
