import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Dashboard, prometheusText } from '../../src/dashboard/index.js'
import { ask } from './http.js'
import { madeRun, newFolder } from './run-folders.js'

describe('prometheusText', () => {
  it('gives the last values of runs, whose names are escaped and all different', async () => {
    const folder = join(await newFolder(), 'a "b\\\n')
    await cp(await madeRun({ isFinished: true }), folder, { recursive: true })
    const text = await prometheusText([folder, folder])
    const run = 'run="a \\"b\\\\\\n"'
    expect(text.split('\n').filter((line) => line.startsWith('#') || line.includes(run))).toEqual([
      '# HELP fulmar_run_finished 1 once the run has ended',
      '# TYPE fulmar_run_finished gauge',
      `fulmar_run_finished{${run}} 1`,
      '# HELP fulmar_run_rollouts Recorded rollouts',
      '# TYPE fulmar_run_rollouts gauge',
      `fulmar_run_rollouts{${run}} 4`,
      '# HELP fulmar_step Last step of a phase',
      '# TYPE fulmar_step gauge',
      `fulmar_step{${run},phase="grpo"} 2`,
      '# HELP fulmar_steps Steps of a phase',
      '# TYPE fulmar_steps gauge',
      `fulmar_steps{${run},phase="grpo"} 4`,
      '# HELP fulmar_pass_rate Last share of held-out problems solved',
      '# TYPE fulmar_pass_rate gauge',
      `fulmar_pass_rate{${run},phase="grpo"} 0.25`,
      '# HELP fulmar_metric Metric of the last step of a phase',
      '# TYPE fulmar_metric gauge',
      `fulmar_metric{${run},phase="grpo",name="reward"} 0.5`,
      `fulmar_metric{${run},phase="grpo",name="kl"} 0.02`,
      `fulmar_metric{${run},phase="grpo",name="rollout/output_tokens/mean"} 2`,
      `fulmar_metric{${run},phase="grpo",name="entropy"} 1.5`,
    ])
    expect(text).toContain('run="a \\"b\\\\\\n (2)"')
    const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
    expect(new Set(samples.map((line) => line.slice(0, line.lastIndexOf(' ')))).size).toBe(samples.length)
  })

  it('is what /metrics answers, and refuses what is no run', async () => {
    const runs = [await madeRun(), await madeRun()]
    await using page = await Dashboard.open({ runs })
    const { headers, body } = await ask(page.url, '/metrics')
    expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect(body).toBe(await prometheusText(runs))
    expect(await prometheusText([])).not.toContain('{')
    await expect(prometheusText('/run' as never)).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(prometheusText(['/no/such/run'])).rejects.toMatchObject({ code: 'IO' })
  })
})
