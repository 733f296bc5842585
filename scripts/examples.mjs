/**
 * `node scripts/examples.mjs [native] [wasm] [rust]`: runs every example in its `--smoke` form.
 *
 * `examples/*.ts` are compiled and run against the built package on each backend that is asked for;
 * `crates/fulmar/examples/*.rs` are built and run once. All but `wasm` where nothing is asked for.
 */

import { existsSync, readdirSync } from 'node:fs'
import { asProgram, compileExamples, exampleFolder, Refusal, root, run } from './steps.mjs'

const PARTS = { native: typescript([]), wasm: typescript(['--conditions=fulmar-wasm']), rust }

asProgram(async () => {
  const parts = process.argv.length > 2 ? process.argv.slice(2) : ['native', 'rust']
  const unknown = parts.find((part) => !(part in PARTS))
  if (unknown) throw new Refusal(`part must be one of ${Object.keys(PARTS).join(', ')}: got ${unknown}`)
  if (parts.some((part) => part !== 'rust')) {
    if (!existsSync(`${root}dist/index.js`)) throw new Refusal('dist/ must be built first: npm run build')
    await compileExamples()
  }
  const folder = exampleFolder()
  let numFailed = 0
  let numPassed = 0
  for (const part of parts) {
    for (const [path, command, args] of PARTS[part]()) {
      const start = performance.now()
      const { code, output } = await run(command, args, { cwd: part === 'rust' ? root : folder })
      const seconds = ((performance.now() - start) / 1000).toFixed(1)
      const outcome = code === 0 ? 'ok' : `FAILED (exit status ${code})\n${output}`
      process.stdout.write(`${path} (${part}, ${seconds} s): ${outcome}\n`)
      if (code === 0) numPassed += 1
      else numFailed += 1
    }
  }
  if (numPassed + numFailed === 0) throw new Refusal(`there is no example for ${parts.join(', ')}`)
  process.stdout.write(`examples (${parts.join(', ')}): ${numPassed} passed, ${numFailed} failed\n`)
  return numFailed === 0 ? 0 : 1
})

function typescript(nodeArgs) {
  return () =>
    programs('examples', '.ts').map((name) => {
      const args = [...nodeArgs, '--enable-source-maps', `${root}build/examples/${name}.js`, '--smoke']
      return [`examples/${name}.ts`, process.execPath, args]
    })
}

function rust() {
  return programs('crates/fulmar/examples', '.rs').map((name) => {
    // No `--package`: the features of the whole workspace are what `cargo test` has built already.
    const args = ['run', '--quiet', '--example', name, '--', '--smoke']
    return [`crates/fulmar/examples/${name}.rs`, 'cargo', args]
  })
}

/** The names of the programs of a folder, without their end, in order. */
function programs(folder, end) {
  if (!existsSync(root + folder)) return []
  const files = readdirSync(root + folder).filter((name) => name.endsWith(end))
  return files.map((name) => name.slice(0, -end.length)).sort()
}
