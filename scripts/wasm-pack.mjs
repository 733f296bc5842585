/**
 * `node scripts/wasm-pack.mjs`: builds `bindings/wasm` as an npm package with wasm-pack, and compares it with that of
 * `cargo xtask wasm`. Skipped where wasm-pack or wasm-bindgen is not in PATH: compiling both takes ten minutes.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { asProgram, must, root, run, wasmEnvironment } from './steps.mjs'

const OUT = join(root, 'target', 'wasm-pack')
/** Build options: those of the tests, so that the build of `cargo xtask wasm` is reused. */
const BUILD = '--profile wasm-dev --target web --mode no-install --no-opt --out-name fulmar_wasm'.split(' ')

asProgram(async () => {
  const lock = readFileSync(join(root, 'Cargo.lock'), 'utf8')
  const [, bindgen] = /name = "wasm-bindgen"\nversion = "(.+)"/.exec(lock)
  for (const [tool, version] of [
    ['wasm-pack', ''],
    ['wasm-bindgen', bindgen],
  ]) {
    const { code, output } = await run(tool, ['--version'])
    if (code === 0 && output.includes(version)) continue
    process.stdout.write(
      `SKIPPED: ${tool} ${version} is not in PATH: cargo install ${tool}${version && '-cli'}\n`,
    )
    process.stdout.write('wasm-pack: 0 passed, 0 failed, 1 skipped\n')
    return 0
  }
  const { FULMAR_WASM_RUSTC: rustc } = wasmEnvironment()
  const env = { CARGO_TARGET_DIR: join(root, 'target', 'wasm'), ...(rustc && { RUSTC: rustc }) }
  const args = ['build', 'bindings/wasm', ...BUILD, '--out-dir', OUT]
  await must('wasm-pack build', run('wasm-pack', args, { env }))
  const [ours, theirs] = await Promise.all([load(join(root, 'wasm')), load(OUT)])
  assert.deepEqual(Object.keys(theirs), Object.keys(ours))
  assert.deepEqual(theirs.describe(), ours.describe())
  process.stdout.write('wasm-pack: 1 passed, 0 failed, 0 skipped\n')
  return 0
})

async function load(folder) {
  const module = await import(pathToFileURL(join(folder, 'fulmar_wasm.js')).href)
  module.initSync({ module: readFileSync(join(folder, 'fulmar_wasm_bg.wasm')) })
  return module
}
