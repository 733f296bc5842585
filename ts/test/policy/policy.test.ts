import { expect, it } from 'vitest'
import { checkGenerateRequest, checkScoreRequest } from '../../src/policy/index.js'

it('refuses ids whose memory was given away, however often it was asked before', () => {
  const kinds = [new ArrayBuffer(8), Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }])]
  const arrays = kinds.map((memory) => new Uint32Array(memory))
  const askOf = (ids: Uint32Array) => {
    checkGenerateRequest({ requestId: 'a', promptIds: ids, seed: 0, maxTokens: 1, stopIds: [] })
    checkScoreRequest({ requestId: 'a', ids })
  }
  // So often that Node compiles the checks for both kinds of memory.
  for (let times = 0; times < 200_000; times++) for (const ids of arrays) askOf(ids)
  const gone = Uint32Array.of(1, 2)
  structuredClone(gone, { transfer: [gone.buffer] })
  expect(() => askOf(gone)).toThrow(
    expect.objectContaining({ code: 'MALFORMED', message: expect.stringContaining('transferred away') }),
  )
})
