/**
 * `npm run cuda [-- emulated|decoders|planted|compiled]`: the kernels of `crates/fulmar-cuda` on an emulated GPU, with planted faults, and
 * compiled by nvcc. See docs/cuda.md. `planted --share 1` plants every fault, `--share 4 --seed 2` every fourth from the third on.
 */

import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { EMULATOR, KERNELS } from './cuda-faults/fault.mjs'
import { FAULTS } from './cuda-faults.mjs'
import { asProgram, isAllRequired, nativeTarget, Refusal, root, run } from './steps.mjs'

const MADE = join(root, 'target/emulated')
const PROGRAM = join(root, `target/${nativeTarget()}/debug/fulmar-device`)
const DRIVER = ['blocks.cpp', 'memory.cpp', 'streams.cpp', 'driver.cpp']
const COMPILER = process.env.CXX ?? 'g++'

/** As kernels are compiled for a processor with AVX2 and FMA: no contraction, and a trap where the address of a vector is not aligned. */
const FLAGS =
  `-std=c++17 -O2 -march=x86-64-v3 -fPIC -pthread -DFULMAR_EMULATED -ffp-contract=off -fno-stack-protector -ftls-model=initial-exec
  -fsanitize=alignment -fsanitize-undefined-trap-on-error -Wall -Wextra -Wno-unknown-pragmas -Wno-class-memaccess`.split(
    /\s+/,
  )

/** Leaves device memory accessible to the host between launches, which is faster: an access of the host is then not found. */
const OPEN = { FULMAR_EMULATED_OPEN: '1' }

/** Orders of threads besides that of their numbers, in two halves that each have a greedy one. */
const ORDERS = [
  ['backward', 'greedy'],
  ['random', 'greedy-back'],
]

/** The addon is named for its features only: with these, the tests have compiled the crates already. */
const BUILD = ['build', '--quiet', '-p', 'fulmar-device', '-p', 'fulmar-node', '--bin', 'fulmar-device']

const UNIT_TESTS = ['test', ...BUILD.slice(1)]

/** The tests of decoders that run on a GPU too, in their short form: not those of threads, 8 bits and bfloat16, whose bits are the CPU's alone. */
const MODEL_TESTS = [
  ...['test', ...BUILD.slice(1, -2), '-p', 'fulmar-model', '--test', 'model', '--'],
  ...['golden::', 'parity::', 'engine::', 'training::'],
  ...['threads', '8_bits', 'bfloat16'].flatMap((name) => ['--skip', name]),
]

/** The tests of memory and launches. */
const CARD_TESTS = ['test', '--quiet', '-p', 'fulmar-cuda', '--features', 'driver', '--lib', '--test', 'card']

/** Programs that run at once. */
const LANES = Math.min(availableParallelism(), 2)

/** Longest run of the checks with a planted fault, which may never end: that is found, too. */
const FAULT_SECONDS_MAX = 600

/** nvcc 13.0 and the reader of machine code, from PyPI. PTX of a later nvcc needs a later driver than 580. */
const PACKAGES = [
  ...['nvidia-cuda-nvcc==13.0.88', 'nvidia-nvvm==13.0.88', 'nvidia-cuda-crt==13.0.88'],
  ...['nvidia-cuda-runtime==13.0.96', 'nvidia-cuda-cccl==13.0.85'],
  ...['nvidia-cuda-cuobjdump==13.2.51', 'nvidia-cuda-nvdisasm==13.2.51'],
]
const TOOLS = join(root, 'target/nvcc-13.0.88')
const BIN = join(TOOLS, 'nvidia/cu13/bin')

/** Machine code that a kernel must have: 16-byte accesses, tensor cores, loads of matrices, copies that run on their own. */
const WIDE = [/\bLDG\.E\.128/]
const TENSOR = [/\bHMMA\.16816\.F32\.BF16/, /\bLDSM\.16\.M88\.4/, /\bLDGSTS\.E\.BYPASS\.128/]
const TENSOR_COLUMNS = [...TENSOR.filter(({ source }) => !source.includes('LDSM')), /\bLDSM\.16\.MT88\.4/]
const ATTENTION = [...TENSOR, ...TENSOR_COLUMNS.slice(-1), /\bMUFU\.EX2/]
const WANTED = {
  ...Object.fromEntries(
    [64, 80, 96, 128, 256].flatMap((width) => [
      [`attention_${width}`, ATTENTION],
      [`attention_segments_${width}`, ATTENTION],
      [`attention_backward_queries_${width}`, ATTENTION],
      [`attention_backward_keys_${width}`, ATTENTION],
    ]),
  ),
  log_prob_and_backward_rows: WIDE,
  log_prob_backward_rows: WIDE,
  rms_norm: WIDE,
  rms_norm_bf16: WIDE,
  embed_f32: WIDE,
  product_f32: [/\bLDS\.128/],
  ...Object.fromEntries(
    [8, 64, 128].flatMap((rows) => [
      [`product_${rows}`, TENSOR],
      [`product_each_${rows}`, TENSOR],
      [`product_each_${rows}_bf16`, TENSOR],
      [`product_swiglu_${rows}`, TENSOR],
    ]),
  ),
  product_d_w: TENSOR_COLUMNS,
  product_dt_x: TENSOR_COLUMNS,
}

/** Exit statuses of `fulmar-device` that are no answer: wrong arguments, no GPU, no program. */
const NOT_RUN = [2, 3, 125, 126, 127]

/** Parts: `missing` returns the reason why a part cannot run on this machine, `run` resolves with its exit status and text. */
export const EMULATED = { missing: missingCompiler, run: emulated }

/** Needs the addon and `dist/`. */
export const DECODERS = { missing: missingCompiler, run: decoders }

export const COMPILED = { missing: missingNvcc, run: compiled }

/** The seed of this part is the number of its first fault. */
export const PLANTED = { missing: missingCompiler, run: planted }

function missingCompiler() {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    return `the emulated GPU is for Linux on x86-64: this is ${process.platform} on ${process.arch}`
  }
  const flags =
    readFileSync('/proc/cpuinfo', 'utf8')
      .match(/^flags\s*:(.*)$/m)?.[1]
      .split(' ') ?? []
  if (!flags.includes('avx2') || !flags.includes('fma')) {
    return 'the emulated GPU is for processors with AVX2 and FMA: this one lacks them'
  }
  const folders = (process.env.PATH ?? '').split(':')
  if (folders.some((folder) => existsSync(join(folder, COMPILER)))) return undefined
  return `${COMPILER} is not installed: on Debian, apt-get install g++`
}

/** Installs nvcc into `target/`; returns the reason where that fails. */
async function missingNvcc() {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    return `the packages of nvcc are for Linux on x86-64: this is ${process.platform} on ${process.arch}`
  }
  if (existsSync(join(BIN, 'cuobjdump'))) return undefined
  const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--target', TOOLS, ...PACKAGES]
  const { code, output } = await run('python3', pip)
  return code === 0 ? undefined : `pip could not install nvcc: ${output.trim().split('\n').at(-1)}`
}

/** Compiles all kernels into `target/`, where no build embeds them, and reads their machine code for Hopper. */
async function compiled() {
  const env = { FULMAR_NVCC: join(BIN, 'nvcc'), PATH: `${BIN}:${process.env.PATH}` }
  const made = await run('cargo', ['xtask', 'kernels', '--check'], { env })
  if (made.code !== 0) return made
  const fatbin = join(root, 'target/kernels/kernels.fatbin')
  const dump = await run('cuobjdump', ['-sass', '-arch', 'sm_90a', fatbin], { env })
  if (dump.code !== 0) return dump
  const faults = faultsOf(dump.output)
  const lines = faults.map((fault) => `FAILED: ${fault}\n`).join('')
  const counts = `${faults.length > 0 ? 0 : 1} passed, ${faults.length} failed\n`
  return { code: faults.length > 0 ? 1 : 0, output: made.output + lines + counts }
}

/** Returns what is wrong with machine code: local memory in any kernel, and what {@link WANTED} names and a kernel lacks. */
function faultsOf(text) {
  const parts = text.split(/^\s*Function : /m).slice(1)
  const code = new Map(parts.map((part) => [part.slice(0, part.indexOf('\n')).trim(), part]))
  const local = [...code]
    .filter(([, part]) => /\b(LDL|STL)\b/.test(part))
    .map(([name]) => `${name} uses local memory`)
  const lacking = Object.entries(WANTED).flatMap(([name, wanted]) =>
    wanted
      .filter((instruction) => !instruction.test(code.get(name) ?? ''))
      .map((instruction) => `${name} has no ${instruction.source.replace(/\\b|\\/g, '')}`),
  )
  return [...local, ...lacking]
}

/**
 * The test of the emulated driver, every kernel under every order, on cards of both capabilities, and the script of devices, which runs
 * all checks in the order of threads' numbers. With `halfSeed` only the half of the other orders that it chooses.
 */
async function emulated({ halfSeed } = {}) {
  const library = await buildLibrary(MADE)
  await mustRun('cargo', BUILD)
  const check = (env, ...only) =>
    run(PROGRAM, ['check', ...only], { env: { ...env, LD_LIBRARY_PATH: library } })
  const runs = [
    async () => run(await buildTest(MADE), []),
    // What launches kernels of other files, as operations and decoders do, has nothing that an order of threads changes.
    ...[
      ...(halfSeed === undefined ? ORDERS.flat() : ORDERS[halfSeed % 2]).map((order) => ({
        FULMAR_EMULATED_ORDER: order,
      })),
      { FULMAR_EMULATED_CAPABILITY: '80' },
    ].flatMap((option) => kernelFiles().map((name) => () => check({ ...OPEN, ...option }, '--only', name))),
    ...['training', 'engine', 'graphs', 'pages'].map(
      (name) => () => check({ ...OPEN, FULMAR_EMULATED_MEMORY_MIB: '4' }, '--only', name),
    ),
    // Finds accesses of the host to device memory, which are the same for every kernel.
    () => check({}, '--only', 'operations'),
    () => check({}, '--only', 'decoder'),
    onDevice,
    () => run('cargo', UNIT_TESTS),
    () =>
      run('cargo', MODEL_TESTS, {
        env: { ...OPEN, FULMAR_TEST_DEVICE: 'cuda:0', FULMAR_TEST_SHORT: '1', LD_LIBRARY_PATH: library },
      }),
    () => run('cargo', CARD_TESTS, { env: { FULMAR_GPU_REQUIRED: '1', LD_LIBRARY_PATH: library } }),
  ]
  const results = await inLanes(runs)
  const failed = results.find(({ code }) => code !== 0)
  return { code: failed?.code ?? 0, output: results.map(({ output }) => output).join('') }
}

/** The tests of `on-device.sh`, which run the program. */
const onDevice = () => runTests('tests/device', {})

/** The package on the emulated GPU: the tests of decoders there. */
async function decoders() {
  const library = await buildLibrary(MADE)
  return await runTests('tests/gpu', { ...OPEN, LD_LIBRARY_PATH: library })
}

/** Runs the files of a folder by Node's own runner of tests. */
async function runTests(folder, env) {
  const files = readdirSync(join(root, folder)).map((file) => `${folder}/${file}`)
  const { code, output } = await run(process.execPath, ['--test', '--test-reporter=tap', ...files], { env })
  const count = (name) => new RegExp(`^# ${name} (\\d+)$`, 'm').exec(output)?.[1] ?? 0
  const counts = `${count('pass')} passed, ${count('fail')} failed, ${count('skipped')} skipped\n`
  return { code, output: code === 0 ? counts : output + counts }
}

/** One fault after the other: the checks must fail under one of the orders at least. `onFault` gets a line for each that was run. */
async function planted({ share = 1, seed = 0, onFault = () => {} } = {}) {
  await buildLibrary(MADE)
  await mustRun('cargo', BUILD)
  const chosen = FAULTS.filter((_, index) => index % share === seed % share)
  const results = await inLanes(
    chosen.map((fault) => async () => {
      const from = performance.now()
      const found = await isFound(fault)
      const seconds = ((performance.now() - from) / 1000).toFixed(1)
      onFault(`${FAULTS.indexOf(fault)} ${found ? 'found' : 'MISSED'} in ${seconds} s: ${fault.name}\n`)
      return found
    }),
  )
  const missed = chosen.filter((_, index) => !results[index])
  const lines = missed.map(({ name, file }) => `FAILED: no check finds the fault in ${file}: ${name}\n`)
  const output = `${lines.join('')}${chosen.length - missed.length} passed, ${missed.length} failed\n`
  return { code: missed.length > 0 ? 1 : 0, output }
}

async function isFound({ name, folder: of, file, from, to, check }) {
  const text = readFileSync(join(root, of, file), 'utf8')
  if (text.split(from).length !== 2) throw new Refusal(`the fault "${name}" must change one place of ${file}`)
  const folder = join(MADE, `planted-${hash(name)}`)
  mkdirSync(folder, { recursive: true })
  // Of a header, the file of the check alone gets the fault: the others take no part in it.
  const planted = { file, text: text.replace(from, () => to), source: `${check}.cu` }
  return of === KERNELS ? isFoundByChecks(name, folder, planted, check) : isFoundByTest(folder, planted)
}

async function isFoundByTest(folder, planted) {
  const { code } = await run('timeout', [String(FAULT_SECONDS_MAX), await buildTest(folder, planted)])
  return code !== 0
}

async function isFoundByChecks(name, folder, planted, only) {
  const library = await buildLibrary(folder, planted)
  for (const order of ['forward', 'greedy', 'greedy-back', 'backward', 'random']) {
    const env = { FULMAR_EMULATED_ORDER: order, FULMAR_EMULATED_OPEN: '1', LD_LIBRARY_PATH: library }
    const args = [String(FAULT_SECONDS_MAX), PROGRAM, 'check', '--only', only]
    const { code, output } = await run('timeout', args, { env })
    if (NOT_RUN.includes(code))
      throw new Refusal(`fulmar-device must run with the fault "${name}":\n${output}`)
    if (code !== 0) return true
  }
  return false
}

/** Returns the names of the files of kernels, each of which has a check of its name. */
function kernelFiles() {
  const files = readdirSync(join(root, KERNELS)).filter((file) => file.endsWith('.cu'))
  return files.map((file) => basename(file, '.cu'))
}

/** Builds `libcuda.so` into `folder` and returns that; `planted` takes the place of a file of the kernels. */
async function buildLibrary(folder, planted) {
  const sources = [
    ...DRIVER.map((file) => join(EMULATOR, file)),
    ...kernelFiles().map((name) => join(KERNELS, `${name}.cu`)),
  ]
  const objects = await inLanes(sources.map((source) => () => compile(source, planted)))
  await mustRun(COMPILER, ['-shared', '-pthread', '-o', join(folder, 'libcuda.so'), ...objects])
  return folder
}

/** Builds the test of the emulated driver into `folder` and returns its path. */
async function buildTest(folder, planted) {
  const names = [...DRIVER, 'faults.cu', 'tiles.cu', 'tiles_test.cpp', 'test.cpp']
  const objects = await inLanes(names.map((name) => () => compile(join(EMULATOR, name), planted)))
  const program = join(folder, 'test')
  await mustRun(COMPILER, ['-pthread', '-o', program, ...objects])
  return program
}

/** Compiles one file, unless its object is there; returns the object's path. */
async function compile(source, planted) {
  mkdirSync(MADE, { recursive: true })
  const isPlanted = basename(source) === planted?.file || basename(source) === planted?.source
  const text = readFileSync(join(root, source), 'utf8')
  const key = hash(COMPILER, ...FLAGS, text, headers(), isPlanted ? planted.text : '')
  const object = join(MADE, `${basename(source)}-${key}.o`)
  if (existsSync(object)) return object
  // A fault may leave something unused.
  const flags = isPlanted ? [...FLAGS, '-w'] : FLAGS
  const from = isPlanted ? plantedSource(source, key, planted) : source
  await mustRun(COMPILER, [...flags, '-c', '-o', object, '-x', 'c++', from])
  return object
}

/** Copies the kernels and the emulator with the planted file in its place; returns the path of the copy of `source`. */
function plantedSource(source, key, planted) {
  const copy = join(MADE, `source-${key}`)
  for (const folder of [KERNELS, EMULATOR]) {
    cpSync(join(root, folder), join(copy, basename(folder)), { recursive: true })
    const file = join(copy, basename(folder), planted.file)
    if (existsSync(file)) writeFileSync(file, planted.text)
  }
  return join(copy, basename(dirname(source)), basename(source))
}

function headers() {
  const named = (folder, end) =>
    readdirSync(join(root, folder))
      .filter((file) => file.endsWith(end))
      .sort()
      .map((file) => readFileSync(join(root, folder, file), 'utf8'))
  return [...named(KERNELS, '.cuh'), ...named(EMULATOR, '.h')].join('')
}

function hash(...texts) {
  const state = createHash('sha256')
  for (const text of texts) state.update(text).update('\0')
  return state.digest('hex').slice(0, 16)
}

async function mustRun(command, args) {
  const { code, output } = await run(command, args)
  if (code !== 0) throw new Refusal(`${command} failed (exit status ${code}):\n${output}`)
  if (output !== '' && command === COMPILER) throw new Refusal(`${command} must not warn:\n${output}`)
}

/** Runs functions, {@link LANES} at a time; returns their results in order. */
async function inLanes(functions) {
  const results = []
  let next = 0
  const lane = async () => {
    for (let index = next++; index < functions.length; index = next++)
      results[index] = await functions[index]()
  }
  await Promise.all(Array.from({ length: LANES }, lane))
  return results
}

async function main() {
  const options = { share: { type: 'string', default: '1' }, seed: { type: 'string', default: '0' } }
  const { values, positionals } = parseArgs({ options, allowPositionals: true })
  const parts = { emulated: EMULATED, decoders: DECODERS, planted: PLANTED, compiled: COMPILED }
  const unknown = positionals.find((name) => !(name in parts))
  if (unknown !== undefined)
    throw new Refusal(`part must be one of ${Object.keys(parts).join(', ')}: got ${unknown}`)
  for (const name of positionals.length === 0 ? Object.keys(parts) : positionals) {
    const reason = await parts[name].missing()
    if (reason !== undefined && isAllRequired) throw new Refusal(`${name} must run in CI: ${reason}`)
    if (reason !== undefined) {
      process.stdout.write(`${name}: SKIPPED: ${reason}\n`)
      continue
    }
    const onFault = (line) => process.stdout.write(line)
    const chosen = { share: Number(values.share), seed: Number(values.seed), onFault }
    const { code, output } = await parts[name].run(chosen)
    process.stdout.write(output)
    if (code !== 0) return 1
  }
  return 0
}

if (process.argv[1] === fileURLToPath(import.meta.url)) asProgram(main)
