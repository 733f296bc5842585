/** Tokenizers of the golden folders. */

import { HfTokenizer } from '../../src/tokenizer/index.js'

/** Every folder of `tests/golden/tokenizer` with a `tokenizer.json`. */
export const GOLDEN_NAMES = [
  'byte_fallback',
  'prefix_space',
  'qwen2',
  'smollm2',
  'split_regex',
  'unigram',
  'word_level',
  'wordpiece',
] as const

/** The folder of a golden tokenizer. */
export function goldenFolder(name: string): string {
  return new URL(`../../../tests/golden/tokenizer/${name}`, import.meta.url).pathname
}

/** A golden tokenizer. */
export function golden(name: (typeof GOLDEN_NAMES)[number]): Promise<HfTokenizer> {
  return HfTokenizer.fromFolder(goldenFolder(name))
}

/** A GGUF file without weights: four tokens, one merge. */
export function ggufOfTokens(model: string): Uint8Array {
  const [STRING, ARRAY, U32] = [8, 9, 4]
  const number = (value: number, bytes: 4 | 8) => {
    const buffer = Buffer.alloc(bytes)
    buffer.writeUInt32LE(value)
    return buffer
  }
  const text = (value: string) => Buffer.concat([number(Buffer.byteLength(value), 8), Buffer.from(value)])
  const list = (type: number, items: Buffer[]) => [
    number(ARRAY, 4),
    number(type, 4),
    number(items.length, 8),
    ...items,
  ]
  const entries: [string, Buffer[]][] = [
    ['tokenizer.ggml.model', [number(STRING, 4), text(model)]],
    ['tokenizer.ggml.pre', [number(STRING, 4), text('gpt-2')]],
    ['tokenizer.ggml.tokens', list(STRING, ['<|end|>', 'a', 'b', 'ab'].map(text))],
    ['tokenizer.ggml.merges', list(STRING, [text('a b')])],
    [
      'tokenizer.ggml.token_type',
      list(
        U32,
        [3, 1, 1, 1].map((kind) => number(kind, 4)),
      ),
    ],
    ['tokenizer.ggml.eos_token_id', [number(U32, 4), number(0, 4)]],
    ['tokenizer.chat_template', [number(STRING, 4), text('{{ eos_token }}')]],
  ]
  const head = [Buffer.from('GGUF'), number(3, 4), number(0, 8), number(entries.length, 8)]
  return Buffer.concat([...head, ...entries.flatMap(([key, value]) => [text(key), ...value])])
}
