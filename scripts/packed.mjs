/**
 * `node scripts/packed.mjs`: packs, installs the packages into an empty folder whose PATH has no compiler, and runs
 * programs there under Node 20, 22 and 24, Bun and Deno: the first program of README, the programs of tests/packed,
 * the command `fulmar`, and what three bundlers make of a program.
 *
 * Runtimes and bundlers are those of tests/packed/package-lock.json. They are installed once, into target/packed:
 * 260 MB to download, 770 MB on disk. Where they cannot be had, their programs count as skipped; in CI they fail.
 */

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { asProgram, isAllRequired, must, Refusal, root, run } from './steps.mjs'

const SOURCES = join(root, 'tests', 'packed')
const TOOLS = join(root, 'target', 'packed')
const TARBALLS = join(root, 'target', 'pack', 'tarballs')

/** A program that takes longer is taken for stuck. */
const PROGRAM_MS_MAX = 180_000
const WASM = '--conditions=fulmar-wasm'
const CLI = 'node_modules/fulmar/dist/cli/main.js'
const { platform, arch } = process

/** The runtimes, each with its file below target/packed/node_modules; `undefined` for this Node. */
const RUNTIMES = [
  { name: `Node ${process.versions.node}`, file: undefined },
  { name: 'Node 20.19', file: `node20-${platform}-${arch}/bin/node` },
  { name: 'Node 22', file: `node22-${platform}-${arch}/bin/node` },
  { name: 'Node 24', file: `node24-${platform}-${arch}/bin/node` },
  {
    name: 'Bun',
    file: `@oven/bun-${platform}-${arch === 'arm64' ? 'aarch64' : arch}/bin/bun`,
    readme: 'readme.ts',
  },
  {
    name: 'Deno',
    file: `@deno/${platform}-${arch}${platform === 'linux' ? '-glibc' : ''}/deno`,
    args: ['run', '--allow-all'],
    readme: 'readme.ts',
  },
]

/** The command of each bundler, with the package external. */
const BUNDLERS = {
  async esbuild({ build }, { input, output }) {
    const options = { bundle: true, format: 'esm', platform: 'node', external: ['fulmar'] }
    await build({ ...options, entryPoints: [input], outfile: output, logLevel: 'silent' })
  },
  async rolldown({ rolldown }, { input, output }) {
    const bundle = await rolldown({ input, platform: 'node', external: [/^fulmar/] })
    await bundle.write({ file: output, format: 'esm' })
    await bundle.close()
  },
  async vite({ build }, { folder, input, output }) {
    const rollupOptions = {
      external: [/^fulmar/],
      output: { entryFileNames: output.slice(folder.length + 1) },
    }
    const options = { ssr: input, outDir: folder, emptyOutDir: false, rollupOptions }
    await build({ root: folder, configFile: false, logLevel: 'silent', build: options })
  },
}

/** Bundlers, each making one file for a browser: without options for a top-level `await`, and without the modules of Node. */
const WEB_BUNDLERS = {
  async esbuild({ build }, { input, output }) {
    const options = { bundle: true, format: 'esm', platform: 'browser', external: ['node:*'] }
    await build({ ...options, target: 'es2020', entryPoints: [input], outfile: output, logLevel: 'silent' })
  },
  async rolldown({ rolldown }, { input, output }) {
    const bundle = await rolldown({ input, platform: 'browser', external: [/^node:/] })
    await bundle.write({ file: output, format: 'esm', codeSplitting: false })
    await bundle.close()
  },
  async vite({ build }, { folder, input, output }) {
    const rollupOptions = { input, output: { entryFileNames: output.slice(folder.length + 1) } }
    const options = {
      outDir: folder,
      emptyOutDir: false,
      rollupOptions,
      target: 'es2020',
      modulePreload: false,
    }
    await build({ root: folder, configFile: false, logLevel: 'silent', build: options })
  },
}

const total = { passed: 0, failed: 0, skipped: 0 }

asProgram(async () => {
  await must('npm run pack', run(process.execPath, ['scripts/pack.mjs'], { echo: true }))
  const missing = await installTools()
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-packed-'))
  try {
    const env = { PATH: pathWithoutCompiler(folder) }
    await install(folder, env)
    await record('no compiler is in PATH', () => noCompiler(folder, env))
    await record('types of a strict consumer', () => typeCheck(folder))
    if (platform !== 'win32')
      await record('node_modules/.bin/fulmar', () =>
        execute('node_modules/.bin/fulmar', ['--help'], folder, env),
      )
    for (const name of Object.keys(BUNDLERS)) {
      if (missing === undefined) await record(`${name} makes a bundle`, () => bundle(name, folder))
      else skip(name, missing, 1)
    }
    for (const name of Object.keys(WEB_BUNDLERS)) {
      if (missing === undefined)
        await record(`${name} makes a bundle for browsers`, () => webBundle(name, folder, env))
      else skip(name, missing, 1)
    }
    if (missing === undefined)
      await record('a bundle with the package says how to leave it out', () => refused(folder, env))
    for (const runtime of RUNTIMES) await runOn(runtime, { missing, folder, env })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  const { passed, failed, skipped } = total
  process.stdout.write(`packed: ${passed} passed, ${failed} failed, ${skipped} skipped\n`)
  return failed === 0 ? 0 : 1
})

/** Runtimes and bundlers, unless they already came from this lock file; returns why they cannot be had. */
async function installTools() {
  const lock = readFileSync(join(SOURCES, 'package-lock.json'))
  const stamp = join(TOOLS, 'node_modules', '.fulmar-lock')
  const digest = createHash('sha256').update(lock).digest('hex')
  const absent = () => RUNTIMES.find((runtime) => isOurs(runtime) && !existsSync(pathOf(runtime)))
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest && !absent()) return undefined
  mkdirSync(TOOLS, { recursive: true })
  for (const file of ['package.json', 'package-lock.json'])
    copyFileSync(join(SOURCES, file), join(TOOLS, file))
  const args = ['ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund']
  const { code, output } = await run('npm', args, { cwd: TOOLS })
  if (code !== 0)
    return `npm ci of tests/packed failed: ${/npm error (?!code).*/.exec(output)?.[0] ?? output}`
  // npm says nothing of a runtime that it could not download, as each is there for one platform alone.
  if (absent()) return `npm ci of tests/packed could not download ${absent().file}`
  writeFileSync(stamp, digest)
  return undefined
}

/** Returns whether tests/packed names a package of a runtime for this platform. */
function isOurs({ file }) {
  const { optionalDependencies } = JSON.parse(readFileSync(join(SOURCES, 'package.json'), 'utf8'))
  return Object.keys(optionalDependencies).some((name) => file?.startsWith(`${name}/`))
}

function pathOf({ file }) {
  return file === undefined ? process.execPath : join(TOOLS, 'node_modules', file)
}

/** A PATH with `node`, `npm` and a shell, and nothing else. */
function pathWithoutCompiler(folder) {
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  symlinkSync(process.execPath, join(bin, 'node'))
  for (const tool of ['npm', 'sh', 'env']) symlinkSync(find(tool), join(bin, tool))
  return bin
}

function find(tool) {
  const folder = process.env.PATH?.split(delimiter).find((candidate) => existsSync(join(candidate, tool)))
  if (!folder) throw new Refusal(`${tool} must be in PATH`)
  return join(folder, tool)
}

/** Installs the tarballs as a user would, and copies the programs into the same folder. */
async function install(folder, env) {
  writeFileSync(join(folder, 'package.json'), '{ "type": "module", "private": true }\n')
  const tarballs = readdirSync(TARBALLS).map((file) => join(TARBALLS, file))
  const args = ['install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', ...tarballs]
  await must('npm install of the tarballs', run(join(folder, 'bin', 'npm'), args, { cwd: folder, env }))
  for (const file of ['core.js', 'policies.js', 'edge.js'])
    copyFileSync(join(SOURCES, file), join(folder, file))
  const program = readmeProgram()
  writeFileSync(join(folder, 'readme.ts'), program)
  writeFileSync(join(folder, 'readme.js'), await transpiled(program))
}

async function noCompiler(folder, env) {
  for (const tool of ['cc', 'gcc', 'clang', 'cargo', 'rustc']) {
    const { code } = await run(join(folder, 'bin', 'sh'), ['-c', `command -v ${tool}`], { cwd: folder, env })
    if (code === 0) throw new Refusal(`${tool} must not be in the PATH of the packed programs`)
  }
}

/** Bundles the program that uses threads and HTTP. */
async function bundle(name, folder) {
  const entry = createRequire(join(TOOLS, 'package.json')).resolve(name)
  const bundler = await import(pathToFileURL(entry).href)
  const output = join(folder, `${name}.js`)
  await BUNDLERS[name](bundler, { folder, input: join(folder, 'core.js'), output })
  if (!readFileSync(output, 'utf8').includes('fulmar/table'))
    throw new Refusal('the bundle must leave the package out')
}

/** Bundles the program of the edge package for a browser, and runs it without the modules of Node. */
async function webBundle(name, folder, env) {
  const entry = createRequire(join(TOOLS, 'package.json')).resolve(name)
  const bundler = await import(pathToFileURL(entry).href)
  const output = join(folder, `${name}-edge.js`)
  await WEB_BUNDLERS[name](bundler, { folder, input: join(folder, 'edge.js'), output })
  const program = `
    globalThis.moduleBytes = require('node:fs').readFileSync('node_modules/fulmar-edge/wasm/fulmar_edge_bg.wasm')
    import('./${name}-edge.js')`
  const text = await execute(process.execPath, ['-e', program], folder, env)
  if (text !== 'ok\n') throw new Refusal(`it must end with ok: got ${text}`)
}

/** A bundle that holds the package cannot find the addon. */
async function refused(folder, env) {
  const { build } = createRequire(join(TOOLS, 'package.json'))('esbuild')
  const input = join(folder, 'policies.js')
  const output = join(folder, 'whole.js')
  await build({
    bundle: true,
    format: 'esm',
    platform: 'node',
    entryPoints: [input],
    outfile: output,
    logLevel: 'silent',
  })
  const result = await run(process.execPath, [output], { cwd: folder, env })
  const remedy = "external: ['fulmar'] in esbuild, [/^fulmar/] in rollup, rolldown and Vite"
  if (result.code === 0 || !result.output.includes(remedy))
    throw new Refusal(`it must end with the remedy: got ${result.output}`)
}

/** Runs every program under one runtime. */
async function runOn(runtime, { missing, folder, env }) {
  const programs = programsOf(runtime)
  const command = pathOf(runtime)
  if (!existsSync(command)) {
    const reason = isOurs(runtime) ? missing : `tests/packed has no package of it for ${platform}-${arch}`
    return skip(runtime.name, reason, programs.length, { isRequired: isOurs(runtime) })
  }
  for (const { what, args, check = () => {}, isBundle = false } of programs) {
    if (isBundle && missing !== undefined) skip(`${runtime.name}: ${what}`, missing, 1)
    else
      await record(`${runtime.name}: ${what}`, async () => {
        check(await execute(command, [...(runtime.args ?? []), ...args], folder, env))
      })
  }
}

function programsOf({ name, readme = 'readme.js' }) {
  const label = name.split(' ', 1)[0]
  return [
    { what: 'the program of README', args: [readme] },
    { what: 'core.js', args: ['core.js', 'native'] },
    { what: 'core.js in WebAssembly', args: [WASM, 'core.js', 'wasm'] },
    { what: 'policies.js', args: ['policies.js'] },
    { what: 'edge.js', args: ['edge.js'] },
    {
      what: 'fulmar doctor',
      args: [CLI, 'doctor', '--json'],
      check: (text) => checkDoctor(text, label, 'native'),
    },
    {
      what: 'fulmar doctor --backend wasm',
      args: [CLI, 'doctor', '--json', '--backend', 'wasm'],
      check: (text) => checkDoctor(text, label, 'wasm'),
    },
    ...Object.keys(BUNDLERS).map((bundler) => ({
      what: `a bundle of ${bundler}`,
      args: [`${bundler}.js`, 'native'],
      isBundle: true,
    })),
  ]
}

/** Counts tests that cannot run: in CI they fail, unless nothing could make them run on this platform. */
function skip(what, reason, numTests, { isRequired = true } = {}) {
  const outcome = isRequired && isAllRequired ? 'failed' : 'skipped'
  total[outcome] += numTests
  process.stdout.write(`${what}: ${outcome.toUpperCase()}: ${reason}\n`)
}

function checkDoctor(text, label, backend) {
  const { runtime, loaded, native, wasm } = JSON.parse(text)
  if (runtime.startsWith(label) && loaded === backend && native.isUsable && wasm.isUsable) return
  throw new Refusal(`doctor must find both builds, and ${backend} loaded by ${label}: got ${text}`)
}

/** Runs a test, and counts it. */
async function record(what, test) {
  const start = performance.now()
  const failure = await test().then(
    () => undefined,
    (error) => (error instanceof Refusal ? error.message : error.stack),
  )
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  total[failure === undefined ? 'passed' : 'failed'] += 1
  process.stdout.write(`${what} (${seconds} s): ${failure === undefined ? 'ok' : `FAILED\n${failure}`}\n`)
}

/** The output of a program that must end well. One that takes too long is ended with all that it started. */
function execute(command, args, cwd, env) {
  return new Promise((resolve, reject) => {
    const isGroup = platform !== 'win32'
    const stdio = ['ignore', 'pipe', 'pipe']
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio, detached: isGroup })
    const timer = setTimeout(
      () => (isGroup ? process.kill(-child.pid, 'SIGKILL') : child.kill()),
      PROGRAM_MS_MAX,
    )
    const texts = ['', '']
    for (const [at, stream] of [child.stdout, child.stderr].entries()) {
      stream.setEncoding('utf8').on('data', (text) => {
        texts[at] += text
      })
    }
    child.on('error', (error) => reject(new Refusal(error.message)))
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      if (code === 0) resolve(texts[0])
      else
        reject(new Refusal(`ended with ${signal ?? `exit status ${code}`}:\n${texts.join('').slice(-4000)}`))
    })
  })
}

/** The first TypeScript program of the README. */
function readmeProgram() {
  const [, program] = /^```ts\n([\s\S]*?)^```$/m.exec(readFileSync(join(root, 'README.md'), 'utf8')) ?? []
  if (!program) throw new Refusal('README.md must hold a program in a fence ```ts')
  return program
}

async function transpiled(program) {
  const { default: ts } = await import(
    pathToFileURL(join(root, 'node_modules/typescript/lib/typescript.js')).href
  )
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
  return ts.transpileModule(program, { compilerOptions }).outputText
}

/** The types, read from the installed package by a strict consumer that checks libraries too. */
async function typeCheck(folder) {
  const program = "import { Rng } from 'fulmar'\nexport const word: number = Rng.fromSeed(1).nextU32()\n"
  writeFileSync(join(folder, 'consumer.ts'), program)
  const options =
    '--noEmit --strict --module nodenext --target es2022 --lib es2023,esnext.disposable --types node'
  const args = [...options.split(' '), '--typeRoots', join(root, 'node_modules/@types'), 'consumer.ts']
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  await must('tsc on a consumer', run(process.execPath, [compiler, ...args], { cwd: folder }))
}
