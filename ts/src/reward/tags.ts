/** Texts in `<think>` and `<answer>` tags. */

import { checkGiven } from '../core/index.js'
import { strip } from './text.js'

/** Thought and answer of a response, without outer spaces; `''` for a missing one. */
export interface Tags {
  readonly think: string
  readonly answer: string
}

/**
 * Takes the thought and the answer out of a response: the first complete block of each, or the last.
 *
 * @example
 * ```ts
 * import { extractTags } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const response = '<think>6 * 7</think> <answer>42</answer><answer>43</answer>'
 * assert.deepEqual(extractTags(response), { think: '6 * 7', answer: '42' })
 * assert.equal(extractTags(response, 'last').answer, '43')
 * assert.deepEqual(extractTags('no tags'), { think: '', answer: '' })
 * ```
 */
export function extractTags(response: string, block: 'first' | 'last' = 'first'): Tags {
  checkGiven('response', response)
  const place = block === 'first' ? 0 : -1
  const inside = (name: string) => strip(tagBlocks(response, name).at(place) ?? '')
  return { think: inside('think'), answer: inside('answer') }
}

/**
 * Returns the contents of each `<name>...</name>` of a text, in order and unchanged. A block ends at the
 * first closing tag.
 *
 * @example
 * ```ts
 * import { tagBlocks } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(tagBlocks('<think>a</think><think> b</think><think>never closed', 'think'), ['a', ' b'])
 * ```
 */
export function tagBlocks(text: string, name: string): string[] {
  checkGiven('text', text)
  const [opening, closing] = [`<${name}>`, `</${name}>`]
  const blocks: string[] = []
  let from = 0
  for (;;) {
    const start = text.indexOf(opening, from)
    const end = start < 0 ? -1 : text.indexOf(closing, start + opening.length)
    if (end < 0) return blocks
    blocks.push(text.slice(start + opening.length, end))
    from = end + closing.length
  }
}
