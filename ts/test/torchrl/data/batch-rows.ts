/** Rows of texts that transformers padded and cut, and their tokenizer: see tests/golden/tokenizer/HOW.md. */

import { readFileSync } from 'node:fs'
import { HfTokenizer } from '../../../src/tokenizer/index.js'

const golden = (name: string) =>
  readFileSync(new URL(`../../../../tests/golden/tokenizer/${name}`, import.meta.url), 'utf8')

/** Result of transformers. */
export interface BatchRow {
  readonly texts: readonly string[]
  readonly padding_side: 'left' | 'right'
  readonly truncation_side: 'left' | 'right'
  readonly kwargs: {
    readonly padding: 'longest' | 'max_length'
    readonly truncation: boolean
    readonly max_length?: number
    readonly add_special_tokens?: boolean
    readonly pad_to_multiple_of?: number
  }
  readonly pad_token_id: number
  readonly input_ids: readonly number[][]
  readonly attention_mask: readonly number[][]
}

export const wordpiece = HfTokenizer.fromJson(golden('wordpiece/tokenizer.json'))

export const batchRows = golden('wordpiece/batch.jsonl')
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line) as BatchRow)
