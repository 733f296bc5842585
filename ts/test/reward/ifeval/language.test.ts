import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { detectLanguage, IFEVAL_LANGUAGES } from '../../../src/reward/ifeval/index.js'
import { LANGUAGE_TEXT_LENGTH_MAX } from '../../../src/reward/ifeval/language.js'
import { PROFILE_LANGUAGES } from '../../../src/reward/ifeval/language-profiles.js'

const rows: readonly { text: string; language: string | null }[] = readFileSync(
  new URL('../../../../tests/golden/reward/languages.jsonl', import.meta.url),
  'utf8',
)
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line))

describe('detectLanguage', () => {
  it('says what langdetect says of every text on which its seeds agree', () => {
    expect(rows.length).toBeGreaterThan(150)
    const wrong = rows.filter(({ text, language }) => (detectLanguage(text) ?? null) !== language)
    expect(wrong).toEqual([])
  })

  it('knows every language that IFEval asks for', () => {
    expect(IFEVAL_LANGUAGES.filter((language) => !PROFILE_LANGUAGES.includes(language))).toEqual([])
  })

  it.each(['', '12 + 3 = 15', '\u{1f600}', '---', 'https://example.com/only-an-address'])(
    'cannot tell %j',
    (text) => {
      expect(detectLanguage(text)).toBeUndefined()
    },
  )

  it('reads the beginning of a long text only', () => {
    const german = 'Das Wetter ist schoen. '.repeat(LANGUAGE_TEXT_LENGTH_MAX / 20)
    expect(detectLanguage(german + 'This is English. '.repeat(10_000))).toBe('de')
  })
})
