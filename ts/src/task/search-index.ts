/**
 * Full-text search of documents in memory ([BM25](https://doi.org/10.1561/1500000019)).
 *
 * ```text
 * score(d) = sum_w ln(1 + (N - n_w + 1/2) / (n_w + 1/2)) * f * (k + 1) / (f + k * (1 - b + b * |d| / mean |d|)),   k = 1.2, b = 0.75
 * ```
 *
 * `w` the different words of the query, `f` the count of a word in the document, `n_w` the number of the `N`
 * documents that have it.
 */

import { describeValue, FulmarError } from '../core/index.js'

/** One document. */
export interface SearchDocument {
  readonly title: string
  readonly text: string
}

/** Searchable documents. */
export interface SearchIndex {
  /** Returns the `count` best documents with a word of the query, the best first; ties are in list order. */
  search(query: string, count: number): readonly SearchDocument[]
}

/** Maximum number of documents of an index. */
export const SEARCH_DOCUMENTS_MAX = 200_000

/** Maximum number of UTF-16 units of a document, title and text together. */
export const SEARCH_DOCUMENT_LENGTH_MAX = 65_536

/** Number of UTF-16 units of a query that are used. */
export const SEARCH_QUERY_LENGTH_MAX = 2048

const K = 1.2
const B = 0.75

/**
 * Makes an index. Words are runs of letters and digits in lower case. A search costs as much as the documents that hold its words.
 * @throws {FulmarError} `EMPTY` if there is no document; `MALFORMED` for one without title or text; `LIMIT_EXCEEDED` for too many or too long ones.
 *
 * @example
 * ```ts
 * import { searchIndex } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const index = searchIndex([
 *   { title: 'Oslo', text: 'Oslo is the capital of Norway.' },
 *   { title: 'Bergen', text: 'Bergen is a city in Norway.' },
 * ])
 * assert.deepEqual(index.search('capital of Norway?', 2).map(({ title }) => title), ['Oslo', 'Bergen'])
 * assert.deepEqual(index.search('zebra', 2), [])
 * ```
 */
export function searchIndex(documents: readonly SearchDocument[]): SearchIndex {
  checkDocuments(documents)
  const copies = documents.map(({ title, text }) => ({ title, text }))
  const postings = new Map<string, { readonly document: number; count: number }[]>()
  const lengths = copies.map((document, place) => {
    const words = wordsOf(`${document.title} ${document.text}`)
    for (const word of words) {
      const places = postings.get(word) ?? []
      const last = places.at(-1)
      if (last?.document === place) last.count++
      else places.push({ document: place, count: 1 })
      postings.set(word, places)
    }
    return words.length
  })
  const meanLength = Math.max(1, lengths.reduce((sum, length) => sum + length, 0) / copies.length)
  return {
    search: (query, count) => {
      const scores = new Map<number, number>()
      for (const word of new Set(wordsOf(query.slice(0, SEARCH_QUERY_LENGTH_MAX)))) {
        const places = postings.get(word) ?? []
        const rarity = Math.log(1 + (copies.length - places.length + 0.5) / (places.length + 0.5))
        for (const { document, count: f } of places) {
          const share = 1 - B + (B * (lengths[document] ?? 0)) / meanLength
          scores.set(document, (scores.get(document) ?? 0) + (rarity * f * (K + 1)) / (f + K * share))
        }
      }
      const best = [...scores]
        .sort(([a, left], [b, right]) => right - left || a - b)
        .slice(0, Math.max(0, count))
      return best.flatMap(([document]) => copies[document] ?? [])
    },
  }
}

function wordsOf(text: string): readonly string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
}

function checkDocuments(documents: readonly SearchDocument[]): void {
  if (!Array.isArray(documents) || documents.length === 0) {
    throw new FulmarError('EMPTY', `documents must hold a document: got ${describeValue(documents)}`)
  }
  if (documents.length > SEARCH_DOCUMENTS_MAX) {
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `documents must be at most ${SEARCH_DOCUMENTS_MAX}: got ${documents.length}`,
    )
  }
  documents.forEach(({ title, text }: SearchDocument, index) => {
    if (typeof title !== 'string' || typeof text !== 'string') {
      throw new FulmarError('MALFORMED', `documents[${index}] must have a title and a text`)
    }
    const length = title.length + text.length
    if (length <= SEARCH_DOCUMENT_LENGTH_MAX) return
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `documents[${index}] must have at most ${SEARCH_DOCUMENT_LENGTH_MAX} UTF-16 units: got ${length}`,
    )
  })
}
