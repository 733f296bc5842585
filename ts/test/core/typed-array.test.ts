import { describe, expect, it } from 'vitest'
import { checkTypedArray } from '../../src/core/index.js'
import { AdamW, Decoder, type DecoderConfig, Engine, type TokenBatch } from '../../src/model/index.js'
import { fromArrow, fromParquet } from '../../src/table/index.js'
import { readHdf5 } from '../../src/ted/index.js'
import { Ragged, readArchive, readConsolidated, readSafetensors, Tensor } from '../../src/tensor/index.js'
import { HfTokenizer } from '../../src/tokenizer/index.js'
import { TINY } from '../model/tiny.js'

const malformed = (message: RegExp) =>
  expect.objectContaining({ name: 'FulmarError', code: 'MALFORMED', message: expect.stringMatching(message) })
const decoder = Decoder.fromSeed(TINY, { seed: 1 })
const bytes = await decoder.toSafetensors()

describe('checkTypedArray', () => {
  it('takes an array of its type, also a Buffer for bytes, and says of others what they are', () => {
    checkTypedArray('bytes', Buffer.from('x'), Uint8Array)
    checkTypedArray('ids', Uint32Array.of(1), Uint32Array)
    expect(() => checkTypedArray('ids', [1], Uint32Array)).toThrow(
      malformed(/^ids must be a Uint32Array: got an array of 1$/),
    )
  })
})

describe('entries that take arrays', () => {
  const wrong: [string, unknown][] = [
    ['a text', 'x'],
    ['nothing', undefined],
    ['an object', {}],
    ['a list', [1, 2]],
    ['an ArrayBuffer', new ArrayBuffer(4)],
    ['a Float32Array', new Float32Array(2)],
  ]
  const entries: [string, string, (value: never) => unknown][] = [
    ['Decoder.fromSafetensors', 'bytes', (value) => Decoder.fromSafetensors(TINY, value)],
    ['Decoder.fromGguf', 'bytes', (value) => Decoder.fromGguf(value)],
    ['Decoder.loadLora', 'bytes', (value) => decoder.loadLora({ r: 1, target_modules: ['q_proj'] }, value)],
    ['readSafetensors', 'bytes', readSafetensors],
    ['readArchive', 'bytes', readArchive],
    ['readConsolidated', 'bytes', readConsolidated],
    ['readHdf5', 'bytes', readHdf5],
    ['fromArrow', 'bytes', fromArrow],
    ['fromParquet', 'bytes', fromParquet],
    ['HfTokenizer.fromGguf', 'bytes', (value) => HfTokenizer.fromGguf(value)],
    ['Ragged.from', 'offsets', (value) => Ragged.from(Tensor.from([1, 2]), value)],
    [
      'Engine.generate',
      'ids',
      (value) => new Engine(decoder).generate({ ids: value, seed: 0 }, { maxTokens: 1 }),
    ],
  ]
  it.each(
    entries.flatMap(([entry, name, run]) =>
      wrong.map(([kind, value]) => ({ entry, name, run, kind, value })),
    ),
  )('$entry refuses $kind by name', async ({ name, run, value }) => {
    const call = async () => await run(value as never)
    await expect(call()).rejects.toEqual(malformed(new RegExp(`^${name} must be a Uint(8|32)Array: got`)))
  })

  it('says which of two swapped arguments is wrong', () => {
    const swapped = () =>
      Decoder.fromSafetensors(bytes as unknown as DecoderConfig, TINY as unknown as Uint8Array)
    expect(swapped).toThrow(malformed(/^config must be an object: got/))
    expect(() => Decoder.fromSeed(undefined as unknown as DecoderConfig, { seed: 1 })).toThrow(
      malformed(/^config must be an object: got/),
    )
    expect(() => new AdamW(decoder, {}, 'x' as unknown as Uint8Array)).toThrow(malformed(/^state must be/))
  })

  const batch: TokenBatch = {
    ids: Uint32Array.of(1, 2),
    offsets: Uint32Array.of(0, 2),
    mask: Uint8Array.of(0, 1),
  }
  it.each(['ids', 'offsets', 'mask', 'positions'])('refuses a batch whose %s are a list', async (name) => {
    const bad = { ...batch, [name]: [0, 1] }
    for (const call of [
      decoder.score(bad),
      decoder.forward(bad),
      decoder.values(bad),
      decoder.forwardValues(bad),
    ])
      await expect(call).rejects.toEqual(malformed(new RegExp(`^${name} must be a`)))
  })

  it('refuses gradients that are lists', async () => {
    const list = [0, 1] as unknown as Float32Array
    await expect(decoder.backward(list)).rejects.toEqual(malformed(/^gradLogProb must be/))
    await expect(decoder.backward(new Float32Array(2), list)).rejects.toEqual(
      malformed(/^gradEntropy must be/),
    )
    await expect(decoder.backwardValues(list)).rejects.toEqual(malformed(/^gradValue must be/))
  })

  it('makes no tensor of values that are not numbers', () => {
    for (const data of ['abc', undefined, null, {}, new ArrayBuffer(4), 3])
      expect(() => Tensor.from(data as unknown as number[])).toThrow(malformed(/^data must be a typed array/))
  })
})
