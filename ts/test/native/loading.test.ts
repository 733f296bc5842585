// Tests when the core is loaded: never by an import.

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { init, Rng } from '../../src/index.js'

const program = fileURLToPath(new URL('loading-process.mjs', import.meta.url))
const FIRST_WORD = 0x6627e8d5

/** The output of loading-process.mjs with these options of Node. */
function loadedWith(...options: string[]): unknown {
  const { stdout, stderr } = spawnSync(process.execPath, [...options, program], { encoding: 'utf8' })
  expect(stderr).toBe('')
  return JSON.parse(stdout)
}

describe('the core', () => {
  it('is loaded by the first use in Node, not by an import of an entry', () => {
    expect(loadedWith()).toMatchObject({
      afterImports: 0,
      first: FIRST_WORD,
      again: FIRST_WORD,
      backend: 'native',
    })
  })

  it('is loaded by the first use in Node with WebAssembly, not by an import of an entry', () => {
    const found = loadedWith('--conditions=fulmar-wasm')
    expect(found).toMatchObject({
      afterImports: 0,
      first: FIRST_WORD,
      again: FIRST_WORD,
      backend: 'wasm',
      loads: 1,
    })
  })

  it('is loaded by init alone in a browser, and says so to an earlier use', () => {
    const first = {
      isOurs: true,
      code: 'UNAVAILABLE',
      message: expect.stringContaining('`await init()` first'),
    }
    const found = loadedWith('--conditions=browser')
    expect(found).toMatchObject({
      afterImports: 0,
      first,
      refused: 'UNAVAILABLE',
      again: FIRST_WORD,
      backend: 'wasm',
    })
  })
})

describe('init', () => {
  it('may be called again at any time', async () => {
    await Promise.all([init(), init()])
    await init()
    expect(Rng.fromSeed(0).nextU32()).toBe(FIRST_WORD)
  })

  it('refuses unknown options and what is no module', async () => {
    await expect(init(JSON.parse('{ "modul": 1 }'))).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
    const error = { code: 'MALFORMED', argument: 'options.module', value: '5' }
    await expect(init(JSON.parse('{ "module": 5 }'))).rejects.toMatchObject(error)
  })
})
