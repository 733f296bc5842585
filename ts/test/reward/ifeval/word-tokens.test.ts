import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { wordTokens } from '../../../src/reward/ifeval/index.js'

const rows: readonly { text: string; words: string[] }[] = readFileSync(
  new URL('../../../../tests/golden/reward/sentences.jsonl', import.meta.url),
  'utf8',
)
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line))

describe('wordTokens', () => {
  it('splits as NLTK does', () => {
    expect(rows.length).toBeGreaterThan(500)
    const wrong = rows.filter(({ text, words }) => wordTokens(text).join('\0') !== words.join('\0'))
    expect(wrong).toEqual([])
  })

  it('takes contractions apart and leaves hyphens together', () => {
    expect(wordTokens("DON'T stop-gap, GONNA")).toEqual(['DO', "N'T", 'stop-gap', ',', 'GON', 'NA'])
  })
})
