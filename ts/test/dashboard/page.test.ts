/** The page itself, in Chromium: charts, rollouts, hostile text, the keyboard, both colour schemes, speed. */

import { existsSync } from 'node:fs'
import { appendFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Dashboard } from '../../src/dashboard/index.js'
import { has } from '../needs.js'
import { madeRollout, madeRun, recordedRun } from './run-folders.js'

const executablePath = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'
const isUsable = process.env.FULMAR_TEST_BACKEND !== 'wasm' && has('Chromium', existsSync(executablePath))

describe.runIf(isUsable)('the page of runs', () => {
  let browser: Browser
  beforeAll(async () => {
    const { chromium } = await import('playwright-core')
    const args = ['--no-sandbox', '--disable-gpu', '--disable-background-networking']
    browser = await chromium.launch({ executablePath, args })
  })
  afterAll(async () => await browser?.close())

  /** Opens a view; `problems` gets console messages, errors and requests to elsewhere. */
  async function opened(
    dashboard: Dashboard,
    hash: string,
    colorScheme: 'light' | 'dark' = 'light',
  ): Promise<{ readonly page: Page; readonly problems: string[] }> {
    const page = await browser.newPage({ colorScheme })
    const problems: string[] = []
    page.on('console', (message) => problems.push(`${message.type()}: ${message.text()}`))
    page.on('pageerror', (error) => problems.push(String(error)))
    page.on('request', (request) => {
      if (!request.url().startsWith(dashboard.url)) problems.push(request.url())
    })
    await page.goto(`${dashboard.url}${hash}`)
    return { page, problems }
  }

  it('draws the curves of several runs and follows one that goes on', async () => {
    const folder = await madeRun()
    await using dashboard = await Dashboard.open({ runs: [folder, await madeRun({ isFinished: true })] })
    const { page, problems } = await opened(dashboard, '')
    await page.waitForSelector('figure canvas')
    const titles = await page.locator('figcaption span').allTextContents()
    expect(titles).toEqual([
      'Mean reward (grpo)',
      'Held-out pass rate (grpo)',
      'KL to the reference or the sampler (grpo)',
      'Entropy (grpo)',
    ])
    expect(await page.locator('figure').first().locator('.u-series').count()).toBe(3)
    const line = { event: 'step', phase: 'grpo', step: 3, numSteps: 4, metrics: { reward: 1, ess: 0.5 } }
    await appendFile(join(folder, 'log.jsonl'), `${JSON.stringify(line)}\n`)
    await page.getByText('Effective sample size (grpo)').waitFor()
    expect(await page.locator('#runs small').allTextContents()).toEqual(['grpo step 3 of 4', 'finished'])
    await page.getByRole('checkbox').nth(1).uncheck()
    await expect.poll(() => page.locator('figure').first().locator('.u-series').count()).toBe(2)
    expect(problems).toEqual([])
    await page.close()
  })

  it('is used by the keyboard alone: the values at a step, another metric, a chart as a file', async () => {
    await using dashboard = await Dashboard.open({ runs: [await madeRun()] })
    const { page, problems } = await opened(dashboard, '#charts', 'dark')
    await page.waitForSelector('figure canvas')
    const focus = page.locator(':focus')
    const reached: string[] = []
    for (let press = 0; press < 6; press++) {
      await page.keyboard.press('Tab')
      reached.push((await focus.getAttribute('aria-label')) ?? (await focus.textContent()) ?? '')
    }
    expect(reached.slice(0, 2)).toEqual(['Charts', 'Rollouts'])
    expect(reached[3]).toBe('Save Mean reward (grpo) as SVG')
    expect(reached[4]).toMatch(/^Mean reward \(grpo\): .* 0\.5\. Arrow keys move the cursor\.$/)
    const value = page.locator('figure').first().locator('.u-series .u-value')
    await page.keyboard.press('Shift+Tab')
    await page.keyboard.press('End')
    await expect.poll(() => value.allTextContents()).toEqual(['2', '0.5'])
    await page.keyboard.press('ArrowLeft')
    await expect.poll(() => value.allTextContents()).toEqual(['1', '0.25'])
    await page.getByLabel('Another metric').selectOption('grpo/rollout/output_tokens/mean')
    await page.locator('figcaption').getByText('grpo/rollout/output_tokens/mean').waitFor()
    const download = page.waitForEvent('download')
    await page.getByLabel('Save Mean reward (grpo) as SVG').press('Enter')
    expect(await readFile(await (await download).path(), 'utf8')).toContain(
      '<polyline class="curve curve-run0"',
    )
    expect(problems).toEqual([])
    await page.close()
  })

  it('shows a rollout with its tools, branches and tokens, by the keyboard alone', async () => {
    const rollout = madeRollout({ rolloutId: 1, rewardBreakdown: { exact: 0.75 } })
    rollout.ledger.recordTurn({
      ...{ promptIds: Uint32Array.of(1, 9), completionIds: Uint32Array.of(6), policyVersion: 8 },
      ...{ logProbs: Float32Array.of(-1), sampledLogProbs: Float32Array.of(-0.5) },
    })
    const [turn] = rollout.turns
    const calls = [{ id: 'c1', function: { name: 'add', arguments: '{"a":1}' } }]
    const turns = turn
      ? [
          {
            ...turn,
            completionMessage: { role: 'assistant', content: '', tool_calls: calls },
            envMessages: [{ role: 'tool', tool_call_id: 'c1', content: '3' }],
          },
        ]
      : []
    const folder = await recordedRun([madeRollout({ reward: 0 }), { ...rollout, turns }])
    await using dashboard = await Dashboard.open({ runs: [folder] })
    const { page, problems } = await opened(dashboard, '#rollouts', 'dark')
    const rows = page.locator('.rows a')
    await rows.first().focus()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    await page.getByText('Rollout 1 of group 3').waitFor()
    const reader = page.locator('.reader')
    expect(await reader.locator('dl').textContent()).toMatch(/reward exact0\.75/)
    expect(await reader.locator('.call').textContent()).toMatch(/calls add \(c1\)\{"a":1\}/)
    expect(await reader.getByText('tool answers c1').count()).toBe(1)
    expect(await reader.locator('.branches').textContent()).toContain(
      'leaves branch 0 at token 1: history_edit; opened by turn 1',
    )
    const tokens = reader.locator('.tokens')
    expect(await tokens.textContent()).toBe('<1><2><4><5>')
    expect(await tokens.locator('.o-sampled').allTextContents()).toEqual(['<4>', '<5>'])
    await tokens.focus()
    await page.keyboard.press('End')
    expect(await reader.locator('.info').textContent()).toBe(
      'token 3, id 5, "<5>", sampled, turn 0, log-prob -2 (probability 0.1353), version 7, advantage 0.5',
    )
    await reader.getByRole('button', { name: 'Branch 1' }).press('Enter')
    expect(await tokens.textContent()).toBe('<1><9><6>')
    await tokens.locator('span').last().hover()
    expect(await reader.locator('.info').textContent()).toContain(
      'log-prob -1 (probability 0.3679), drawn at -0.5, version 8',
    )
    for (const [mode, styles] of [
      ['log-prob', ['', '', 'b-3']],
      ['advantage', ['', '', 'a-up-0']],
      ['version', ['', '', 'v-1']],
    ] as const) {
      await reader.getByLabel('Colour by').selectOption({ label: mode })
      const classes = await Promise.all(
        [0, 1, 2].map((at) => tokens.locator('span').nth(at).getAttribute('class')),
      )
      expect(classes.map((style) => style?.replace(/ ?at$/, ''))).toEqual(styles)
    }
    await reader.getByText('Siblings side by side').press('Enter')
    await page.getByRole('heading', { name: /^Group 3 in/ }).waitFor()
    expect(await page.locator('.sibling h3 a').allTextContents()).toEqual(['Rollout 0', 'Rollout 1'])
    expect(problems).toEqual([])
    await page.close()
  })

  it('shows HTML, escapes of terminals and turned text as text, and runs none of it', async () => {
    const hostile =
      '<img src=x onerror="document.title=1"><script>document.title=2</script>\u001b[31m\u202egnp.exe\u0000'
    const rollout = madeRollout({ text: hostile, rewardBreakdown: { '<b>name</b>': 1 }, status: 'completed' })
    await using dashboard = await Dashboard.open({ runs: [await recordedRun([rollout])] })
    const { page, problems } = await opened(dashboard, '#rollout/0/0')
    const message = page.locator('.reader .message pre').last()
    await message.waitFor()
    expect(await message.textContent()).toBe(
      '<img src=x onerror="document.title=1"><script>document.title=2</script>\u241b[31m\\u202egnp.exe\u2400',
    )
    expect(await page.locator('.reader dl').textContent()).toContain('<b>name</b>')
    expect(await page.locator('.reader :is(img, script, b b, iframe, style)').count()).toBe(0)
    expect(await page.title()).toBe('Fulmar runs')
    expect(problems).toEqual([])
    await page.close()
  })

  it('opens 10,000 rollouts and filters them', async () => {
    const texts = Array.from({ length: 10_000 }, (_, index) => `${'the answer is long '.repeat(40)} ${index}`)
    const folder = await recordedRun(
      texts.map((text, index) => madeRollout({ groupId: index, text, reward: index % 2 })),
    )
    const start = performance.now()
    await using dashboard = await Dashboard.open({ runs: [folder] })
    const { page, problems } = await opened(dashboard, '#rollouts')
    await page.locator('.rows a').nth(199).waitFor()
    const openMs = performance.now() - start
    const count = page.locator('.side p[role=status]')
    expect(await count.textContent()).toBe('1 to 200 of 10000 rollouts')
    // From the input to the frame that shows its result.
    const filterMs = await page.evaluate<number>(`new Promise((resolve) => {
      const start = performance.now()
      const shown = () => requestAnimationFrame(() => resolve(performance.now() - start))
      new MutationObserver(shown).observe(document.querySelector('.side p[role=status]'), { childList: true })
      const input = document.querySelector('[name=text]')
      input.value = 'long  77'
      input.dispatchEvent(new Event('input', { bubbles: true }))
    })`)
    expect(await count.textContent()).toBe('111 rollouts of 10000')
    const verdict = (ms: number, goal: number) =>
      `${ms.toFixed(0)} ms of ${goal}: ${ms <= goal ? 'met' : `short by ${(ms - goal).toFixed(0)} ms`}`
    process.stdout.write(
      `10,000 rollouts open: ${verdict(openMs, 1_000)}; filter: ${verdict(filterMs, 100)}\n`,
    )
    expect(problems).toEqual([])
    await page.close()
  })
})
