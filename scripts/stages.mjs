/** The stages of `npm test`, in their order. Each resolves with its counts; one without tests of its own is one test. */

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { COMPILED, DECODERS, EMULATED, PLANTED } from './cuda.mjs'
import { fetchMcpServers } from './mcp-servers.mjs'
import { fetchSmolLm2 } from './smollm2.mjs'
import {
  buildAddon,
  buildWasm,
  checkTools,
  compileSources,
  installPackages,
  isAllRequired,
  Refusal,
  root,
  run,
  runTool,
} from './steps.mjs'
import { AARCH64, MIRI, OTHER_TARGETS } from './targets.mjs'

/** The result of a stage: the numbers of passed, failed and skipped tests, and a text. */
const outcome = (passed, failed, skipped = 0, output = '') => ({ passed, failed, skipped, output })

/** The result of a test that needs something missing: skipped; in CI, where `.ci/run` installs it, failed. */
function missing(reason) {
  return isAllRequired
    ? outcome(0, 1, 0, `in CI nothing is skipped: ${reason}`)
    : outcome(0, 0, 1, `SKIPPED: ${reason}`)
}

/** A tool that runs if it is installed; compiling it takes too long for a test. */
async function optional(tool, args) {
  const { code } = await run(tool, ['--version'])
  if (code === 127)
    return outcome(0, 0, 1, `SKIPPED: ${tool} is not installed: cargo install --locked ${tool}`)
  return single(run(tool, args))
}

/** A program that is one test: it passed if it left with status 0. */
async function single(running) {
  const { code, output } = await running
  return code === 0 ? outcome(1, 0) : outcome(0, 1, 0, output)
}

/** A part of the build that is one test. */
async function built(build) {
  try {
    await build()
    return outcome(1, 0)
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    return outcome(0, 1, 0, error.message)
  }
}

/** A program that prints its counts; `counts` finds them in its text. A bad exit status is a failure in any case. */
async function counted(running, counts, { mayBeEmpty = false } = {}) {
  const { code, output } = await running
  const found = counts(output)
  if (code !== 0 && found.failed === 0) return outcome(found.passed, 1, found.skipped, output)
  if (!mayBeEmpty && found.passed + found.failed + found.skipped === 0)
    return outcome(0, 1, 0, `no test ran:\n${output}`)
  return outcome(found.passed, found.failed, found.skipped, output)
}

/** Sums every `N passed, N failed` or libtest's `N passed; N failed; N ignored`; decisions of `conform` are no tests. */
function countLines(output) {
  const found = { passed: 0, failed: 0, skipped: 0 }
  const line = /(\d+) passed[,;] (\d+) failed(?:, \d+ by decision)?(?:[,;] (\d+) (?:ignored|skipped))?/g
  for (const match of output.matchAll(line)) {
    found.passed += Number(match[1])
    found.failed += Number(match[2])
    found.skipped += Number(match[3] ?? 0)
  }
  return found
}

/**
 * The counts of `cargo test`, which has no way to skip a test while it runs: one that cannot run prints a line
 * `SKIPPED: name: reason` and passes.
 */
function countRust(output) {
  const found = countLines(output)
  const skipped = output.match(/^SKIPPED: /gm)?.length ?? 0
  return { ...found, passed: found.passed - skipped, skipped: found.skipped + skipped }
}

/** The seed of the order of tests: FULMAR_SHUFFLE, or else the commit. Files share a process, so they must not depend on their order. */
function shuffleSeed() {
  if (process.env.FULMAR_SHUFFLE) return process.env.FULMAR_SHUFFLE
  const { stdout } = spawnSync('git', ['rev-parse', '--short=7', 'HEAD'], { cwd: root, encoding: 'utf8' })
  return String(Number.parseInt(stdout, 16) || 1)
}

/** The tests of a backend; with `files` those that import one of them, at any depth. */
async function vitest(project, files) {
  const file = join(root, 'target', `vitest-${project}.json`)
  rmSync(file, { force: true })
  const args = [
    ...(files ? ['related', '--run', '--passWithNoTests', ...files] : ['run']),
    '--project',
    project,
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${file}`,
  ]
  // The order of the tests on WebAssembly stays, so that a failure on one backend alone is not a matter of order.
  if (project === 'native') {
    const seed = shuffleSeed()
    args.push('--sequence.shuffle', `--sequence.seed=${seed}`)
    process.stdout.write(`native: FULMAR_SHUFFLE=${seed} repeats this order\n`)
  }
  const counts = () => {
    const report = JSON.parse(readFileSync(file, 'utf8'))
    return {
      passed: report.numPassedTests,
      failed: report.numFailedTests,
      skipped: report.numPendingTests + report.numTodoTests,
    }
  }
  const running = runTool('vitest/vitest.mjs', args, { env: { NO_COLOR: '1' } })
  return counted(running, counts, { mayBeEmpty: files !== undefined })
}

/** The counts that `node --test` prints at its end. */
function countTap(output) {
  const [passed = 0, failed = 0, skipped = 0] = ['pass', 'fail', 'skipped'].map((name) =>
    Number(new RegExp(`^# ${name} (\\d+)$`, 'm').exec(output)?.[1] ?? 0),
  )
  return { passed, failed, skipped }
}

/** Files of rows that tests of Rust or TypeScript read themselves: texts, optimizers, and what needs no other program. */
const READ_BY_TESTS = new Set(
  `chat/chatml chat/family dataset/images fetch/transfer model/optimizers reward/gsm8k reward/ifeval reward/languages reward/sentences
  template/builtin template/expressions template/selection
  tokenizer/byte_bpe/qwen2 tokenizer/byte_bpe/smollm2 tokenizer/byte_bpe/tiktoken`.split(/\s+/),
)

/** The golden rows that `npm run conform` compares with: all others. */
function goldenFiles() {
  const files = readdirSync(join(root, 'tests/golden'), { recursive: true })
  return (
    files
      .map((file) => file.replaceAll('\\', '/'))
      .filter((file) => file.endsWith('.jsonl') && !READ_BY_TESTS.has(file.slice(0, -'.jsonl'.length)))
      // Files of data sets, and no rows.
      .filter((file) => !/^(?:dataset|rlhf)\/(?:raw|broken|processed)\//.test(file))
      .map((file) => `tests/golden/${file}`)
      .sort()
  )
}

const conform = (backend) => program('scripts/conform.mjs', '--backend', backend, ...goldenFiles())
/** Changes what some of the rows expect, and asserts that they fail; `--share 1` goes through all of them. */
const perturbed = () =>
  program('scripts/conform.mjs', ...['--perturb', '--share', '37', '--seed', '1'], ...goldenFiles())
const nodeTests = (...files) =>
  counted(run(process.execPath, ['--test', '--test-reporter=tap', ...files]), countTap)
const scriptTests = () =>
  nodeTests(...readdirSync(join(root, 'tests/scripts')).map((file) => `tests/scripts/${file}`))

/** The stage `cuda-emulated` plants one fault of so many. */
const PLANTED_SHARE = 24

/** The version of the spelling checker. */
const TYPOS = '1.52.0'

/** The stages whose work programs run against. */
const BUILT = ['addon', 'dist']
const BUILT_ALL = [...BUILT, 'wasm-build']

const program = (file, ...args) => counted(run(process.execPath, [file, ...args]), countLines)
const cargo = (...args) => run('cargo', args)

/**
 * Every stage. `run` takes a scope where `scripts/changed.mjs` narrows it. Each begins as soon as those that it `needs` have ended and a lane is free, the first of the list first.
 * `wasm` marks those that need the WebAssembly module: where it cannot be built they count as skipped,
 * as many as the stage named by `like` counted.
 */
export const STAGES = [
  { name: 'packages', run: () => built(installPackages) },
  { name: 'rustfmt', run: () => single(cargo('fmt', '--all', '--check')) },
  // What the tests and the addon share is compiled by the addon; cargo lets one at a time into its folder.
  { name: 'addon', needs: ['packages'], run: () => built(buildAddon) },
  { name: 'dist', needs: ['packages'], run: () => built(compileSources) },
  { name: 'tidy', needs: ['addon'], run: () => single(cargo('xtask', 'tidy')) },
  { name: 'wasm-build', needs: ['packages'], run: buildWasmOrSkip },
  {
    name: 'rust',
    needs: ['tidy'],
    run: (targets = []) => counted(cargo('test', '--no-fail-fast', ...targets), countRust),
  },
  { name: 'clippy', needs: ['rust'], run: clippy },
  {
    name: 'aarch64',
    needs: ['clippy'],
    run: () => elsewhere(AARCH64, (running) => counted(running, countRust)),
  },
  { name: 'other-targets', needs: ['aarch64'], run: () => elsewhere(OTHER_TARGETS, single) },
  // It compiles into a folder of its own.
  { name: 'miri', run: () => elsewhere(MIRI, (running) => counted(running, countRust)) },
  // Kernels of GPUs, on a machine without one. What they share with the tests is compiled then.
  { name: 'cuda-emulated', needs: ['clippy'], run: cudaEmulated },
  {
    name: 'cuda-decoders',
    needs: [...BUILT, 'cuda-emulated'],
    run: () => elsewhere(DECODERS, (running) => counted(running, countLines)),
  },
  {
    name: 'cuda-compiled',
    needs: ['clippy'],
    run: () => elsewhere(COMPILED, (running) => counted(running, countLines)),
  },
  {
    name: 'tsc',
    needs: ['packages'],
    run: async () => {
      const results = []
      for (const project of ['tsconfig.test.json', 'tsconfig.page.json'])
        results.push(await single(runTool('typescript/bin/tsc', ['-p', project])))
      return outcome(
        ...['passed', 'failed', 'skipped', 'output'].map((part) =>
          results.map((one) => one[part]).reduce((a, b) => a + b),
        ),
      )
    },
  },
  {
    name: 'biome',
    needs: ['packages'],
    run: (files = []) => single(runTool('@biomejs/biome/bin/biome', ['ci', '--colors=off', ...files])),
  },
  { name: 'model', run: () => fetchedOrSkipped(fetchSmolLm2) },
  { name: 'mcp-servers', run: () => fetchedOrSkipped(fetchMcpServers) },
  // The native tests open the sandbox of untrusted templates too.
  { name: 'native', needs: [...BUILT_ALL, 'model', 'mcp-servers'], run: (files) => vitest('native', files) },
  { name: 'conform', needs: [...BUILT, 'model'], run: () => conform('native') },
  { name: 'conform-perturb', needs: [...BUILT, 'model'], run: perturbed },
  { name: 'conform-runner', needs: BUILT, run: () => nodeTests('tests/conformance/run.test.mjs') },
  { name: 'scripts', needs: ['packages'], run: scriptTests },
  { name: 'wasm', wasm: true, like: 'native', needs: BUILT_ALL, run: () => vitest('wasm') },
  { name: 'wasm-edge', wasm: true, needs: BUILT_ALL, run: () => vitest('edge') },
  {
    name: 'conform-wasm',
    wasm: true,
    like: 'conform',
    needs: [...BUILT_ALL, 'model'],
    run: () => conform('wasm'),
  },
  {
    name: 'docs-examples',
    needs: BUILT_ALL,
    run: (files = []) => program('scripts/jsdoc-examples.mjs', 'native', ...files),
  },
  {
    name: 'docs-examples-wasm',
    wasm: true,
    like: 'docs-examples',
    // Both write the examples to one folder.
    needs: ['docs-examples'],
    run: () => program('scripts/jsdoc-examples.mjs', 'wasm'),
  },
  {
    name: 'examples',
    needs: [...BUILT_ALL, 'model', 'rust'],
    run: () => program('scripts/examples.mjs', 'native', 'rust'),
  },
  {
    name: 'examples-wasm',
    wasm: true,
    like: 'examples',
    needs: ['examples'],
    run: () => program('scripts/examples.mjs', 'wasm'),
  },
  { name: 'backends', wasm: true, needs: BUILT_ALL, run: () => program('scripts/backends.mjs') },
  { name: 'edge', wasm: true, needs: BUILT_ALL, run: () => program('scripts/edge.mjs') },
  {
    name: 'playground',
    wasm: true,
    needs: BUILT_ALL,
    run: () => program('scripts/playground.mjs', '--check'),
  },
  { name: 'raw', needs: ['addon'], run: () => single(run(process.execPath, ['scripts/raw.mjs', '--check'])) },
  {
    name: 'raw-wasm',
    wasm: true,
    needs: ['addon', 'wasm-build'],
    run: () => single(run(process.execPath, ['scripts/raw.mjs', '--wasm'])),
  },
  { name: 'api', needs: ['dist'], run: () => single(run(process.execPath, ['scripts/api.mjs', '--check'])) },
  {
    name: 'docs',
    needs: ['packages'],
    run: () => single(runTool('typedoc/bin/typedoc', ['--treatWarningsAsErrors'])),
  },
  // Clippy has compiled what crates depend on.
  { name: 'rustdoc', needs: ['clippy'], run: rustdoc },
  { name: 'cargo-deny', run: () => optional('cargo-deny', ['check', 'bans', 'licenses', 'sources']) },
  { name: 'cargo-machete', run: () => optional('cargo-machete', []) },
  { name: 'typos', run: typos },
  { name: 'audit', needs: ['packages'], run: audit },
  { name: 'knip', needs: ['packages'], run: () => single(runTool('knip/bin/knip.js', ['--no-progress'])) },
  { name: 'publint', needs: BUILT, run: () => single(runTool('publint/src/cli.js', ['--strict'])) },
  {
    name: 'packed',
    wasm: true,
    needs: BUILT_ALL,
    run: () => program('scripts/packed.mjs'),
  },
  {
    name: 'wasm-pack',
    wasm: true,
    needs: ['wasm-build'],
    run: () => program('scripts/wasm-pack.mjs'),
  },
  {
    name: 'release',
    wasm: true,
    needs: ['packed'],
    run: () => program('scripts/release.mjs', '--dry-run'),
  },
]

async function clippy() {
  // In a test build every function of a binding is dead code, so bindings are checked as libraries.
  const strict = ['--quiet', '--', '-D', 'warnings']
  const library = await single(cargo('clippy', '--all-targets', ...strict))
  return library.failed ? library : single(cargo('clippy', '--workspace', ...strict))
}

/** All checks of the kernels under half of the orders of threads, then some of the planted faults: others for each commit. */
function cudaEmulated() {
  const seed = Number(shuffleSeed())
  const both = async () => {
    const sound = await EMULATED.run({ halfSeed: seed })
    if (sound.code !== 0) return sound
    const planted = await PLANTED.run({ share: PLANTED_SHARE, seed })
    return { code: planted.code, output: sound.output + planted.output }
  }
  return elsewhere({ missing: EMULATED.missing, run: both }, (running) => counted(running, countLines))
}

/** Links and other warnings of the crates' docs. */
function rustdoc() {
  return single(run('cargo', ['doc', '--no-deps', '--quiet'], { env: { RUSTDOCFLAGS: '-D warnings' } }))
}

async function typos() {
  const folder = join(root, 'target', `typos-${TYPOS}`)
  const program = join(folder, 'bin/typos')
  if (!existsSync(program)) {
    const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--target', folder, `typos==${TYPOS}`]
    const { code, output } = await run('python3', pip)
    if (code !== 0) return missing(`pip could not install typos: ${output.trim().split('\n').at(-1)}`)
  }
  return single(run(program, ['--format', 'brief']))
}

/** Advisories about the packages that users install, if the registry has any. */
async function audit() {
  const { code, output } = await run('npm', ['audit', '--json', '--omit=dev', '--audit-level=high'])
  if (code === 0) return outcome(1, 0)
  if (/"vulnerabilities"/.test(output)) return outcome(0, 1, 0, output)
  return outcome(0, 0, 1, 'SKIPPED: the registry answers no audits')
}

/** Runs a part of `targets.mjs` where this machine has its tools. */
async function elsewhere(part, outcomeOf) {
  const reason = await part.missing()
  return reason ? missing(reason) : outcomeOf(part.run())
}

async function buildWasmOrSkip() {
  let reason
  const result = await built(async () => {
    reason = await buildWasm()
  })
  return reason === undefined ? result : { ...missing(reason), noWasm: reason }
}

/** Gets a real model or real servers, which rows, tests and an example use if they can be had. */
async function fetchedOrSkipped(fetch) {
  const reason = await fetch()
  return reason ? missing(reason) : outcome(1, 0)
}

export { checkTools }
