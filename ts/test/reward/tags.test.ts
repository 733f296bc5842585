import { describe, expect, it } from 'vitest'
import { extractTags, tagBlocks } from '../../src/reward/index.js'

describe('tags', () => {
  it('takes the first block of each kind, over lines, without spaces at its ends', () => {
    expect(extractTags('<think>some <special> & reasoning</think><answer>\n 5 \n</answer>')).toEqual({
      think: 'some <special> & reasoning',
      answer: '5',
    })
    expect(extractTags('<ANSWER>5</ANSWER>').answer).toBe('')
  })

  it('takes the last complete block where asked to', () => {
    const response = '<answer>1</answer> no, <answer>2</answer> or <answer>3'
    expect([extractTags(response).answer, extractTags(response, 'last').answer]).toEqual(['1', '2'])
  })

  it('ends a block at the first closing tag, so that an opening tag inside belongs to it', () => {
    expect(tagBlocks('<a>x<a>y</a>z</a><a></a>', 'a')).toEqual(['x<a>y', ''])
    expect(tagBlocks('</a><a>', 'a')).toEqual([])
  })
})
