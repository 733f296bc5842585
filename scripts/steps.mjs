/** Shared code of the commands of package.json. It imports only Node's modules, because it runs before `npm ci`. */

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** A command that must not continue; its message is a sentence for the user. */
export class Refusal extends Error {}

let target

/**
 * The target of everything that is compiled for this machine, and the folder below `target/` that has it. napi passes it to cargo for
 * the addon; the tests take the crates that were compiled then only if cargo gets the same for them.
 */
export function nativeTarget() {
  target ??=
    process.env.CARGO_BUILD_TARGET ||
    spawnSync('rustc', ['--print', 'host-tuple'], { encoding: 'utf8' }).stdout?.trim()
  return target
}

/**
 * Runs a program in the repository and resolves with its exit status and its text.
 * `echo` writes the text as it comes; `env` is laid over the environment.
 */
export function run(command, args, { env = {}, echo = false, cwd = root } = {}) {
  return new Promise((resolve) => {
    const stdio = ['ignore', 'pipe', 'pipe']
    // On Windows npm is a batch file, which only a shell starts.
    const shell = process.platform === 'win32' && command === 'npm'
    const native = command === 'cargo' && nativeTarget() ? { CARGO_BUILD_TARGET: nativeTarget() } : {}
    const child = spawn(command, args, { cwd, env: { ...process.env, ...native, ...env }, stdio, shell })
    let output = ''
    const take = (stream) => (chunk) => {
      output += chunk
      if (echo) stream.write(chunk)
    }
    child.stdout.setEncoding('utf8').on('data', take(process.stdout))
    child.stderr.setEncoding('utf8').on('data', take(process.stderr))
    child.on('error', (error) => resolve({ code: 127, output: `${command} must start: ${error.message}\n` }))
    child.on('close', (code, signal) => resolve({ code: code ?? `signal ${signal}`, output }))
  })
}

/**
 * Makes a folder in which examples find what they read of the repository, so that none writes over the runs of its user. It is gone when
 * this process ends.
 */
export function exampleFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-examples-'))
  for (const name of ['examples', 'models', 'node_modules'])
    if (existsSync(root + name)) symlinkSync(root + name, join(folder, name), 'junction')
  process.once('exit', () => rmSync(folder, { recursive: true }))
  return folder
}

/** Runs a program of `node_modules` with this Node, without npm's start-up. */
export function runTool(file, args, options = {}) {
  return run(process.execPath, [...(options.nodeArgs ?? []), `node_modules/${file}`, ...args], options)
}

/**
 * If true, a test that cannot run fails, and is not skipped: in CI, `.ci/run` has installed the requirements of tests.
 */
export const isAllRequired = Boolean(process.env.CI)

/** The output of a program that must end well. */
export async function must(what, running) {
  const { code, output } = await running
  if (code !== 0)
    throw new Refusal(`${what} failed (exit status ${code}):\n${output.split('\n').slice(-60).join('\n')}`)
  return output
}

/** Says what to install where one of the three tools that we build on is missing. */
export function checkTools() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Refusal(
      `Node must be 20.19 or later: got ${process.versions.node}. Install it from https://nodejs.org`,
    )
  }
  const cargo = spawnSync('cargo', ['--version'], { cwd: root, encoding: 'utf8' })
  if (cargo.status !== 0) {
    throw new Refusal('Rust must be installed, 1.89 or later: see https://rustup.rs')
  }
  const [, rust = '0'] = /^cargo 1\.(\d+)/.exec(cargo.stdout) ?? []
  if (Number(rust) < 89)
    throw new Refusal(`Rust must be 1.89 or later: got ${cargo.stdout.trim()}. Try: rustup update`)
  if (process.platform !== 'win32' && spawnSync('cc', ['--version']).status !== 0) {
    throw new Refusal(
      'a C linker (`cc`) must be installed: on Debian, apt-get install gcc libc6-dev; on macOS, xcode-select --install',
    )
  }
}

/** `npm ci`, unless `node_modules` already came from this lock file. */
export async function installPackages() {
  const stamp = `${root}node_modules/.fulmar-lock`
  const lock = createHash('sha256')
    .update(readFileSync(`${root}package-lock.json`))
    .digest('hex')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return
  // ONNX Runtime would fetch libraries for GPUs on top of its package.
  const env = { ONNXRUNTIME_NODE_INSTALL: 'skip' }
  await must('npm ci', run('npm', ['ci', '--no-audit', '--no-fund'], { env }))
  writeFileSync(stamp, lock)
}

/**
 * The addon of this platform, into `addon/`. It shares what it compiles with the tests; `release` builds what is published.
 */
export async function buildAddon({ release = false } = {}) {
  const args = ['build', '--platform', '--manifest-path', 'bindings/node/Cargo.toml']
  args.push('--target-dir', 'target', '--package-json-path', 'package.json')
  args.push('--output-dir', 'addon', '--js', 'index.cjs', '--dts', 'index.d.cts')
  if (release) args.push('--release')
  await must('the build of the addon', runTool('@napi-rs/cli/dist/cli.js', args))
}

/**
 * The WebAssembly module, into `wasm/`; `release` builds what is published, which is smaller and takes minutes more.
 * Returns why it cannot be built here, or `undefined` once it is built.
 */
export async function buildWasm({ release = false } = {}) {
  const { code, output } = await run('sh', ['scripts/wasm-toolchain.sh'])
  if (code === 3 || code === 127) return output.trim().split('\n').at(-1)
  if (code !== 0) throw new Refusal(`scripts/wasm-toolchain.sh failed (exit status ${code}):\n${output}`)
  const args = ['xtask', 'wasm', ...(release ? ['--release'] : [])]
  await must('the build of the WebAssembly module', run('cargo', args, { env: wasmEnvironment() }))
  return undefined
}

/** The result of the toolchain script: `FULMAR_WASM_RUSTC`, if the active compiler has no WebAssembly target. */
export function wasmEnvironment() {
  const lines = readFileSync(`${root}target/wasm-toolchain/env`, 'utf8').split('\n').filter(Boolean)
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2)))
}

/** `ts/src` to `dist/`. */
export async function compileSources() {
  await must('the TypeScript compiler', runTool('typescript/bin/tsc', ['-p', 'tsconfig.json']))
  // npm does this where a package is installed; in a clone `npx fulmar` runs the file as it is.
  chmodSync(`${root}dist/cli/main.js`, 0o755)
}

/** `examples/*.ts` and `benches/ts` to `build/`; needs `dist/`. */
export async function compileExamples() {
  await must('the TypeScript compiler', runTool('typescript/bin/tsc', ['-p', 'tsconfig.examples.json']))
}

/** Runs `main` as a program: a {@link Refusal} is one message and exit status 1. */
export async function asProgram(main) {
  try {
    process.exitCode = await main()
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    process.stderr.write(`${error.message}\n`)
    process.exitCode = 1
  }
}
