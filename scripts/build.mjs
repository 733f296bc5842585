/**
 * `npm run build -- [--release] [addon] [wasm] [dist]`: the addon, the WebAssembly module where its toolchain is to be had, and `dist/`.
 *
 * `--release` builds the first two as they are published: smaller and a little faster, in several times the time.
 */

import {
  asProgram,
  buildAddon,
  buildWasm,
  checkTools,
  compileSources,
  installPackages,
  Refusal,
} from './steps.mjs'

const PARTS = ['addon', 'wasm', 'dist']

asProgram(async () => {
  const release = process.argv.includes('--release')
  const asked = process.argv.slice(2).filter((arg) => arg !== '--release')
  const unknown = asked.find((part) => !PARTS.includes(part))
  if (unknown) throw new Refusal(`part must be one of ${PARTS.join(', ')}: got ${unknown}`)
  const wanted = (part) => asked.length === 0 || asked.includes(part)
  checkTools()
  await installPackages()
  if (wanted('addon')) await timed('addon', () => buildAddon({ release }))
  if (wanted('wasm')) await timed('wasm', () => buildWasm({ release }))
  if (wanted('dist')) await timed('dist', compileSources)
  return 0
})

async function timed(part, build) {
  const start = performance.now()
  const skipped = await build()
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  process.stdout.write(skipped ? `${part}: SKIPPED: ${skipped}\n` : `${part}: built in ${seconds} s\n`)
}
