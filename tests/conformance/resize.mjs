/** Compares resized images with rows of Pillow, `values` of shape `from` resized to `[w, h]`, to an absolute 1e-4. */

import { Tensor, TensorDict } from 'fulmar'
import { Resize } from 'fulmar/transform'

export const resize = {
  topic: 'resized images',
  members: { input: 'interpolation w h from values', expected: 'expected' },
  tolerance: () => ({ relative: 0, absolute: 1e-4 }),
  matches: ({ interpolation, from, values }) =>
    [interpolation, from, values].every((member) => member !== undefined),
  prepare: () => undefined,
  check({ value: { interpolation, w, h, from, values, expected } }) {
    const image = Tensor.from(Float32Array.from(values), { shape: [1, ...from] })
    const got = new Resize({ w, h, interpolation, inKeys: ['image'] })
      .forward(TensorDict.from({ image }))
      .tensor('image')
    if (String(got.shape) !== String([1, w, h])) return `shape ${got.shape}`
    if (expected.length !== got.numElements) return `${got.numElements} elements, expected ${expected.length}`
    const at = expected.findIndex((value, index) => !(Math.abs(got.data[index] - value) <= 1e-4))
    return at < 0 ? undefined : `element ${at}: got ${got.data[at]}, expected ${expected[at]}`
  },
}
