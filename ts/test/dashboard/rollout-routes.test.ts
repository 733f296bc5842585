import { appendFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Dashboard } from '../../src/dashboard/index.js'
import { LIST_LENGTH_MAX } from '../../src/dashboard/rollout-routes.js'
import { ask } from './http.js'
import { madeRollout, madeRun, newFolder, recordedRun } from './run-folders.js'

const json = async (url: string, path: string) => JSON.parse((await ask(url, path)).body)

describe('the rollouts of a dashboard', () => {
  it('are listed with filters, a page at a time', async () => {
    const rollouts = Array.from({ length: LIST_LENGTH_MAX + 5 }, (_, index) =>
      madeRollout({ groupId: index, text: index === 7 ? 'Bergen' : 'Oslo', reward: index % 2 }),
    )
    await using page = await Dashboard.open({ runs: [await recordedRun(rollouts)] })
    const all = await json(page.url, '/api/rollouts?run=0')
    expect(all).toMatchObject({
      total: LIST_LENGTH_MAX + 5,
      found: LIST_LENGTH_MAX + 5,
      statuses: ['completed'],
    })
    expect(all.rollouts).toHaveLength(LIST_LENGTH_MAX)
    expect(all.rollouts[0]).toEqual({
      ...{ index: 0, step: 9, groupId: 0, rolloutId: 0, isValidation: false, status: 'completed', reward: 0 },
      ...{ numTurns: 1, numTokens: 2, hasLedger: true },
    })
    const last = await json(page.url, `/api/rollouts?offset=${LIST_LENGTH_MAX}`)
    expect(last.rollouts.map(({ index }: { index: number }) => index)).toEqual([200, 201, 202, 203, 204])
    expect((await json(page.url, '/api/rollouts?text=bergen')).rollouts).toMatchObject([{ index: 7 }])
    expect((await json(page.url, '/api/rollouts?rewardMin=1&limit=3')).rollouts).toMatchObject(
      [1, 3, 5].map((index) => ({ index })),
    )
    const refused = await ask(page.url, `/api/rollouts?limit=${LIST_LENGTH_MAX + 1}`)
    expect([refused.status, JSON.parse(refused.body).error.message]).toEqual([
      400,
      `limit must be an integer from 0 to ${LIST_LENGTH_MAX}: got ${LIST_LENGTH_MAX + 1}`,
    ])
  })

  it('are given whole, with their tokens from bytes or JSON', async () => {
    const rollout = madeRollout({ advantage: -0.25 })
    const ledger = rollout.ledger.toJSON()
    const folder = await recordedRun([rollout])
    const evaluation = await newFolder()
    const line = {
      problemIndex: 0,
      answerIndex: 1,
      status: 'completed',
      reward: 1,
      turns: [{ numPromptMessages: 0 }],
      messages: [{ role: 'user', content: 'Hi' }],
      ledger,
    }
    await writeFile(join(evaluation, 'results.jsonl'), `${JSON.stringify(line)}\n`)
    await using page = await Dashboard.open({ runs: [folder, evaluation] })
    const found = await json(page.url, '/api/rollout?run=0&index=0')
    expect(found).toMatchObject({
      ...{ index: 0, ledger, tokenTexts: { 1: '<1>', 4: '<4>' } },
      facts: { advantage: -0.25, rewardBreakdown: { exact: 1 } },
      turns: [
        {
          messages: [{ content: 'Capital of Norway?' }, { content: 'Oslo' }],
          facts: { finishReason: 'stop' },
        },
      ],
    })
    expect(await json(page.url, '/api/rollout?run=1&index=0')).toMatchObject({
      ledger,
      turns: [{ messages: line.messages }],
      tokenTexts: {},
    })
  })

  it('say why tokens, or a whole rollout, cannot be read', async () => {
    const folder = await madeRun()
    const path = join(folder, 'samples.jsonl')
    const broken = ['AAAA', 'not base64 \u{1f600}', { kind: 'ledger' }, 7, true]
    for (const ledger of broken)
      await appendFile(path, `${JSON.stringify({ groupId: 9, rolloutId: 0, turns: [], ledger })}\n`)
    await using page = await Dashboard.open({ runs: [folder] })
    for (const index of broken.keys()) {
      const { ledger, note } = await json(page.url, `/api/rollout?index=${4 + index}`)
      expect([ledger, note]).toEqual([null, expect.stringMatching(/^the tokens cannot be read: ./)])
    }
    expect((await ask(page.url, '/api/rollout?index=99')).status).toBe(404)
    expect((await ask(page.url, '/api/rollout')).status).toBe(400)
    await truncate(path, 0)
    const gone = await ask(page.url, '/api/rollout?index=0')
    expect([gone.status, JSON.parse(gone.body).error.code]).toEqual([410, 'IO'])
  })
})
