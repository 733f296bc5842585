import { describe, expect, it } from 'vitest'
import { Tensor } from '../../../src/tensor/index.js'
import { generatedLogProbs, paddedLeftToRight, paddedRightToLeft } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const idsOf = (rows: readonly (readonly number[])[]) =>
  Tensor.from(BigInt64Array.from(rows.flat(), BigInt), { shape: [rows.length, rows[0]?.length ?? 0] })
const numbers = (tensor: Tensor) => Array.from(tensor.data, Number)

describe('padded rows', () => {
  it('move from one side to the other', () => {
    const right = idsOf([
      [0, 1, 100, 100],
      [4, 5, 6, 100],
    ])
    const left = paddedRightToLeft(right, { endId: 100 })
    expect(numbers(left)).toEqual([100, 100, 0, 1, 100, 4, 5, 6])
    expect(numbers(paddedLeftToRight(left, { endId: 100 }))).toEqual(numbers(right))
    expect(numbers(paddedLeftToRight(left, { endId: 100, sequenceLength: 5 }))).toEqual([
      ...[0, 1, 100, 100, 100],
      ...[4, 5, 6, 100, 100],
    ])
  })

  it('say what is wrong', () => {
    const ids = idsOf([[1, 2]])
    const cases: [() => unknown, string, RegExp][] = [
      [() => paddedLeftToRight(ids, { sequenceLength: 1 }), 'OUT_OF_RANGE', /integer from 2/],
      [() => paddedLeftToRight(ids, { sequenceLength: 2 ** 27 + 1 }), 'OUT_OF_RANGE', /134217728 ids/],
      [() => paddedRightToLeft(ids.select(0, 0)), 'SHAPE_MISMATCH', /ids/],
      [() => paddedRightToLeft(ids, { end: 1 } as never), 'UNKNOWN_NAME', /end/],
    ]
    for (const [make, code, message] of cases) expect(make, String(make)).toThrow(failing(code, message))
  })
})

describe('generatedLogProbs', () => {
  const logits = [0, 1].map((first) => Tensor.from([first, 0, 0, 0, first, 0], { shape: [2, 3] }))

  it('are the log-softmax at the generated ids, or at the most likely', () => {
    const generated = idsOf([
      [0, 1, 0],
      [2, 1, 0],
    ])
    const [even, top, low] = [-Math.log(3), 1 - Math.log(Math.E + 2), -Math.log(Math.E + 2)]
    const near = (wanted: readonly number[]) =>
      wanted.map((value) => (Number.isNaN(value) ? Number.NaN : expect.closeTo(value, 6)))
    const own = numbers(generatedLogProbs(logits, generated))
    expect(own).toEqual(near([even, low, Number.NaN, even, top, Number.NaN]))
    const most = numbers(generatedLogProbs(logits, generated, { useMax: true }))
    expect(most).toEqual(near([even, top, Number.NaN, even, top, Number.NaN]))
  })

  it('say what is wrong', () => {
    const cases: [() => unknown, string, RegExp][] = [
      [() => generatedLogProbs(logits, idsOf([[0], [1]])), 'SHAPE_MISMATCH', /at most 1 steps: got 2/],
      [() => generatedLogProbs(logits, idsOf([[0, 1]])), 'SHAPE_MISMATCH', /logits\[0\]/],
      [
        () =>
          generatedLogProbs(
            logits,
            idsOf([
              [0, 3],
              [0, 0],
            ]),
          ),
        'OUT_OF_RANGE',
        /3/,
      ],
    ]
    for (const [make, code, message] of cases) expect(make, String(make)).toThrow(failing(code, message))
  })
})
