/** `fulmar eval --compare A B`: the change from one evaluation to another, problem by problem. */

import { evaluationOf } from '../rollout/evaluation.js'
import { compareEvaluations, type Interval, type PairedDifference } from '../rollout/index.js'
import { readLines } from './evaluation-folder.js'
import { CliError, type CliIo, percent, printJson, printTable } from './io.js'

/** Compares the evaluations in two folders. */
export async function compareFolders(
  folders: readonly string[],
  { json = false }: { readonly json?: boolean },
  io: CliIo,
): Promise<void> {
  const [before, after, ...more] = folders
  if (before === undefined || after === undefined || more.length > 0)
    throw new CliError('MALFORMED', `--compare must have two folders of evaluations: got ${folders.length}`)
  const comparison = compareEvaluations(await readEvaluation(before), await readEvaluation(after))
  if (json) return printJson(comparison, io)
  const { numProblems, meanReward, passRate, numBetter, numWorse } = comparison
  const rows: [string, string][] = [
    ['problems in both', String(numProblems)],
    ['pass rate', changeOf(passRate, percent)],
    ['mean reward', changeOf(meanReward, (value) => value.toFixed(3))],
    ['problems', `${numBetter} better, ${numWorse} worse, ${numProblems - numBetter - numWorse} equal`],
  ]
  printTable(rows, io)
}

async function readEvaluation(folder: string) {
  const lines = await readLines(folder)
  return evaluationOf(lines, new Set(lines.map(({ problemIndex }) => problemIndex)).size)
}

function changeOf(
  { before, after, difference, interval }: PairedDifference,
  text: (value: number) => string,
) {
  const signed = (value: number) => `${value < 0 ? '' : '+'}${text(value)}`
  return `${text(before)} to ${text(after)}: ${signed(difference)}${rangeOf(interval, signed)}`
}

function rangeOf(interval: Interval | null, text: (value: number) => string): string {
  return interval === null ? '' : ` (95 %: ${interval.map(text).join(' to ')})`
}
