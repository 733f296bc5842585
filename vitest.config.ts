import { defineConfig } from 'vitest/config'

/** Most milliseconds of a test or a hook, which end only what hangs: on a busy machine, the slowest tests take longer than a minute. */
const PATIENCE = 300_000

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
    ...{ name, include: ['ts/test/**/*.test.ts'], env: { FULMAR_TEST_BACKEND: name } },
    ...{ testTimeout: PATIENCE, hookTimeout: PATIENCE },
    // To load the library anew for each of 200 files took longer than the tests; no file may lean on what another leaves behind.
    isolate: false,
  },
})

/** Tests in those rooms of what the edge module lacks: estimates of dictionaries, tokenizers of other families. */
const ABSENT = ['objective/{returns,trajectories}', 'tokenizer/{hf-tokenizer,pad-batch}']

/** The tests of rooms that need only the edge module, run on that module. */
const edge = () => {
  const { resolve, test } = project('wasm', 'wasm-node')
  const conditions = ['fulmar-edge', 'module', 'node', 'development']
  const rooms = ['chat', 'objective', 'template', 'tokenizer']
  return {
    resolve: { ...resolve, conditions },
    ssr: { resolve: { conditions } },
    test: {
      ...test,
      name: 'edge',
      include: [...rooms.map((room) => `ts/test/${room}/*.test.ts`), 'ts/test/core/{rng,error}.test.ts'],
      exclude: ABSENT.map((name) => `ts/test/${name}.test.ts`),
      execArgv: ['--conditions=fulmar-edge'],
      env: { FULMAR_TEST_BACKEND: 'edge' },
    },
  }
}

export default defineConfig({
  test: { projects: [project('native', 'node'), project('wasm', 'wasm-node'), edge()] },
})
