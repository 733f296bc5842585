import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  countBlankSeparated,
  countBullets,
  countHighlights,
  countParagraphs,
  countPlaceholders,
  countSections,
  firstWordOfParagraph,
  hasPostscript,
  hasTitle,
  hasTwoResponses,
  isJson,
} from '../../../src/reward/ifeval/format-counts.js'

/** The original's expressions, which are slow on long texts and plain to read. */
const naive = {
  placeholders: (text: string) => (text.match(/\[[^\n]*?\]/g) ?? []).length,
  bullets: (text: string) =>
    (text.match(/^\s*\*[^*][^\n]*$/gm) ?? []).length + (text.match(/^\s*-[^\n]*$/gm) ?? []).length,
  highlights: (text: string) => {
    const single = (text.match(/\*[^\n*]*\*/g) ?? []).filter(
      (span) => span.replace(/^\*+|\*+$/g, '').trim() !== '',
    )
    const double = (text.match(/\*\*[^\n*]*\*\*/g) ?? []).filter((span) => span.slice(2, -2).trim() !== '')
    return single.length + double.length
  },
  sections: (text: string) => text.split(/\s?Section\s?\d+\s?/).length - 1,
  title: (text: string) =>
    (text.match(/<<[^\n]+>>/g) ?? []).some((title) => title.replace(/^<+|>+$/g, '').trim() !== ''),
  paragraphs: (text: string) => {
    const pieces = text.split(/\s?\*\*\*\s?/)
    const isGap = pieces.slice(1, -1).some((piece) => piece.trim() === '')
    return isGap ? undefined : pieces.filter((piece) => piece.trim() !== '').length
  },
}

const alphabet = [
  '*',
  '**',
  '[',
  ']',
  '-',
  '<',
  '<<',
  '>>',
  '>',
  '\n',
  '\n\n',
  ' ',
  'a',
  'Section',
  '1',
  '2 ',
  '***',
]
const texts = fc.array(fc.constantFrom(...alphabet), { maxLength: 24 }).map((pieces) => pieces.join(''))

describe('format counts', () => {
  it('are those of the original expressions on random texts', () => {
    fc.assert(
      fc.property(texts, (text) => {
        expect(countPlaceholders(text)).toBe(naive.placeholders(text))
        expect(countBullets(text)).toBe(naive.bullets(text))
        expect(countHighlights(text)).toBe(naive.highlights(text))
        expect(countSections(text, 'Section')).toBe(naive.sections(text))
        expect(hasTitle(text)).toBe(naive.title(text))
        expect(countParagraphs(text)).toBe(naive.paragraphs(text))
      }),
      { seed: 1, numRuns: 6000 },
    )
  })

  it.each([
    ['[a] [b] []', 3],
    ['[a\nb]', 0],
    ['[a [b]', 1],
  ])('counts placeholders of %j: %d', (text, count) => {
    expect(countPlaceholders(text)).toBe(count)
  })

  it.each([
    ['* a\n** b\n- c\n  * d\n---', 4],
    ['*a\n-b\n1. c', 2],
    ['*\n* b', 1],
    ['a\n*', 0],
  ])('counts bullets of %j: %d', (text, count) => {
    expect(countBullets(text)).toBe(count)
  })

  it.each([
    ['**bold** and *it*', 2],
    ['** ** *  *', 0],
    ['**a** **b**', 2],
    ['*a\nb*', 0],
  ])('counts highlights of %j: %d', (text, count) => {
    expect(countHighlights(text)).toBe(count)
  })

  it.each([
    ['a\n***\nb\n***\nc', 3],
    ['***\na***b***', 2],
    ['a******b', undefined],
  ])('counts paragraphs of %j: %j', (text, count) => {
    expect(countParagraphs(text)).toBe(count)
  })

  it.each([
    ['a******b', true],
    ['a******a', false],
    ['******a******b******', true],
    ['a************b', false],
    ['a******b******c', false],
    ['a', false],
  ])('tells two responses in %j: %j', (text, has) => {
    expect(hasTwoResponses(text)).toBe(has)
  })

  it.each([
    ['Hi\n\nSecond one', 2, 'second'],
    ['Hi\n\n"Second.\u201d x', 2, 'second'],
    ["Hi\n\n'\"Don't", 2, 'don'],
    ['Hi\n\n\n\nSecond', 2, undefined],
    ['Hi', 2, undefined],
    ['', 1, undefined],
  ])('finds the first word of paragraph in %j, number %d: %j', (text, nth, word) => {
    expect(firstWordOfParagraph(text, nth)).toBe(word)
    expect(countBlankSeparated(text)).toBe(text.split('\n\n').filter((part) => part !== '').length)
  })

  it.each([
    ['x\nP.S. y', 'P.S.', true],
    ['p.p.s. hm', 'P.S.', true],
    ['p. p. s hm', 'P.P.S', true],
    ['PS y', 'P.S.', false],
    ['P.S. y', 'P.P.S', false],
    ['note (x) this', 'Note (X)', true],
  ])('finds the postscript of %j with %j: %j', (text, marker, has) => {
    expect(hasPostscript(text, marker)).toBe(has)
  })

  it.each([
    ['```json\n{"a": 1}\n```', true, true],
    ['{a: 1}', false, false],
    ['[NaN, -Infinity]', true, false],
    ['["NaN", "say \\"NaN\\""]', true, true],
    ['-NaN', false, false],
    ['NaNs', false, false],
    ['', false, false],
    ['12', true, true],
    ['{"a": NaN', false, false],
  ])('reads %j as JSON: as Python %j, strictly %j', (text, python, strict) => {
    expect([isJson(text, 'python'), isJson(text, 'strict')]).toEqual([python, strict])
  })
})
