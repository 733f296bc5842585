/** The result of a bench, as a table and as a record. */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { root } from './steps.mjs'

/** The processor and its memory; `name` is the folder of its records. */
export function machine() {
  const { model = 'unknown' } = cpus()[0] ?? {}
  const numCores = cpus().length
  const name = `${model} ${numCores} cores`.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
  return {
    name,
    cpu: model,
    ...linuxProcessor(),
    numCores,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    platform: process.platform,
  }
}

/** The generation of a processor and the instructions that products use, as Linux lists them. */
function linuxProcessor() {
  if (process.platform !== 'linux' || process.arch !== 'x64') return {}
  const info = readFileSync('/proc/cpuinfo', 'utf8')
  const of = (name) => new RegExp(`^${name}\\s*: (.*)$`, 'm').exec(info)?.[1] ?? ''
  const flags = of('flags').split(' ')
  const instructions = flags.filter((flag) =>
    /^(?:avx2|fma|avx512f|avx512_bf16|avx512_vnni|avx_vnni)$/.test(flag),
  )
  return { generation: `family ${of('cpu family')}, model ${of('model')}`, instructions }
}

/** One line a figure, then checks, profile and notes. */
export function formatReport({ figures, checks, profileMs, notes }) {
  const head = ['work', 'ours', 'rival', '', 'ratio', 'worst tenth', 'goal', 'verdict']
  const text = [table([head, ...figures.map(row)])]
  if (figures.some(({ cold }) => cold)) text.push(`first call: ${figures.map(coldText).join('; ')}`)
  if (profileMs) {
    const parts = Object.entries(profileMs).map(([part, ms]) => `${part} ${ms.toFixed(1)}`)
    text.push(`where our time goes, ms: ${parts.join(' | ')}`)
  }
  text.push(...checks.map((check) => `compared: ${check}`), ...notes.map((note) => `note: ${note}`))
  return `${text.join('\n')}\n`
}

/** The record of a run: it names neither the host nor a folder. */
export function recordOf(bench, { figures, ...rest }) {
  const measured = figures.map((figure) => {
    const { ours, rival, ...more } = figure
    const samples = { ours: ours.map(rounded), ...(rival?.samples && { rival: rival.samples.map(rounded) }) }
    const named = rival && { rival: rival.name ?? `skipped: ${rival.skipped}` }
    return { ...more, ...named, ...judge(figure), samples }
  })
  const profileMs =
    rest.profileMs &&
    Object.fromEntries(Object.entries(rest.profileMs).map(([part, ms]) => [part, rounded(ms)]))
  const versions = { node: process.versions.node, ...rest.versions }
  const command = `npm run bench -- ${process.argv.slice(2).join(' ')}`.trim()
  const { name, ...built } = machine()
  const date = new Date().toISOString()
  return {
    bench,
    date,
    commit: commit(),
    command,
    machine: { name, ...built },
    ...rest,
    ...(profileMs && { profileMs }),
    versions,
    figures: measured,
  }
}

/** Medians, the ratio of each round, and what they say about the goal. */
function judge({ ours, rival, goal }) {
  const oursMedian = quantile(ours, 0.5)
  if (!rival?.samples) return { oursMedian: rounded(oursMedian) }
  const isAtMost = goal && 'atMost' in goal
  const ratios = ours.map((own, round) =>
    isAtMost ? own / rival.samples[round] : rival.samples[round] / own,
  )
  const [ratio, worst] = [quantile(ratios, 0.5), quantile(ratios, isAtMost ? 0.9 : 0.1)]
  const medians = { oursMedian: rounded(oursMedian), rivalMedian: rounded(quantile(rival.samples, 0.5)) }
  const judged = { ...medians, ratio: rounded(ratio), worstTenth: rounded(worst) }
  if (!goal) return judged
  const shortBy = isAtMost ? worst - goal.atMost : goal.atLeast - worst
  return { ...judged, verdict: shortBy <= 0 ? 'met' : `short by ${shortBy.toFixed(2)}` }
}

function row(figure) {
  const { work, unit, rival, goal } = figure
  const { oursMedian, rivalMedian, ratio, worstTenth, verdict = '' } = judge(figure)
  const time = (value) => `${value.toPrecision(3)} ${unit}`
  if (ratio === undefined) {
    const why = rival ? `skipped: ${rival.skipped}` : ''
    return [work, time(oursMedian), '', why, '', '', goalText(goal), '']
  }
  const times = (value) => `${value.toFixed(2)}x`
  const measured = [work, time(oursMedian), time(rivalMedian), rival.name, times(ratio), times(worstTenth)]
  return [...measured, goalText(goal), verdict]
}

/** Returns the goal as text; a goal with `atLeast` compares the rival to ours, one with `atMost` ours to the rival. */
function goalText(goal) {
  if (!goal) return ''
  return 'atLeast' in goal ? `rival / ours >= ${goal.atLeast}` : `ours / rival <= ${goal.atMost}`
}

function coldText({ work, unit, cold, rival }) {
  if (!cold) return `${work} -`
  const theirs = cold.rival === undefined ? '' : `, ${rival.name} ${cold.rival.toPrecision(3)} ${unit}`
  return `${work} ${cold.ours.toPrecision(3)} ${unit}${theirs}`
}

/** Columns as wide as their widest cell. */
function table(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((cells) => cells[column].length)))
  const lines = rows.map((cells) => cells.map((cell, column) => cell.padEnd(widths[column])).join('  '))
  return lines.map((line) => line.trimEnd()).join('\n')
}

/** The commit that was measured, and whether what is measured was changed since. */
function commit() {
  const git = (...args) => spawnSync('git', args, { cwd: root, encoding: 'utf8' }).stdout?.trim() ?? ''
  const head = git('rev-parse', '--short=12', 'HEAD') || 'unknown'
  const changed = git(
    'status',
    '--porcelain',
    '--untracked-files=no',
    'crates',
    'bindings',
    'ts/src',
    'benches/ts',
  )
  return changed ? `${head} with changes` : head
}

/** Returns the `q` quantile of the samples, with linear interpolation. */
function quantile(samples, q) {
  const sorted = [...samples].sort((a, b) => a - b)
  const place = q * (sorted.length - 1)
  const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]]
  return low + (high - low) * (place - Math.floor(place))
}

function rounded(value) {
  return Number(value.toPrecision(4))
}
