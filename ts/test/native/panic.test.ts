// Tests the guards around every body of bindings/node, and what a trap of bindings/wasm becomes.

import { afterEach, describe, expect, it } from 'vitest'
import { call, callAsync } from '../../src/core/error.js'
import { raw } from '../../src/native/index.js'

/** The text of the panic and the place in Rust. */
const panicked = {
  name: 'FulmarError',
  code: 'PANIC',
  message: expect.stringMatching(/^a probe asked.*core\.rs:\d+/),
}

describe('a Rust panic', () => {
  afterEach(() => {
    // The process lives and the core still answers.
    expect(call(() => raw.errorCodes())).toContain('PANIC')
  })

  it('in a synchronous call becomes an error', () => {
    const probe = new raw.PanicProbe(false)
    expect(() => call(() => probe.panic())).toThrow(expect.objectContaining(panicked))
  })

  it('in a constructor becomes an error', () => {
    expect(() => call(() => new raw.PanicProbe(true))).toThrow(expect.objectContaining(panicked))
  })

  it('in an asynchronous call becomes a rejection', async () => {
    const probe = new raw.PanicProbe(false)
    await expect(callAsync(() => probe.panicLater())).rejects.toMatchObject(panicked)
  })

  it('may happen many times', () => {
    for (let count = 0; count < 200; count++) {
      expect(() => call(() => new raw.PanicProbe(true))).toThrow(expect.objectContaining(panicked))
    }
  })
})
