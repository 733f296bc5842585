/**
 * `npm run mutants -- ROOM [--share N] [--seed S]`: changes the code of a room in small ways and lists the changes
 * that its tests do not notice.
 *
 * ROOM is a crate (`fulmar-store`) or a folder of `ts/src` (`train`). `--share 10` tries every tenth mutant, from the
 * one that the seed names. Works on copies in `target/mutants`, where the tools are installed as well. See docs/mutants.md.
 */

import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { asProgram, checkTools, installPackages, must, Refusal, root, run } from './steps.mjs'

const CARGO_MUTANTS = '27.1.0'
/** The last release that runs on Node 20. */
const STRYKER = '9.6.1'
const HOME = join(root, 'target/mutants')
/** Timeout of a mutant, in milliseconds on top of the time that its tests take. */
const EXTRA_MS = 10_000

const OPTIONS = { share: { type: 'string', default: '1' }, seed: { type: 'string', default: '0' } }

asProgram(async () => {
  const { room, isCrate, share, seed } = readCommand()
  checkTools()
  report(room, await (isCrate ? mutateCrate : mutateFolder)(room, share, seed))
  return 0
})

function readCommand() {
  let command
  try {
    command = parseArgs({ options: OPTIONS, allowPositionals: true })
  } catch (error) {
    throw new Refusal(error.message)
  }
  const [room, ...others] = command.positionals
  if (room === undefined || others.length > 0)
    throw new Refusal('name one room: a crate such as fulmar-store, or a folder of ts/src such as train')
  const isCrate = existsSync(join(root, 'crates', room, 'Cargo.toml'))
  if (!isCrate && !existsSync(join(root, 'ts/src', room)))
    throw new Refusal(`ROOM must be a crate or a folder of ts/src, got ${room}`)
  const [share, seed] = [Number(command.values.share), Number(command.values.seed)]
  if (!(Number.isInteger(share) && share >= 1))
    throw new Refusal(`--share must be an integer of at least 1, got ${command.values.share}`)
  if (!(Number.isInteger(seed) && seed >= 0))
    throw new Refusal(`--seed must be an integer of at least 0, got ${command.values.seed}`)
  return { room, isCrate, share, seed }
}

/** Runs cargo-mutants on a copy of the tree that stays, so that the next run compiles only what changed. */
async function mutateCrate(crate, share, seed) {
  const program = join(HOME, 'bin/cargo-mutants')
  if (!existsSync(program)) {
    process.stdout.write('installing cargo-mutants (minutes, once) ...\n')
    const args = ['install', 'cargo-mutants', '--locked', '--version', CARGO_MUTANTS, '--root', HOME]
    await must('cargo install', run('cargo', args))
  }
  const tree = join(HOME, 'tree')
  await copyTree(tree)
  const args = ['mutants', '--in-place', '--dir', tree, '--output', HOME, '--package', crate]
  const all = await must('cargo-mutants', run(program, [...args, '--list']))
  args.push(
    '--shard',
    `${seed % share}/${share}`,
    '--sharding',
    'round-robin',
    '--no-times',
    '--colors',
    'never',
  )
  // Examples in docs show how to call a function; a mutant that only they notice wants a test.
  args.push('--', '--tests')
  const env = { CARGO_TARGET_DIR: join(HOME, 'cargo'), CARGO_PROFILE_DEV_DEBUG: '0' }
  const { code, output } = await run(program, args, { env, echo: true })
  // 2: mutants survived; 3: tests ran out of time.
  if (![0, 2, 3].includes(code)) throw new Refusal(`cargo-mutants failed (exit status ${code}):\n${output}`)
  return { numAll: all.trimEnd().split('\n').length, mutants: readCargoMutants() }
}

function readCargoMutants() {
  const { outcomes } = JSON.parse(readFileSync(join(HOME, 'mutants.out/outcomes.json'), 'utf8'))
  const status = {
    CaughtMutant: 'caught',
    MissedMutant: 'survived',
    Timeout: 'timed out',
    Unviable: 'not compiled',
  }
  return outcomes
    .filter(({ scenario }) => scenario !== 'Baseline')
    .map(({ scenario, summary }) => ({ status: status[summary] ?? summary, text: scenario.Mutant.name }))
}

/** Brings the files that git tracks or would track to `to`, and removes there what is no longer here. */
async function copyTree(to) {
  const listing = ['ls-files', '-z', '--cached', '--others', '--exclude-standard']
  const files = (await must('git ls-files', run('git', listing))).split('\0').filter(Boolean)
  const list = join(HOME, 'files.json')
  const before = existsSync(list) ? JSON.parse(readFileSync(list, 'utf8')) : []
  const now = files.filter((file) => existsSync(join(root, file)))
  for (const file of before.filter((name) => !now.includes(name))) rmSync(join(to, file), { force: true })
  for (const file of now) {
    const [source, target] = [join(root, file), join(to, file)]
    // An equal file keeps its time, so cargo does not compile it anew.
    if (existsSync(target) && readFileSync(source).equals(readFileSync(target))) continue
    mkdirSync(dirname(target), { recursive: true })
    copyFileSync(source, target)
  }
  writeFileSync(list, JSON.stringify(now))
}

/** Runs StrykerJS with the tests of one folder on the native backend. It copies the tree by itself. */
async function mutateFolder(room, share, seed) {
  await installPackages()
  const home = join(HOME, 'stryker')
  const program = join(home, 'node_modules/@stryker-mutator/core/bin/stryker.js')
  if (!existsSync(program)) {
    mkdirSync(home, { recursive: true })
    writeFileSync(join(home, 'package.json'), '{ "private": true }\n')
    const tools = ['core', 'vitest-runner'].map((name) => `@stryker-mutator/${name}@${STRYKER}`)
    // Vitest is the one of this repository: two of them would not know each other's tests.
    const args = ['install', '--prefix', home, '--legacy-peer-deps', '--no-audit', '--no-fund', ...tools]
    await must('npm install', run('npm', args))
  }
  const config = join(home, 'stryker.json')
  writeFileSync(config, JSON.stringify(strykerOptions(room, home), null, 2))
  const env = { FULMAR_MUTANTS: JSON.stringify({ room, share, seed }) }
  const args = [program, 'run', relative(root, config)]
  const { code, output } = await run(process.execPath, args, { env, echo: true })
  if (code !== 0) throw new Refusal(`StrykerJS failed (exit status ${code}):\n${output}`)
  const mutants = readStryker(join(home, 'report.json'))
  return { numAll: mutants.length, mutants: mutants.filter(({ status }) => status !== 'left out') }
}

function strykerOptions(room, home) {
  const plugin = join(root, 'scripts/mutants-stryker.mjs')
  return {
    testRunner: 'vitest',
    plugins: ['@stryker-mutator/vitest-runner', plugin],
    checkers: ['sample'],
    concurrency: 1,
    mutate: [`ts/src/${room}/**/*.ts`, '!**/*.d.ts'],
    // Most are words of messages, which may change.
    mutator: { excludedMutations: ['StringLiteral'] },
    vitest: { configFile: 'scripts/mutants-stryker.mjs', related: false },
    timeoutMS: EXTRA_MS,
    ignorePatterns: ['/target'],
    tempDirName: relative(root, join(home, 'sandbox')),
    reporters: ['json', 'dots'],
    jsonReporter: { fileName: join(home, 'report.json') },
    allowConsoleColors: false,
  }
}

function readStryker(path) {
  const { files } = JSON.parse(readFileSync(path, 'utf8'))
  const status = { Killed: 'caught', Survived: 'survived', NoCoverage: 'not reached', Timeout: 'timed out' }
  return Object.entries(files).flatMap(([file, { source, mutants }]) =>
    mutants
      .filter((mutant) => mutant.status !== 'Ignored')
      .map((mutant) => ({
        status:
          mutant.statusReason === 'not in the sample'
            ? 'left out'
            : (status[mutant.status] ?? 'not compiled'),
        text: `${file}:${mutant.location.start.line}:${mutant.location.start.column}: ${describe(source, mutant)}`,
      })),
  )
}

/** The code of a mutant and what took its place, in one line. */
function describe(source, { location: { start, end }, replacement }) {
  const lines = source.split('\n').slice(start.line - 1, end.line)
  lines.push(lines.pop().slice(0, end.column - 1))
  lines[0] = lines[0].slice(start.column - 1)
  const brief = (text) => (text.length > 100 ? `${text.slice(0, 100)}...` : text).replaceAll(/\s+/g, ' ')
  return `replace ${brief(lines.join('\n'))} with ${brief(replacement)}`
}

function report(room, { numAll, mutants }) {
  const of = (status) => mutants.filter((mutant) => mutant.status === status)
  for (const status of ['survived', 'not reached'])
    for (const { text } of of(status)) process.stdout.write(`${status}: ${text}\n`)
  const counts = ['caught', 'timed out', 'not compiled', 'not reached', 'survived'].map(
    (status) => `${of(status).length} ${status}`,
  )
  process.stdout.write(`${room}: ${mutants.length} of ${numAll} mutants tried, ${counts.join(', ')}\n`)
}
