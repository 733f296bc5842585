import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readHdf5, writeHdf5 } from '../../src/ted/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'

const fixture = (name: string) =>
  readFileSync(new URL(`../../../tests/golden/ted/fixtures/h5/${name}.h5`, import.meta.url))

describe('readHdf5 and writeHdf5', () => {
  it('read what h5py wrote, and write it again', () => {
    for (const name of ['plain', 'dtypes']) {
      const dict = readHdf5(fixture(name))
      expect(dict.leafKeys().length).toBeGreaterThan(1)
      expect(readHdf5(writeHdf5(dict)).equals(dict)).toBe(true)
    }
    expect(readHdf5(fixture('plain')).tensor(['n', 'c']).dtype).toBe('bool')
  })

  it('refuse what is cut off or no such file, and keys that a file cannot have', () => {
    const bytes = fixture('plain')
    for (const end of [0, 7, 8, 100, bytes.length - 1]) {
      expect(codeOf(() => readHdf5(bytes.subarray(0, end)))).toBe('CORRUPT')
    }
    const named = (name: string) => writeHdf5(TensorDict.from({ [name]: Tensor.from([1]) }))
    for (const name of ['', '.', '..', 'a/b']) expect(codeOf(() => named(name))).toBe('MALFORMED')
    expect(codeOf(() => writeHdf5(TensorDict.from({ text: new NonTensorData('a') })))).toBe('INCOMPATIBLE')
  })
})
