/**
 * `npm run targets [-- aarch64|other-targets|miri] [--all]`: runs tests of the core as programs for ARM, which `qemu-user` emulates,
 * checks that the crates compile for other systems, and runs tests in Miri, an interpreter that finds undefined behaviour.
 * `--all` runs the long forms. The short ones are stages of `npm test`.
 */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { asProgram, isAllRequired, Refusal, run } from './steps.mjs'

const ARM = 'aarch64-unknown-linux-gnu'
const EMULATOR = 'qemu-aarch64'
const LINKER = 'aarch64-linux-gnu-gcc'
/** Folder of Debian's C library for ARM. */
const LIBRARIES = '/usr/aarch64-linux-gnu'

/** Crates whose tests run emulated, parts of the names of these tests, and the crates that `--all` adds; that runs all tests. */
const TESTED = ['kernel', 'model']
const NAMED = ['tests::', 'bits::', 'golden::', 'parity::', 'engine::']
const TESTED_ALL =
  'chat compute core cuda objective replay replay-files replay-memmap replay-store spec store ted template tensor tokenizer transform tree'.split(
    ' ',
  )

/**
 * Optimisation of the emulated tests. Kernels and matrix products keep that of Cargo.toml; what only compiles slowly has none.
 * Options and no profile: a profile of its own would compile the macros once more, which run on this machine.
 */
const EMULATED = [
  'opt-level=0',
  'package.fulmar-objective.opt-level=0',
  ...['fulmar-model', 'fulmar-tokenizer', 'tokenizers', 'regex-automata', 'aho-corasick', 'serde_json'].map(
    (name) => `package.${name}.opt-level=1`,
  ),
].flatMap((option) => ['--config', `profile.dev.${option}`])

/** Systems with code of their own in `fulmar-store`, and the targets that `--all` adds. */
const CHECKED = ['aarch64-apple-darwin', 'x86_64-pc-windows-msvc']
const CHECKED_ALL = [...CHECKED, 'x86_64-apple-darwin', ARM]
const OF_SYSTEMS = ['store']

/**
 * The addon, named with other crates for its features only: it has no tests, and macros that run here are then compiled already.
 */
const SHARED = ['-p', 'fulmar-node']
const packages = (names) => names.flatMap((name) => ['-p', `fulmar-${name}`])

/**
 * The tests that Miri runs: unit tests of crates, and of the kernels, whose products and threads hold most of the unsafe code, those named. It has
 * no vector instructions, so products take their plain loops. Tests that take it minutes are marked `cfg_attr(miri, ignore)`.
 */
const INTERPRETED = [
  ['-p', 'fulmar-core', '-p', 'fulmar-tensor', '--lib'],
  ['-p', 'fulmar-kernel', '--lib', '--', 'small_products', 'bias_and_its_gradient', 'team::'],
]
const INTERPRETED_ALL = [
  ['-p', 'fulmar-core', '-p', 'fulmar-tensor', '--lib', '--', '--include-ignored'],
  ['-p', 'fulmar-kernel', '--lib'],
]

/** The parts: `missing` returns the reason why a part cannot run on this machine, `run` runs it. */
export const AARCH64 = {
  missing: () =>
    missingTarget([ARM]) ??
    missingProgram(EMULATOR, 'qemu-user') ??
    missingProgram(LINKER, 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross'),
  run({ all = false, echo = false } = {}) {
    const env = {
      CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER: LINKER,
      CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER: `${EMULATOR} -L ${LIBRARIES}`,
      ...(all ? {} : { FULMAR_TEST_SHORT: '1' }),
    }
    const crates = packages(all ? [...TESTED, ...TESTED_ALL] : TESTED)
    const chosen = [...crates, ...SHARED, '--tests', ...(all ? [] : ['--', ...NAMED])]
    return run('cargo', ['test', '--no-fail-fast', ...EMULATED, '--target', ARM, ...chosen], { env, echo })
  },
}

export const OTHER_TARGETS = {
  missing: ({ all = false } = {}) => missingTarget(all ? CHECKED_ALL : CHECKED),
  run({ all = false, echo = false } = {}) {
    const targets = (all ? CHECKED_ALL : CHECKED).flatMap((target) => ['--target', target])
    const crates = all ? ['--all-targets'] : [...packages(OF_SYSTEMS), ...SHARED, '--tests', '--examples']
    return run('cargo', ['check', ...targets, ...crates], { echo })
  },
}

export const MIRI = {
  missing() {
    const { status } = spawnSync('cargo', ['+nightly', 'miri', '--version'], { encoding: 'utf8' })
    if (status === 0) return undefined
    return 'Rust lacks Miri: rustup toolchain install nightly --profile minimal --component miri --component rust-src'
  },
  async run({ all = false, echo = false } = {}) {
    const whole = { code: 0, output: '' }
    // Miri has no files and no clock unless they are allowed.
    const options = { env: { MIRIFLAGS: '-Zmiri-disable-isolation' }, echo }
    // libm takes a square root by a line of assembly, which is not interpreted.
    const args = ['+nightly', 'miri', 'test', '--no-fail-fast', '--features', 'libm/force-soft-floats']
    for (const chosen of all ? INTERPRETED_ALL : INTERPRETED) {
      const { code, output } = await run('cargo', [...args, ...chosen], options)
      whole.code ||= code
      whole.output += output
    }
    return whole
  },
}

/** Returns the command to run where Rust has no standard library for one of these targets. */
function missingTarget(targets) {
  const lacking = targets.filter((target) => {
    const args = ['--print', 'target-libdir', '--target', target]
    const { status, stdout } = spawnSync('rustc', args, { encoding: 'utf8' })
    return status !== 0 || !existsSync(stdout.trim())
  })
  return lacking.length === 0 ? undefined : `Rust lacks a target: rustup target add ${lacking.join(' ')}`
}

/** Returns the packages to install where a program is not on the path. */
function missingProgram(name, debian) {
  const folders = (process.env.PATH ?? '').split(delimiter)
  if (folders.some((folder) => existsSync(join(folder, name)))) return undefined
  return `${name} is not installed: on Debian, apt-get install ${debian}`
}

async function main() {
  const parts = { aarch64: AARCH64, 'other-targets': OTHER_TARGETS, miri: MIRI }
  const args = process.argv.slice(2)
  const all = args.includes('--all')
  const names = args.filter((arg) => arg !== '--all')
  const unknown = names.find((name) => !(name in parts))
  if (unknown !== undefined) {
    throw new Refusal(`part must be one of ${Object.keys(parts).join(', ')}: got ${unknown}`)
  }
  for (const name of names.length === 0 ? Object.keys(parts) : names) {
    const reason = parts[name].missing({ all })
    if (reason !== undefined && isAllRequired) throw new Refusal(`${name} must run in CI: ${reason}`)
    if (reason !== undefined) process.stdout.write(`${name}: SKIPPED: ${reason}\n`)
    else if ((await parts[name].run({ all, echo: true })).code !== 0) return 1
  }
  return 0
}

if (process.argv[1] === fileURLToPath(import.meta.url)) asProgram(main)
