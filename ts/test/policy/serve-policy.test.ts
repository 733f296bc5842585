import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { decodeStreamsOf } from '../../src/policy/serve-policy.js'
import { CharTokenizer, HfTokenizer, TiktokenTokenizer } from '../../src/tokenizer/index.js'

const golden = new URL('../../../tests/golden/tokenizer/qwen2/tokenizer.json', import.meta.url)
const BYTES = Array.from({ length: 256 }, (_, byte) => byte)
const tables = {
  char: () => new CharTokenizer({ alphabet: 'abc' }),
  tiktoken: () =>
    TiktokenTokenizer.fromTiktoken({
      ranks: Buffer.from(BYTES.map((byte, id) => `${Buffer.of(byte).toString('base64')} ${id}\n`).join('')),
      pattern: String.raw`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`,
      specialTokens: {},
    }),
  huggingFace: () => HfTokenizer.fromJson(readFileSync(golden, 'utf8')),
}

describe('decodeStreamsOf', () => {
  it.each(Object.entries(tables))('decodes as the tokenizer does whose JSON it is given: %s', (_, make) => {
    using tokenizer = make()
    const { ids } = tokenizer.encode('abc')
    using stream = decodeStreamsOf(JSON.stringify(tokenizer))()
    expect([...ids].map((id) => stream.push(id)).join('')).toBe('abc')
  })
})
