import { expect, it } from 'vitest'
import { matchesPattern } from '../../src/fetch/file-pattern.js'

it('matches whole names: * any characters, ? one', () => {
  const matching = [
    ['a/b.h5', '*.h5'],
    ['a/b.h5', 'a/*'],
    ['a/b.h5', 'a?b?h5'],
    ['', '*'],
    ['abcabd', '*ab?'],
    ['a', '**'],
  ]
  for (const [name = '', pattern = ''] of matching)
    expect(matchesPattern(name, pattern), `${name} ${pattern}`).toBe(true)
  const others = [
    ['a/b.h5', '*.h'],
    ['a/b.h5', 'b.h5'],
    ['', '?'],
    ['ab', 'a'],
    ['a.h5', '[a].h5'],
    ['a', ''],
  ]
  for (const [name = '', pattern = ''] of others)
    expect(matchesPattern(name, pattern), `${name} ${pattern}`).toBe(false)
})

it('takes no exponential time', () => {
  expect(matchesPattern('a'.repeat(1_000), `${'*a'.repeat(100)}b`)).toBe(false)
})
