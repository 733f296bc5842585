import { expect, it } from 'vitest'
import { unravelKey } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

it('makes a name or a path of nested lists', () => {
  expect(unravelKey('a')).toBe('a')
  expect(unravelKey(['a'])).toBe('a')
  expect(unravelKey(['a', ['b', [['c']]], 'd'])).toEqual(['a', 'b', 'c', 'd'])
  expect(unravelKey([])).toEqual([])
})

it('refuses what is no name', () => {
  expect(codeOf(() => unravelKey(['a', 3 as never]))).toBe('MALFORMED')
})
