import { expect, it } from 'vitest'
import { fromPytree, NonTensorData, Tensor, TensorDict, toPytree } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const leaf = () => Tensor.from([1, 2])

it('makes dictionaries of lists and objects, and the same tree of them', () => {
  const tree = { a: [leaf(), { b: leaf() }], none: {}, text: 'x', json: new NonTensorData({ deep: [1] }) }
  const dict = fromPytree(tree, { batchSize: [2] })
  expect(dict.leafKeys()).toEqual([['a', '0'], ['a', '1', 'b'], ['text'], ['json']])
  expect([dict.batchSize, dict.dict('a').batchSize, dict.dict('none').keys()]).toEqual([[2], [2], []])
  const back = toPytree(dict)
  expect(Object.keys(back)).toEqual(['a', 'none', 'text', 'json'])
  expect(fromPytree(back, { batchSize: [2] }).equals(dict)).toBe(true)
  expect(toPytree(fromPytree([1, 2]))).toEqual([1, 2])
})

it('refuses trees that are too deep or have no end, and leaves of another batch', () => {
  const deep = (levels: number): { readonly a: never } | Tensor =>
    levels === 0 ? leaf() : { a: deep(levels - 1) as never }
  expect(fromPytree(deep(32) as { a: never }).leafKeys()[0]).toHaveLength(32)
  expect(codeOf(() => fromPytree(deep(33) as { a: never }))).toBe('LIMIT_EXCEEDED')
  const endless: Record<string, never> = {}
  Object.assign(endless, { endless })
  expect(codeOf(() => fromPytree(endless))).toBe('LIMIT_EXCEEDED')
  expect(codeOf(() => fromPytree({ a: leaf() }, { batchSize: [3] }))).toBe('SHAPE_MISMATCH')
  expect(fromPytree({ inner: TensorDict.from({ a: leaf() }) }).leafKeys()).toEqual([['inner', 'a']])
})
