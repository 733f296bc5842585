/** Types of `fulmar/tokenizer`: ids in and out, and options that are closed. */

import { expectTypeOf, test } from 'vitest'
import {
  CharTokenizer,
  type DecodeStream,
  type Encoding,
  type EncodingBatch,
  HfTokenizer,
  type NativeTokenizer,
  offsetsIn,
  type PaddedBatch,
  padBatch,
  type TiktokenTokenizer,
  type TokenizerLike,
  trainByteBpe,
} from '../../src/entry/tokenizer.js'

test('every tokenizer is a TokenizerLike, and owns native memory', () => {
  expectTypeOf<CharTokenizer>().toExtend<NativeTokenizer>()
  expectTypeOf<HfTokenizer>().toExtend<NativeTokenizer>()
  expectTypeOf<TiktokenTokenizer>().toExtend<NativeTokenizer>()
  expectTypeOf<NativeTokenizer>().toExtend<TokenizerLike>()
  expectTypeOf<NativeTokenizer>().toExtend<Disposable>()
  expectTypeOf<DecodeStream>().toExtend<Disposable>()
})

test('ids are typed arrays, tokens are texts or undefined', () => {
  expectTypeOf<NativeTokenizer['encode']>().returns.toEqualTypeOf<Encoding>()
  expectTypeOf<Encoding>().toEqualTypeOf<{ readonly ids: Uint32Array; readonly offsets: Uint32Array }>()
  expectTypeOf<NativeTokenizer['encodeBatch']>().returns.toEqualTypeOf<EncodingBatch>()
  expectTypeOf<NativeTokenizer['decode']>().returns.toEqualTypeOf<string>()
  expectTypeOf<NativeTokenizer['idOf']>().returns.toEqualTypeOf<number | undefined>()
  expectTypeOf<NativeTokenizer['tokenOf']>().returns.toEqualTypeOf<string | undefined>()
  expectTypeOf<NativeTokenizer['specialTokens']>().toEqualTypeOf<Readonly<Record<string, string>>>()
  expectTypeOf(HfTokenizer.fromFolder).returns.resolves.toEqualTypeOf<HfTokenizer>()
  expectTypeOf(padBatch).returns.toEqualTypeOf<PaddedBatch>()
  expectTypeOf(trainByteBpe).returns.toEqualTypeOf<HfTokenizer>()
  expectTypeOf(offsetsIn).parameter(2).toEqualTypeOf<'bytes' | 'codePoints' | 'utf16'>()
})

test('lists of ids, unknown options and other units are refused', () => {
  const wrong = (tokenizer: NativeTokenizer, encoding: Encoding, batch: EncodingBatch) => {
    // @ts-expect-error ids are a Uint32Array
    tokenizer.decode([1, 2])
    // @ts-expect-error the option is called `addSpecialTokens`
    tokenizer.encode('a', { add_special_tokens: true })
    // @ts-expect-error one text is no batch
    tokenizer.encodeBatch('a')
    // @ts-expect-error a side and a value are needed
    padBatch(batch, { side: 'left' })
    // @ts-expect-error no such side
    padBatch(batch, { side: 'both', value: 0 })
    // @ts-expect-error an encoding cannot be changed
    encoding.ids = new Uint32Array()
    // @ts-expect-error a size is needed
    trainByteBpe(['a'], {})
    // @ts-expect-error no such option
    new CharTokenizer({ vocabulary: 'abc' })
  }
  expectTypeOf(wrong).toBeFunction()
})
