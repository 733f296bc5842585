import { existsSync } from 'node:fs'
import { appendFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Dashboard } from '../../src/dashboard/index.js'
import { has } from '../needs.js'
import { madeRun } from './run-folders.js'

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
})
