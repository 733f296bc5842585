/** Types of `fulmar/table`: bytes and dictionaries. */

import { expectTypeOf, test } from 'vitest'
import { fromArrow, fromParquet, type ParquetOptions, toArrow, toParquet } from '../../src/entry/table.js'
import type { TensorDict } from '../../src/tensor/index.js'

test('a table is bytes, and a dictionary of unknown shape when it is read', () => {
  expectTypeOf(toArrow).returns.toEqualTypeOf<Uint8Array>()
  expectTypeOf(toParquet).returns.toEqualTypeOf<Uint8Array>()
  expectTypeOf(fromArrow).returns.toEqualTypeOf<TensorDict>()
  expectTypeOf(fromParquet).returns.resolves.toEqualTypeOf<TensorDict>()
  expectTypeOf(fromArrow).parameters.toEqualTypeOf<[bytes: Uint8Array]>()
})

test('the compression is a closed union, and any other option is refused', () => {
  expectTypeOf<ParquetOptions['compression']>().toEqualTypeOf<'snappy' | 'none' | undefined>()
  const wrong = (dict: TensorDict) => {
    // @ts-expect-error no such compression
    toParquet(dict, { compression: 'gzip' })
    // @ts-expect-error no such option
    toParquet(dict, { level: 3 })
    // @ts-expect-error a table is made of a dictionary
    toArrow({ reward: [1, 2] })
    // @ts-expect-error a path is no table
    fromArrow('steps.arrow')
  }
  expectTypeOf(wrong).toBeFunction()
})
