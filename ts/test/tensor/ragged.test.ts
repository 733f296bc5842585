import { describe, expect, it } from 'vitest'
import { Ragged, Tensor } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const ids = () => Tensor.from(Uint32Array.of(7, 8, 9, 1, 2))
const rows = () => Ragged.from(ids(), Uint32Array.of(0, 3, 3, 5))

describe('Ragged', () => {
  it('gives rows, slices and picks', () => {
    using ragged = rows()
    expect([ragged.numRows, ragged.offsets]).toEqual([3, Uint32Array.of(0, 3, 3, 5)])
    expect(ragged.row(0).data).toEqual(Uint32Array.of(7, 8, 9))
    expect(ragged.row(1).shape).toEqual([0])
    expect(ragged.slice(1).offsets).toEqual(Uint32Array.of(0, 0, 2))
    const picked = ragged.indexSelect([2, 2])
    expect([picked.values.data, picked.offsets]).toEqual([
      Uint32Array.of(1, 2, 1, 2),
      Uint32Array.of(0, 2, 4),
    ])
  })

  it('comes from rows and compares with them', () => {
    const parts = [
      Tensor.from(Uint32Array.of(7, 8, 9)),
      Tensor.zeros('u32', [0]),
      Tensor.from(Uint32Array.of(1, 2)),
    ]
    using ragged = Ragged.fromRows(parts)
    expect(ragged.equals(rows())).toBe(true)
    expect(ragged.equals(rows().slice(0, 2))).toBe(false)
  })

  it('pads on the side and with the element that the caller names', () => {
    using left = rows().toPadded({ side: 'left', fill: 0 })
    expect([left.shape, left.data]).toEqual([[3, 3], Uint32Array.of(7, 8, 9, 0, 0, 0, 0, 1, 2)])
    using right = rows().toPadded({ side: 'right', fill: 5 })
    expect(right.data).toEqual(Uint32Array.of(7, 8, 9, 5, 5, 5, 1, 2, 5))
    expect(codeOf(() => rows().toPadded({ side: 'left', fill: -1 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => rows().toPadded({ side: 'up' as 'left', fill: 0 }))).toBe('UNKNOWN_NAME')
  })

  it('refuses offsets that do not describe rows', () => {
    expect(codeOf(() => Ragged.from(ids(), Uint32Array.of()))).toBe('EMPTY')
    expect(codeOf(() => Ragged.from(ids(), Uint32Array.of(0, 4)))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => Ragged.from(ids(), Uint32Array.of(0, 4, 2, 5)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Ragged.from(Tensor.from([1], { shape: [] }), Uint32Array.of(0)))).toBe(
      'SHAPE_MISMATCH',
    )
    expect(codeOf(() => rows().row(3))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => rows().slice(2, 1))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Ragged.fromRows([]))).toBe('EMPTY')
    const offsets = Uint32Array.of(0, 5)
    structuredClone(offsets, { transfer: [offsets.buffer] })
    expect(codeOf(() => Ragged.from(ids(), offsets))).toBe('MALFORMED')
  })

  it('says that it is closed after disposal', () => {
    const ragged = rows()
    using row = ragged.row(0)
    ragged[Symbol.dispose]()
    expect(codeOf(() => ragged.row(0))).toBe('CLOSED')
    expect(row.data).toEqual(Uint32Array.of(7, 8, 9))
  })
})
