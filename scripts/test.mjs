/**
 * `npm test [stage ...]`: sets up what is missing, runs every stage, and ends with `N passed, N failed, N skipped`.
 *
 * `npm run ready` (`--stop-at-first-failure`) is the same up to the first stage that fails.
 */

import { checkTools, STAGES } from './stages.mjs'
import { asProgram, Refusal } from './steps.mjs'

asProgram(async () => {
  const args = process.argv.slice(2)
  const stopAtFirst = args.includes('--stop-at-first-failure')
  const chosen = chooseStages(args.filter((arg) => arg !== '--stop-at-first-failure'))
  checkTools()
  const results = new Map()
  const begun = new Map()
  let noWasm
  for (const stage of chosen) {
    process.stdout.write(`${stage.name} ...\n`)
    const start = performance.now()
    // Nothing that would go on after a failure is begun early.
    for (const { name, run } of stopAtFirst ? [] : chosen.filter(({ beside }) => beside === stage.name))
      begun.set(name, run())
    const result =
      stage.wasm && noWasm ? skipLike(results.get(stage.like)) : await (begun.get(stage.name) ?? stage.run())
    const seconds = (performance.now() - start) / 1000
    noWasm ??= result.noWasm
    results.set(stage.name, { ...result, seconds })
    report(stage.name, result, seconds)
    if (result.failed && stopAtFirst) break
  }
  return conclude(results, noWasm)
})

function chooseStages(names) {
  const unknown = names.find((name) => !STAGES.some((stage) => stage.name === name))
  if (unknown) {
    throw new Refusal(`stage must be one of ${STAGES.map((stage) => stage.name).join(', ')}: got ${unknown}`)
  }
  return names.length === 0 ? STAGES : STAGES.filter((stage) => names.includes(stage.name))
}

/** What a stage that cannot run counts as: all of its tests skipped. */
function skipLike(model) {
  const skipped = model ? model.passed + model.failed + model.skipped : 1
  return { passed: 0, failed: 0, skipped, output: '' }
}

function report(name, { passed, failed, output, noWasm }, seconds) {
  if (noWasm) process.stdout.write(`${'!'.repeat(72)}\n! WebAssembly SKIPPED: ${noWasm}\n${'!'.repeat(72)}\n`)
  if (failed) process.stdout.write(`${output.trimEnd().split('\n').slice(-200).join('\n')}\n`)
  process.stdout.write(
    `${name}: ${failed ? 'FAILED' : passed ? 'ok' : 'SKIPPED'} in ${seconds.toFixed(1)} s\n`,
  )
}

function conclude(results, noWasm) {
  const total = { passed: 0, failed: 0, skipped: 0, seconds: 0 }
  const rows = [...results].map(([name, result]) => {
    for (const key of Object.keys(total)) total[key] += result[key]
    return row(name, result)
  })
  const head = [
    'stage'.padEnd(20),
    'passed'.padStart(8),
    'failed'.padStart(8),
    'skipped'.padStart(8),
    'seconds'.padStart(9),
  ]
  process.stdout.write(`\n${head.join('')}\n${rows.join('\n')}\n${row('all', total)}\n\n`)
  if (noWasm) process.stdout.write(`WebAssembly was not tested: ${noWasm}\n`)
  process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`)
  return total.failed === 0 ? 0 : 1
}

function row(name, { passed, failed, skipped, seconds }) {
  const counts = [passed, failed, skipped].map((count) => String(count).padStart(8)).join('')
  return `${name.padEnd(20)}${counts}${seconds.toFixed(1).padStart(9)}`
}
