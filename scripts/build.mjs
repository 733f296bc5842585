/** `npm run build`: the addon, the WebAssembly module where its toolchain is to be had, and `dist/`. */

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
  const asked = process.argv.slice(2)
  const unknown = asked.find((part) => !PARTS.includes(part))
  if (unknown) throw new Refusal(`part must be one of ${PARTS.join(', ')}: got ${unknown}`)
  const wanted = (part) => asked.length === 0 || asked.includes(part)
  checkTools()
  await installPackages()
  if (wanted('addon')) await timed('addon', buildAddon)
  if (wanted('wasm')) await timed('wasm', buildWasm)
  if (wanted('dist')) await timed('dist', compileSources)
  return 0
})

async function timed(part, build) {
  const start = performance.now()
  const skipped = await build()
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  process.stdout.write(skipped ? `${part}: SKIPPED: ${skipped}\n` : `${part}: built in ${seconds} s\n`)
}
