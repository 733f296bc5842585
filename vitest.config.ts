import { defineConfig } from 'vitest/config'

const native = (file: string) => new URL(`./ts/src/native/${file}.ts`, import.meta.url).pathname

/** The same tests on both backends: only what `#backend` means differs. */
const project = (name: 'native' | 'wasm', backend: string) => ({
  resolve: {
    alias: {
      '#backend': native(backend),
      '#sandbox': native('sandbox-node'),
      '#http': native('http-node'),
    },
  },
  test: {
    ...{ name, include: ['ts/test/**/*.test.ts'], testTimeout: 60_000, env: { FULMAR_TEST_BACKEND: name } },
    // To load the library anew for each of 200 files took longer than the tests; no file may lean on what another leaves behind.
    isolate: false,
  },
})

export default defineConfig({
  test: { projects: [project('native', 'node'), project('wasm', 'wasm-node')] },
})
