import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  type EvalEvent,
  REPORT_SAMPLES_MAX,
  RunLog,
  type RunRecord,
  renderReport,
  type StepEvent,
  writeReport,
} from '../../src/telemetry/index.js'
import { temporaryFolder } from './folder.js'

const step = (
  number: number,
  metrics: Record<string, number>,
  phase: StepEvent['phase'] = 'grpo',
): StepEvent => {
  return { event: 'step', phase, step: number, numSteps: 9, metrics }
}
const evaluation = (number: number, passRate: number): EvalEvent => {
  return { event: 'eval', phase: 'grpo', step: number, passRate, numProblems: 200 }
}
const page = (run: Partial<RunRecord>) => renderReport({ config: {}, events: [], samples: [], ...run })
const sample = (content: string) => ({
  groupId: 4,
  rolloutId: 1,
  status: 'completed',
  reward: 0.25,
  turns: [
    {
      promptMessages: [{ role: 'user', content: 'Sum of digits: [24, 13]' }],
      completionMessage: { role: 'assistant', content },
      envMessages: [],
    },
  ],
})

describe('renderReport', () => {
  it('compares the pass rate before and after', () => {
    const html = page({
      events: [evaluation(0, 0.25), step(1, { reward: 0.5 }), evaluation(5, 0.4), evaluation(9, 0.8125)],
    })
    expect(html).toContain('<th>pass rate before (grpo step 0)</th><td>25.0 %</td>')
    expect(html).toContain('<th>pass rate after (grpo step 9)</th><td>81.3 %</td>')
    expect(html).toContain('<td>56.3 points</td>')
    expect(html).toContain('<td>not finished</td>')
    expect(html).not.toContain('mean reward before')
  })

  it('shows the mean reward, which may rise where no problem counts as solved', () => {
    const graded = (number: number, meanReward: number) => ({ ...evaluation(number, 0), meanReward })
    const html = page({ events: [graded(0, 0.25), graded(9, 0.75)] })
    expect(html).toContain('<th>mean reward before</th><td>0.250</td>')
    expect(html).toContain('<th>mean reward after</th><td>0.750</td>')
  })

  it('draws loss, accuracy and margin of a run that learns from pairs', () => {
    const steps = [0.69, 0.5, 0.4].map((loss, at) =>
      step(at + 1, { loss, accuracy: at / 2, margin: 3 * at }, 'dpo'),
    )
    const html = page({ events: steps })
    expect(html).toContain('<h2>Preferences</h2>')
    expect(html).not.toContain('<h2>Learning curve</h2>')
    expect(html.match(/<svg/g)).toHaveLength(2)
    for (const style of ['loss', 'pass', 'reward']) expect(html).toContain(`class="curve curve-${style}"`)
    expect(html).toContain('share of pairs in the right order')
    // With rewards both are drawn; where only a loss was measured, only that is.
    expect(page({ events: [...steps, step(1, { reward: 1 })] }).match(/<svg/g)).toHaveLength(3)
    expect(page({ events: [step(1, { loss: 1 }, 'dpo')] }).match(/<svg/g)).toHaveLength(1)
  })

  it('draws reward and pass rate by step, and the supervised loss where there was a warm start', () => {
    const html = page({
      events: [
        step(1, { loss: 2 }, 'sft'),
        step(1, { reward: 0.5 }),
        step(2, { reward: 0.75 }),
        evaluation(2, 0.5),
      ],
    })
    expect(html.match(/<svg/g)).toHaveLength(2)
    expect(html.match(/class="dot dot-pass"/g)).toHaveLength(1)
    expect(page({}).match(/<svg/g)).toHaveLength(1)
  })

  it('shows what the run said at its end', () => {
    const html = page({
      events: [{ event: 'result', metrics: { secondsPerStep: 0.123456, passRateAfter: 1 } }],
    })
    expect(html).toContain('<th>secondsPerStep</th><td>0.1235</td>')
    expect(html).not.toContain('not finished')
  })

  it('escapes whatever a policy says or a configuration holds', () => {
    const evil = '</pre><script>alert(1)</script><img src=x onerror="alert(2)">'
    const html = page({ config: { [evil]: evil }, samples: [sample(evil)] })
    expect(html).not.toMatch(/<script|<img/)
    expect(html.match(/&lt;script&gt;/g)).toHaveLength(3)
  })

  it('asks the network for nothing and forbids itself to', () => {
    const html = page({ samples: [sample('[ANSWER] 10')], events: [step(1, { reward: 1 })] })
    expect(html).toContain("content=\"default-src 'none'; style-src 'unsafe-inline'\"")
    expect(html).not.toMatch(/https?:|<link|<script|src=|@import|url\(/)
    expect(html).toContain('prefers-color-scheme: dark')
  })

  it('shows the first and the last sample rollouts, each once', () => {
    const samples = Array.from({ length: 40 }, (_, index) => sample(`answer ${index}.`))
    const shown = (count: number) => page({ samples: samples.slice(0, count) }).match(/answer \d+\./g) ?? []
    expect(shown(40)).toHaveLength(REPORT_SAMPLES_MAX)
    expect(shown(40)).toContain('answer 39.')
    expect(shown(8)).toHaveLength(8)
    expect(new Set(shown(8)).size).toBe(8)
  })

  it('takes samples of any form', () => {
    const samples = [
      null,
      7,
      'text',
      [],
      { turns: 'none' },
      { turns: [{ completionMessage: null }] },
      { reward: 'x' },
    ]
    expect(page({ samples }).match(/<article>/g)).toHaveLength(samples.length)
  })
})

describe('writeReport', () => {
  it('writes the page of a run folder into it', async () => {
    const folder = await temporaryFolder()
    using log = await RunLog.open({ folder, config: { seed: 1234 } })
    log.append(evaluation(0, 0.5))
    log.samples.append(sample('[ANSWER] 10'))
    log.flush()
    const path = await writeReport(folder)
    expect(path).toBe(join(folder, 'report.html'))
    const html = await readFile(path, 'utf8')
    expect(html).toContain('1234')
    expect(html).toContain('[ANSWER] 10')
  })

  it('refuses a folder that holds no run', async () => {
    await expect(writeReport(await temporaryFolder())).rejects.toMatchObject({ code: 'IO' })
  })
})
