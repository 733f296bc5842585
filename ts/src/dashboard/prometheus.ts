/** Runs as Prometheus' text format, version 0.0.4: the last value of everything. */

import { checkList } from '../core/index.js'
import type { EvalEvent, StepEvent } from '../telemetry/index.js'
import { labelsOf, RunTail } from './run-tail.js'

/** Type of the text. */
export const PROMETHEUS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** One family of samples. */
interface Family {
  readonly name: string
  readonly help: string
  readonly samples: readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[]
}

/**
 * Returns the last step, metrics and pass rates of run folders as Prometheus' text format: `fulmar_metric{run="a",phase="grpo",name="reward"} 0.5`.
 * `/metrics` of a `Dashboard` is the same. Names of metrics are labels, so no two of them can become one.
 *
 * @throws {FulmarError} `MALFORMED` if `runs` is no list; `IO` or `MALFORMED` for a folder that is not there or holds no run.
 *
 * @example
 * ```ts
 * import { prometheusText } from 'fulmar/dashboard'
 * import { RunLog } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder, config: { seed: 7 } })
 * log.append({ event: 'step', phase: 'grpo', step: 1, numSteps: 4, metrics: { reward: 0.5 } })
 * log.close()
 * assert.match(await prometheusText([folder]), /^fulmar_metric\{run=".+",phase="grpo",name="reward"\} 0.5$/m)
 * ```
 */
export async function prometheusText(runs: readonly string[]): Promise<string> {
  checkList('runs', runs)
  const opened: RunTail[] = []
  for (const folder of runs) opened.push(await RunTail.open(folder))
  return prometheusOf(opened)
}

/** The text of runs as they were last read. */
export function prometheusOf(runs: readonly RunTail[]): string {
  const labels = labelsOf(runs)
  const named = runs.map((run, index) => ({ run: labels[index] ?? run.name, ...lastOf(run) }))
  return families(named).map(textOf).join('')
}

interface LastValues {
  readonly steps: readonly StepEvent[]
  readonly evaluations: readonly EvalEvent[]
  readonly isFinished: boolean
  readonly numRollouts: number
}

/** The last event of each phase and kind. */
function lastOf({ events, rollouts }: RunTail): LastValues {
  const steps = new Map<string, StepEvent>()
  const evaluations = new Map<string, EvalEvent>()
  let isFinished = false
  for (const event of events) {
    if (event.event === 'step') steps.set(event.phase, event)
    else if (event.event === 'eval') evaluations.set(event.phase, event)
    else isFinished = true
  }
  return {
    steps: [...steps.values()],
    evaluations: [...evaluations.values()],
    isFinished,
    numRollouts: rollouts.length,
  }
}

function families(runs: readonly (LastValues & { readonly run: string })[]): Family[] {
  const ofSteps = (pick: (event: StepEvent) => number): Family['samples'] =>
    runs.flatMap(({ run, steps }) =>
      steps.map((event) => [{ run, phase: event.phase }, pick(event)] as const),
    )
  return [
    {
      name: 'fulmar_run_finished',
      help: '1 once the run has ended',
      samples: runs.map(({ run, isFinished }) => [{ run }, Number(isFinished)]),
    },
    {
      name: 'fulmar_run_rollouts',
      help: 'Recorded rollouts',
      samples: runs.map(({ run, numRollouts }) => [{ run }, numRollouts]),
    },
    { name: 'fulmar_step', help: 'Last step of a phase', samples: ofSteps(({ step }) => step) },
    { name: 'fulmar_steps', help: 'Steps of a phase', samples: ofSteps(({ numSteps }) => numSteps) },
    {
      name: 'fulmar_pass_rate',
      help: 'Last share of held-out problems solved',
      samples: runs.flatMap(({ run, evaluations }) =>
        evaluations.map(({ phase, passRate }) => [{ run, phase }, passRate] as const),
      ),
    },
    {
      name: 'fulmar_metric',
      help: 'Metric of the last step of a phase',
      samples: runs.flatMap(({ run, steps }) =>
        steps.flatMap(({ phase, metrics }) =>
          Object.entries(metrics).map(([name, value]) => [{ run, phase, name }, value] as const),
        ),
      ),
    },
  ]
}

function textOf({ name, help, samples }: Family): string {
  const lines = samples.map(([labels, value]) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`)
    return `${name}{${pairs.join(',')}} ${value}\n`
  })
  return `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${lines.join('')}`
}

/** Text in a label: backslash, quote and line feed are escaped, and nothing else may be. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}
