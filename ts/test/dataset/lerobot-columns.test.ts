import { describe, expect, it } from 'vitest'
import { type LeRobotColumn, lerobotColumnsToTensorDict, VideoClipRef } from '../../src/dataset/index.js'
import { NonTensorStack, Tensor } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, rowsOf } from './golden-rows.js'

const refuse = (columns: unknown, code: string, message: RegExp, options = {}) =>
  expect(() => lerobotColumnsToTensorDict(columns as Record<string, LeRobotColumn>, options)).toThrow(
    failing(code, message),
  )

describe('lerobotColumnsToTensorDict', () => {
  it('makes the dictionary of TorchRL', () => {
    const [row] = rowsOf('datasets', 'lerobot_columns_to_tensordict')
    const { $dict } = Reflect.get(row ?? {}, 'columns') as { readonly $dict: readonly [string, unknown][] }
    const columns = Object.fromEntries(
      $dict.map(([name, value]) => {
        if (Array.isArray(value)) return [name, value as string[]]
        const {
          $t,
          s: shape,
          d,
        } = value as { readonly $t: string; readonly s: number[]; readonly d: number[] }
        const dtype = { float32: 'f32', int64: 'i64', bool: 'bool', uint8: 'u8' }[$t] as 'f32'
        return [name, Tensor.from(d.map(Number), { shape, dtype })]
      }),
    )
    expectRows(lerobotColumnsToTensorDict(columns), row?.ok)
  })

  it('takes lists, and frames of videos', () => {
    const frames = VideoClipRef.fromFile('a.mp4', { numFrames: 2 })
    const dict = lerobotColumnsToTensorDict(
      {
        whole: [1, 2],
        big: [1n, 2n],
        part: [0.5, 1],
        flag: [true, false],
        task: ['a', 'b'],
        'observation.images.top': frames,
      },
      { keyMap: { part: ['next', 'part'] } },
    )
    expect(['whole', 'big', 'flag'].map((key) => dict.tensor(key).dtype)).toEqual(['i64', 'i64', 'bool'])
    expect(dict.tensor(['next', 'part']).shape).toEqual([2, 1])
    expect(dict.get('language_instruction')).toEqual(new NonTensorStack(['a', 'b']))
    expect(VideoClipRef.around(dict.dict(['observation', 'image', 'top'])).sources).toEqual([
      'a.mp4',
      'a.mp4',
    ])
  })

  it('refuses columns that do not make rows', () => {
    refuse({}, 'EMPTY', /columns/)
    refuse(null, 'MALFORMED', /columns/)
    refuse({ task: ['a', 1] }, 'MALFORMED', /'task'.*string and number/)
    refuse({ a: [null] }, 'MALFORMED', /'a'/)
    refuse({ a: [1], b: [1, 2] }, 'SHAPE_MISMATCH', /a has 1 frames, got 2 of b/)
    refuse({ a: Tensor.from([1], { shape: [] }) }, 'MALFORMED', /scalar/)
    refuse({ a: 'text' }, 'MALFORMED', /'a'/)
    refuse({ a: [1], b: [1] }, 'INCOMPATIBLE', /for b and a|for a and b/, { keyMap: { b: 'a' } })
    refuse({ a: [1], 'a.b': [1] }, 'INCOMPATIBLE', /a\.b/)
    refuse({ action: [1] }, 'UNKNOWN_NAME', /did you mean action/, { keyMap: { actoin: 'a' } })
    refuse({ action: [1] }, 'UNKNOWN_NAME', /keyMap/, { keymap: {} })
  })
})
