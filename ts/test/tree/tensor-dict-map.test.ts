import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { backend } from '../../src/native/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { QueryModule, SipHash, TensorDictMap, type WriteFn } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'

const keys = (...numbers: number[]) =>
  TensorDict.from({ k: Tensor.from(numbers) }, { batchSize: [numbers.length] })
const values = (...numbers: number[]) =>
  TensorDict.from({ v: Tensor.from(numbers) }, { batchSize: [numbers.length] })
const numbersOf = (dict: TensorDict) => [...dict.tensor('v').toFloat32()]
const queryModule = () => new QueryModule({ inKeys: ['k'] })

describe('TensorDictMap', () => {
  it('keeps keys of one hash apart', () => {
    const sip = new SipHash()
    const fourBits = {
      forward: (rows: Tensor) => Tensor.from(sip.forward(rows).data.map((hash) => hash & 15n)),
    }
    const map = new TensorDictMap({
      queryModule: new QueryModule({ inKeys: ['k'], hashModule: fourBits }),
      maxSize: 300,
    })
    const all = Array.from({ length: 300 }, (_, at) => at)
    map.set(keys(...all), values(...all))
    expect([map.length, numbersOf(map.get(keys(...all)))]).toEqual([300, all])
    expect(map.has(keys(300))).toBe(false)
  })

  it('merges each key with its own old value, repeated keys one after another', () => {
    const calls: [number[], number[] | undefined][] = []
    const writeFn: WriteFn = (fresh, old) => {
      calls.push([numbersOf(fresh), old && numbersOf(old)])
      return old ? values(...numbersOf(fresh).map((one, at) => one + (numbersOf(old)[at] ?? 0))) : fresh
    }
    const map = new TensorDictMap({ queryModule: queryModule(), writeFn })
    map.set(keys(1, 2, 1), values(10, 20, 30))
    map.set(keys(3, 2), values(5, 6))
    expect(numbersOf(map.get(keys(1, 2, 3)))).toEqual([40, 26, 5])
    expect(calls).toEqual([
      [[10, 20], undefined],
      [[30], [10]],
      [[5], undefined],
      [[6], [20]],
    ])
    const wrong = new TensorDictMap({ queryModule: queryModule(), writeFn: () => 1 as never })
    expect(codeOf(() => wrong.set(keys(1), values(1)))).toBe('USER_CODE')
  })

  it('takes a batch of any shape and collates what it gives', () => {
    const collateFn = (rows: TensorDict) => rows.set('seen', Tensor.zeros('f32', rows.batchSize))
    const map = new TensorDictMap({ queryModule: queryModule(), collateFn })
    map.set(keys(1, 2, 3, 4).reshape([2, 2]), values(1, 2, 3, 4).reshape([2, 2]))
    const got = map.get(keys(4).index(0))
    expect([got.batchSize, got.tensor('v').item(), got.has('seen')]).toEqual([[], 4, true])
  })

  it('refuses unknown keys, other shapes and too many keys, and is as before then', () => {
    const map = TensorDictMap.fromTensorDictPair(keys(1), values(1), { inKeys: ['k'], maxSize: 2 })
    map.set(keys(1), values(1))
    expect(codeOf(() => map.get(keys(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => map.set(keys(2, 3), values(2, 3)))).toBe('LIMIT_EXCEEDED')
    expect(codeOf(() => map.set(keys(2), keys(2)))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => map.set(keys(2), values(2, 3)))).toBe('SHAPE_MISMATCH')
    expect([map.length, map.has(keys(2))]).toEqual([1, false])
    expect(codeOf(() => new TensorDictMap({ queryModule: queryModule(), maxSize: 0 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => TensorDictMap.fromTensorDictPair(keys(1), values(1), { inKeys: ['x'] }))).toBe(
      'UNKNOWN_NAME',
    )
  })

  it('comes back from its state, and from a folder', () => {
    const map = new TensorDictMap({ queryModule: queryModule() })
    map.set(keys(5, 6), values(1, 2))
    const other = new TensorDictMap({ queryModule: queryModule() })
    other.loadStateDict(map.stateDict())
    expect(numbersOf(other.get(keys(6, 5)))).toEqual([2, 1])
    if (backend === 'native') {
      const folder = mkdtempSync(join(tmpdir(), 'fulmar-map-'))
      map.dumps(join(folder, 'map'))
      other.clear()
      other.loads(join(folder, 'map'))
      rmSync(folder, { recursive: true })
    }
    expect(other.stateDict().equals(map.stateDict())).toBe(true)
    other.clear()
    expect([other.length, other.has(keys(5))]).toEqual([0, false])
  })
})
