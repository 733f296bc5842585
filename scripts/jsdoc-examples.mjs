/**
 * `node scripts/jsdoc-examples.mjs [native] [wasm] [FILE...]`: compiles and runs every example of the docs, or of the files named.
 *
 * An example is a fence ```ts after `@example` in a JSDoc of `ts/src`, or any fence ```ts of README.md and docs/*.md.
 * Each becomes a module of its own below build/jsdoc, is type-checked, and is run against the built package on each
 * backend that is asked for (native if none is). A fence ```ts no-run is type-checked only; ```ts native needs the addon.
 */

import { fork } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { pathToFileURL } from 'node:url'
import { asProgram, exampleFolder, Refusal, root, runTool } from './steps.mjs'

const FOLDER = 'build/jsdoc'
const CONDITIONS = { native: [], wasm: ['--conditions=fulmar-wasm'] }
/** An example that takes longer is taken for stuck. */
const EXAMPLE_TIMEOUT_MS = 60_000

asProgram(async () => {
  const args = process.argv.slice(2)
  const asked = args.filter((arg) => arg in CONDITIONS)
  const backends = asked.length > 0 ? asked : ['native']
  const files = args.filter((arg) => !(arg in CONDITIONS))
  const sources = await paths()
  const unknown = files.find((file) => !sources.includes(file))
  if (unknown) throw new Refusal(`arguments must be native, wasm, or files with examples: got ${unknown}`)
  if (!existsSync(`${root}dist/index.js`)) throw new Refusal('dist/ must be built first: npm run build')
  const examples = await findExamples(files.length > 0 ? files : sources)
  if (examples.length === 0 && files.length === 0)
    throw new Refusal('no example was found: the docs must have some')
  const failures = [...(await compile(examples)), ...withoutAssertion(examples)]
  const compiled = examples.filter((example) => !failures.some((failure) => failure.example === example))
  let numPassed = compiled.filter((example) => !example.runs).length
  for (const backend of backends) {
    const ready = compiled.filter(({ runs, isNative }) => runs && (!isNative || backend === 'native'))
    const failed = await runAll(ready, backend)
    numPassed += ready.length - failed.length
    failures.push(...failed)
  }
  for (const { example, line, text, backend } of failures) {
    process.stdout.write(
      `${example.path}:${line}: example failed${backend ? ` (${backend})` : ''}\n${indent(text)}\n`,
    )
  }
  process.stdout.write(
    `docs examples (${backends.join(', ')}): ${numPassed} passed, ${failures.length} failed\n`,
  )
  return failures.length === 0 ? 0 : 1
})

/** Every example of `sources` with the file and the line of its first line of code. */
async function findExamples(sources) {
  const examples = []
  for (const path of sources) {
    const text = await readFile(root + path, 'utf8')
    examples.push(
      ...(path.endsWith('.md') ? fences(text, 0) : jsdocFences(text)).map((fence) => ({ path, ...fence })),
    )
  }
  return examples.map((example, index) => ({
    ...example,
    file: `example-${String(index + 1).padStart(3, '0')}`,
  }))
}

/** README.md, docs/*.md and every source of `ts/src`, in order. */
async function paths() {
  const inside = async (folder, end) => {
    if (!existsSync(root + folder)) return []
    const entries = await readdir(root + folder, { recursive: true })
    return entries
      .filter((path) => path.endsWith(end))
      .map((path) => `${folder}/${path.replaceAll('\\', '/')}`)
  }
  const found = [...(await inside('docs', '.md')), ...(await inside('ts/src', '.ts'))]
  if (existsSync(`${root}README.md`)) found.push('README.md')
  return found.filter((path) => !path.startsWith('docs/api/')).sort()
}

/** The fences of every `@example` of every JSDoc comment, without the stars. */
function jsdocFences(text) {
  const found = []
  for (const comment of text.matchAll(/\/\*\*[\s\S]*?\*\//g)) {
    const firstLine = text.slice(0, comment.index).split('\n').length
    const body = comment[0].split('\n').map((line) => line.replace(/^\s*\* ?/, ''))
    const start = body.findIndex((line) => line.startsWith('@example'))
    if (start >= 0) found.push(...fences(body.slice(start).join('\n'), firstLine - 1 + start))
  }
  return found
}

/** The fences ```ts of a Markdown text whose first line is line `before + 1` of its file. */
function fences(text, before) {
  const found = []
  for (const fence of text.matchAll(/^```ts(.*)\n([\s\S]*?)^```$/gm)) {
    const line = before + text.slice(0, fence.index).split('\n').length + 1
    const [, info, code] = fence
    found.push({ line, runs: !info.includes('no-run'), isNative: info.includes('native'), code })
  }
  return found
}

/** Writes and compiles all examples; resolves with those that the compiler refuses. */
async function compile(examples) {
  await rm(root + FOLDER, { recursive: true, force: true })
  await mkdir(`${root}${FOLDER}/src`, { recursive: true })
  for (const { file, code } of examples)
    await writeFile(`${root}${FOLDER}/src/${file}.ts`, `${code}\nexport {}\n`)
  const compilerOptions = {
    rootDir: 'src',
    outDir: 'out',
    declaration: false,
    noUncheckedIndexedAccess: false,
    noUnusedLocals: false,
    noUnusedParameters: false,
    paths: {},
  }
  const config = { extends: '../../tsconfig.json', compilerOptions, include: ['src'] }
  await writeFile(`${root}${FOLDER}/tsconfig.json`, JSON.stringify(config, undefined, 2))
  const { code, output } = await runTool('typescript/bin/tsc', [
    '-p',
    `${FOLDER}/tsconfig.json`,
    '--pretty',
    'false',
  ])
  const failures = []
  for (const [, file, line, text] of output.matchAll(/(example-\d+)\.ts\((\d+),\d+\): error (.*)/g)) {
    const example = examples.find((candidate) => candidate.file === file)
    const known = failures.find((failure) => failure.example === example)
    if (known) known.text += `\n${text}`
    else failures.push({ example, line: example.line + Number(line) - 1, text })
  }
  if (code !== 0 && failures.length === 0) throw new Refusal(`the TypeScript compiler failed:\n${output}`)
  return failures
}

/** An example of a JSDoc that asserts nothing would pass whatever it shows. */
function withoutAssertion(examples) {
  const idle = examples.filter(({ path, code }) => !path.endsWith('.md') && !/\bassert\b/.test(code))
  return idle.map((example) => ({
    example,
    line: example.line,
    text: 'asserts nothing: import node:assert/strict',
  }))
}

/** Runs the compiled examples on one backend, each in its own module; resolves with those that fail. */
async function runAll(examples, backend) {
  const queue = [...examples]
  const failures = []
  const folder = exampleFolder()
  await Promise.all(
    Array.from({ length: availableParallelism() }, () => work(queue, failures, backend, folder)),
  )
  return failures
}

/** One process that takes examples from the queue. One that dies or hangs is blamed on its example and replaced. */
async function work(queue, failures, backend, folder) {
  let runner
  for (let example = queue.shift(); example; example = queue.shift()) {
    runner ??= new Runner(backend, folder)
    const text = await runner.run(example)
    if (text !== undefined) failures.push({ example, backend, text, line: lineOf(example, text) })
    if (!runner.isAlive) runner = undefined
  }
  runner?.stop()
}

class Runner {
  #output = ''
  #child

  constructor(backend, folder) {
    const execArgv = ['--enable-source-maps', ...CONDITIONS[backend]]
    this.#child = fork(new URL('./jsdoc-runner.mjs', import.meta.url), [], {
      cwd: folder,
      execArgv,
      silent: true,
    })
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.#output += text
      })
    }
  }

  get isAlive() {
    return this.#child.connected
  }

  /** Resolves with what went wrong, or with `undefined`. */
  run(example) {
    this.#output = ''
    return new Promise((resolve) => {
      const end = (text) => {
        clearTimeout(timer)
        this.#child.removeAllListeners()
        resolve(text)
      }
      const timer = setTimeout(() => {
        this.#child.kill('SIGKILL')
        end(`took longer than ${EXAMPLE_TIMEOUT_MS / 1000} s`)
      }, EXAMPLE_TIMEOUT_MS)
      this.#child.once('message', ({ error }) => end(error))
      this.#child.once('close', (code, signal) =>
        end(`ended the process (${signal ?? `exit status ${code}`})\n${this.#output}`),
      )
      this.#child.send(pathToFileURL(`${root}${FOLDER}/out/${example.file}.js`).href)
    })
  }

  stop() {
    this.#child.kill()
  }
}

/** The line of the source file that a stack names, or the first of the example. */
function lineOf(example, stack) {
  const [, line = '1'] = new RegExp(`${example.file}\\.ts:(\\d+)`).exec(stack) ?? []
  return example.line + Number(line) - 1
}

function indent(text) {
  return text.trimEnd().replace(/^/gm, '    ')
}
