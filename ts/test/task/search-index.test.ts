import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type SearchDocument, searchIndex } from '../../src/task/index.js'
import {
  SEARCH_DOCUMENT_LENGTH_MAX,
  SEARCH_DOCUMENTS_MAX,
  SEARCH_QUERY_LENGTH_MAX,
} from '../../src/task/search-index.js'
import { codeOf } from './said.js'

/** The formula, document by document. */
function naive(documents: readonly SearchDocument[], query: string): number[] {
  const words = documents.map(({ title, text }) => `${title} ${text}`.split(' '))
  const mean = words.reduce((sum, list) => sum + list.length, 0) / words.length
  return words.map((list) =>
    [...new Set(query.split(' '))].reduce((score, word) => {
      const holding = words.filter((other) => other.includes(word)).length
      const f = list.filter((other) => other === word).length
      const rarity = Math.log(1 + (words.length - holding + 0.5) / (holding + 0.5))
      return score + (rarity * f * 2.2) / (f + 1.2 * (1 - 0.75 + (0.75 * list.length) / mean))
    }, 0),
  )
}

describe('searchIndex', () => {
  it('ranks by the formula', () => {
    const word = fc.constantFrom('a', 'b', 'c', 'd', 'e')
    const text = fc.array(word, { minLength: 1, maxLength: 8 }).map((list) => list.join(' '))
    const documents = fc.array(text, { minLength: 1, maxLength: 12 })
    fc.assert(
      fc.property(documents, text, (texts, query) => {
        const list = texts.map((document, place) => ({ title: `t${place}`, text: document }))
        const scores = naive(list, query)
        const found = searchIndex(list).search(query, 99)
        const ranked = found.map(({ title }) => scores[Number(title.slice(1))] ?? 0)
        expect(found).toHaveLength(scores.filter((score) => score > 0).length)
        for (const [place, score] of ranked.slice(1).entries())
          expect(score).toBeLessThanOrEqual((ranked[place] ?? 0) + 1e-9)
      }),
      { seed: 1, numRuns: 300 },
    )
  })

  it('gives no more than asked for, the first of equally good ones first', () => {
    const index = searchIndex([1, 2, 3].map((place) => ({ title: `t${place}`, text: 'same' })))
    expect(index.search('SAME!', 2).map(({ title }) => title)).toEqual(['t1', 't2'])
    expect([index.search('same', 0), index.search('', 3), index.search('other', 3)]).toEqual([[], [], []])
  })

  it('keeps the limits of documents and queries', () => {
    const document = (length: number) => ({ title: '', text: 'x'.repeat(length) })
    expect(searchIndex([document(SEARCH_DOCUMENT_LENGTH_MAX)]).search('y', 1)).toEqual([])
    expect(codeOf(() => searchIndex([document(SEARCH_DOCUMENT_LENGTH_MAX + 1)]))).toBe('LIMIT_EXCEEDED')
    const many = (count: number) => Array(count).fill({ title: '', text: '' })
    expect(codeOf(() => searchIndex(many(SEARCH_DOCUMENTS_MAX + 1)))).toBe('LIMIT_EXCEEDED')
    expect(searchIndex(many(SEARCH_DOCUMENTS_MAX)).search('x', 1)).toEqual([])
    const index = searchIndex([{ title: 'needle', text: '' }])
    expect(index.search(`${' '.repeat(SEARCH_QUERY_LENGTH_MAX - 6)}needle`, 1)).toHaveLength(1)
    expect(index.search(`${' '.repeat(SEARCH_QUERY_LENGTH_MAX - 5)}needle`, 1)).toHaveLength(0)
    expect(codeOf(() => searchIndex([]))).toBe('EMPTY')
    // @ts-expect-error a document without text
    expect(codeOf(() => searchIndex([{ title: 'a' }]))).toBe('MALFORMED')
  })
})
