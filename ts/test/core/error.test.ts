import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { call, callAsync, ERROR_CODES, FulmarError } from '../../src/core/error.js'
import { raw } from '../../src/native/index.js'

describe('FulmarError', () => {
  it('knows exactly the codes of the core, in its order, and two of its own', () => {
    const own = ['ABORTED', 'TIMEOUT']
    expect(ERROR_CODES).toEqual([...raw.errorCodes(), ...own])
  })

  it('carries name, code, sentence and cause', () => {
    const cause = new Error('below')
    const error = new FulmarError('IO', 'disk must have room: it is full', { cause })
    expect(error).toMatchObject({
      name: 'FulmarError',
      code: 'IO',
      message: 'disk must have room: it is full',
      cause,
    })
    expect(error).toBeInstanceOf(Error)
  })

  it('says what is there: no sentence of this package ends in "got none", "others", "less" or "more"', () => {
    const source = fileURLToPath(new URL('../../src/', import.meta.url))
    const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.ts'),
    )
    const bare = files.filter((name) =>
      /\bgot (none|others|less|more)\b/.test(readFileSync(source + name, 'utf8')),
    )
    expect(files.length).toBeGreaterThan(300)
    expect(bare).toEqual([])
  })
})

describe('call', () => {
  it('keeps the code and the sentence of the core, with its error as cause', () => {
    const failing = () => call(() => new raw.Rng(-1))
    expect(failing).toThrow(FulmarError)
    expect(failing).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE', cause: expect.any(Error) }))
  })

  it('passes a FulmarError on as it is', () => {
    const error = new FulmarError('ABORTED', 'stopped')
    expect(() => call(() => throwing(error))).toThrow(error)
  })

  it('calls what the boundary itself refuses MALFORMED', () => {
    const words: unknown = 'not words'
    expect(() => call(() => raw.Rng.fromState(words as BigUint64Array))).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^(MALFORMED|SHAPE_MISMATCH)$/) }),
    )
  })
})

describe('callAsync', () => {
  it('rejects with the code where the body throws at once and where it throws later', async () => {
    const now = callAsync(() => new raw.Rng(-1))
    await expect(now).rejects.toMatchObject({ name: 'FulmarError', code: 'OUT_OF_RANGE' })
    const later = callAsync(async () => throwing(new FulmarError('EMPTY', 'batch must not be empty')))
    await expect(later).rejects.toMatchObject({ code: 'EMPTY' })
  })

  it('resolves with an answer that comes at once', async () => {
    await expect(callAsync(() => 3)).resolves.toBe(3)
  })
})

function throwing(error: Error): never {
  throw error
}
