/** Division of frames into bins. */

import { describeValue, FulmarError } from '../core/index.js'

/** Most frames that bins may give. */
const BIN_FRAMES_MAX = 2 ** 24

/**
 * @internal The frames of bins over `numFrames`, in single precision as PyTorch computes them: the middle of each bin, or
 * `framesPerBin` from its first to its last.
 * @throws {FulmarError} `OUT_OF_RANGE` for a number below 1, `EMPTY` without frames, `LIMIT_EXCEEDED` above 2^24 frames.
 */
export function binFrames(numFrames: number, numBins: number, framesPerBin?: number): Uint32Array {
  checkNumber('numBins', numBins)
  if (framesPerBin !== undefined) checkNumber('framesPerBin', framesPerBin)
  if (numFrames < 1) throw new FulmarError('EMPTY', `frames must be at least one for bins: got ${numFrames}`)
  const perBin = framesPerBin ?? 1
  if (numBins * perBin > BIN_FRAMES_MAX) {
    const detail = `bins must have at most ${BIN_FRAMES_MAX} frames: got ${numBins * perBin}`
    throw new FulmarError('LIMIT_EXCEEDED', detail)
  }
  const edges = linspace(numFrames, numBins + 1).map(roundHalfEven)
  const places = linspace(1, perBin)
  const frames = new Uint32Array(numBins * perBin)
  for (let bin = 0; bin < numBins; bin++) {
    const low = Math.min(edges[bin] ?? 0, numFrames - 1)
    const high = Math.max(Math.min((edges[bin + 1] ?? 0) - 1, numFrames - 1), low)
    for (let at = 0; at < perBin; at++) {
      const place =
        framesPerBin === undefined ? (low + high) / 2 : low + Math.fround((places[at] ?? 0) * (high - low))
      frames[bin * perBin + at] = roundHalfEven(Math.fround(place))
    }
  }
  return frames
}

/** @internal Rounds to the nearest whole number, and halves to the even one. */
export function roundHalfEven(value: number): number {
  const floor = Math.floor(value)
  const part = value - floor
  if (part !== 0.5) return part < 0.5 ? floor : floor + 1
  return floor % 2 === 0 ? floor : floor + 1
}

/** Numbers from 0 to `end` in single precision, counted from both ends as PyTorch does. */
function linspace(end: number, count: number): Float32Array {
  if (count === 1) return new Float32Array(1)
  const step = Math.fround(end / (count - 1))
  return Float32Array.from({ length: count }, (_, at) =>
    at < Math.floor(count / 2) ? step * at : end - Math.fround(step * (count - 1 - at)),
  )
}

function checkNumber(name: string, value: unknown): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 1) return
  throw new FulmarError('OUT_OF_RANGE', `${name} must be a whole number from 1: got ${describeValue(value)}`)
}
