import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { CenterCrop, GrayScale, Resize, ToTensorImage } from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { numbersAt } from './steps.js'

const side = fc.integer({ min: 1, max: 9 })
const images = (data: Uint8Array | Float32Array, shape: readonly number[]) =>
  TensorDict.from({ pixels: Tensor.from(data, { shape }) }, { batchSize: [] })

it('ToTensorImage brings channels to the front and divides integers by 255', () => {
  fc.assert(
    fc.property(side, side, fc.integer({ min: 1, max: 4 }), (height, width, channels) => {
      const bytes = Uint8Array.from({ length: height * width * channels }, (_, at) => (at * 37) % 256)
      const got = new ToTensorImage({ dtype: 'f64' }).forward(images(bytes, [height, width, channels]))
      expect(got.tensor('pixels').shape).toEqual([channels, height, width])
      const want = Array.from({ length: channels }, (_, channel) =>
        Array.from({ length: height * width }, (_, at) => (bytes[at * channels + channel] as number) / 255),
      )
      expect(numbersAt(got, 'pixels')).toEqual(want.flat())
    }),
    { numRuns: 40 },
  )
  const floats = images(Float32Array.of(0.5, 1, 2), [1, 1, 3])
  expect(numbersAt(new ToTensorImage().forward(floats), 'pixels')).toEqual([0.5, 1, 2])
  expect(new ToTensorImage({ unsqueeze: true }).forward(floats).tensor('pixels').shape).toEqual([1, 3, 1, 1])
  expect(codeOf(() => new ToTensorImage().forward(images(Uint8Array.of(1), [1])))).toBe('SHAPE_MISMATCH')
})

it('Resize keeps what is the same everywhere, and Nearest takes elements that are there', () => {
  fc.assert(
    fc.property(side, side, side, side, (height, width, w, h) => {
      const flat = images(new Float32Array(height * width).fill(0.25), [height, width])
      const got = new Resize({ w, h }).forward(flat)
      expect(got.tensor('pixels').shape).toEqual([w, h])
      expect(numbersAt(got, 'pixels').every((value) => Math.abs(value - 0.25) < 1e-6)).toBe(true)
      const numbered = images(
        Float32Array.from({ length: height * width }, (_, at) => at),
        [height, width],
      )
      const nearest = numbersAt(new Resize({ w, h, interpolation: 'nearest' }).forward(numbered), 'pixels')
      const want = Array.from({ length: w * h }, (_, at) => {
        const [row, column] = [Math.floor(at / h), at % h]
        return Math.floor((row * height) / w) * width + Math.floor((column * width) / h)
      })
      expect(nearest).toEqual(want)
    }),
    { numRuns: 40 },
  )
})

it('CenterCrop takes the middle, with zeros around what is too small', () => {
  const numbered = images(
    Float32Array.from({ length: 25 }, (_, at) => at),
    [5, 5],
  )
  expect(numbersAt(new CenterCrop({ w: 1 }).forward(numbered), 'pixels')).toEqual([12])
  expect(numbersAt(new CenterCrop({ w: 1, h: 3 }).forward(numbered), 'pixels')).toEqual([11, 12, 13])
  const small = images(Float32Array.of(7), [1, 1])
  expect(numbersAt(new CenterCrop({ w: 3 }).forward(small), 'pixels')).toEqual([0, 0, 0, 0, 7, 0, 0, 0, 0])
})

it('GrayScale weighs three channels', () => {
  const colours = images(Float32Array.of(1, 0, 0, 1, 0, 0), [3, 1, 2])
  const gray = new GrayScale().forward(colours).tensor('pixels')
  expect(gray.shape).toEqual([1, 1, 2])
  expect(gray.data).toEqual(Float32Array.of(0.2989, 0.587))
  expect(codeOf(() => new GrayScale().forward(images(Float32Array.of(1, 2), [2, 1, 1])))).toBe(
    'SHAPE_MISMATCH',
  )
})
