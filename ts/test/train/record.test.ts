/** Rollouts that a run records, as `fulmar dashboard` reads it. */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import { describeBuild } from '../../src/core/index.js'
import { checkTrainConfig } from '../../src/train/index.js'
import { fulmar } from '../cli/fake-io.js'
import { newFolder } from '../dashboard/run-folders.js'

const shape = {
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
}

async function recorded(flags: readonly string[]): Promise<Record<string, unknown>[]> {
  const runDir = join(await newFolder(), 'run')
  const config = {
    ...{ runDir, backend: describeBuild().backend, model: shape, sft: { steps: 0 } },
    ...{ grpo: { steps: 2, promptsPerStep: 2, groupSize: 2, maxTokens: 4 }, eval: { numProblems: 2 } },
  }
  const { code, stderr } = await fulmar(['train', '-', ...flags], { stdin: JSON.stringify(config) })
  expect([code, stderr.includes('fulmar:')]).toEqual([0, false])
  const text = await readFile(join(runDir, 'samples.jsonl'), 'utf8')
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
}

describe('fulmar train --record-rollouts', () => {
  it('keeps every rollout of a step with its tokens, whose texts join to what was said', async () => {
    const lines = await recorded(['--record-rollouts'])
    expect(lines.map(({ step, groupId, rolloutId }) => [step, groupId, rolloutId])).toEqual([
      ...[
        [1, 0, 0],
        [1, 0, 1],
        [1, 1, 0],
        [1, 1, 1],
      ],
      ...[
        [2, 2, 0],
        [2, 2, 1],
        [2, 3, 0],
        [2, 3, 1],
      ],
    ])
    for (const { ledger, tokenTexts, turns } of lines) {
      using read = Ledger.fromBytes(Buffer.from(String(ledger), 'base64'))
      const texts = tokenTexts as Record<number, string>
      const written = read
        .toJSON()
        .ids.map((id) => texts[id])
        .join('')
      const [{ promptMessages }] = turns as [{ promptMessages: [{ content: string }] }]
      expect(written).toContain(promptMessages[0].content)
    }
  })

  it('keeps the extremes of one group a step, without tokens, where it is not asked for', async () => {
    const lines = await recorded([])
    expect(new Set(lines.map(({ step, groupId }) => `${step} ${groupId}`))).toEqual(new Set(['1 0', '2 2']))
    for (const line of lines) expect(line).not.toHaveProperty('ledger')
    expect(() => checkTrainConfig({ record: { rollouts: 'some' } })).toThrow(/config\.record\.rollouts/)
  })
})
