import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { splitSentences } from '../../../src/reward/ifeval/index.js'

const rows: readonly { text: string; sentences: string[] }[] = readFileSync(
  new URL('../../../../tests/golden/reward/sentences.jsonl', import.meta.url),
  'utf8',
)
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line))

describe('splitSentences', () => {
  it('splits as NLTK does', () => {
    expect(rows.length).toBeGreaterThan(500)
    const wrong = rows.filter(
      ({ text, sentences }) => splitSentences(text).join('\0') !== sentences.join('\0'),
    )
    expect(wrong).toEqual([])
  })

  it.each([
    ['One. Two. Three.', 3],
    ['Mr. Smith left. He came back.', 2],
    ['J. Bach wrote it.', 1],
    ['It rose 3. percent', 1],
    ['no end', 1],
    ['', 0],
    [' \n ', 0],
  ])('finds in %j %d sentences', (text, count) => {
    expect(splitSentences(text)).toHaveLength(count)
  })
})
