#!/usr/bin/env node
/**
 * The executable: chooses the build of the core, then runs the command.
 *
 * Node, Bun and Deno decide by an import condition which build is loaded, and take conditions only at their start. So
 * `--backend wasm` starts the same runtime once more with that condition.
 */

import { execFile, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { backendOf, conditionsOf } from './backend.js'
import { type Backend, type CliIo, type ProbeResult, readStream } from './io.js'
import { runCli } from './program.js'

const PROBE_TIMEOUT_MS = 30_000

/** Set for the process that {@link runOn} starts, so that it never starts another one. */
const RESTARTED = 'FULMAR_RESTARTED'

const args = process.argv.slice(2)
const script = fileURLToPath(import.meta.url)
const wanted = backendOf(args)
// Not from `process.execArgv`: Deno leaves it empty, and `NODE_OPTIONS` may name the condition too.
const loaded: Backend = import.meta.resolve('#backend').endsWith('/wasm-node.js') ? 'wasm' : 'native'
const isRestarted = process.env[RESTARTED] !== undefined
delete process.env[RESTARTED]

// A reader that has left, as `head` does, must not end a run; there is only nothing more to write.
for (const stream of [process.stdout, process.stderr]) stream.on('error', ignoreClosedPipe)

if (wanted === undefined || wanted === loaded) process.exitCode = await runHere()
else if (!isRestarted) process.exitCode = await runOn(wanted)
else {
  process.stderr.write(
    `fulmar: --backend ${wanted} cannot be loaded: conditions given to this runtime, as in NODE_OPTIONS, select ${loaded}\n`,
  )
  process.exitCode = 1
}

function ignoreClosedPipe(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error
}

/** The command in this process. The first Ctrl-C stops it between steps, the second one at once. */
async function runHere(): Promise<number> {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => controller.abort())
  const manifest: unknown = JSON.parse(
    await readFile(join(dirname(script), '..', '..', 'package.json'), 'utf8'),
  )
  const isVersioned = typeof manifest === 'object' && manifest !== null && 'version' in manifest
  const io: CliIo = {
    stdout: process.stdout,
    stderr: process.stderr,
    readStdin: () => readStream(process.stdin),
    readLines,
    probe,
    env: process.env,
    version: isVersioned ? String(manifest.version) : 'unknown',
    signal: controller.signal,
  }
  return await runCli(args, io)
}

/** A terminal shows the prompt and what is typed; a pipe shows neither. */
async function* readLines(prompt: string): AsyncGenerator<string, void, undefined> {
  const { isTTY } = process.stdin
  const lines = createInterface({ input: process.stdin, ...(isTTY && { output: process.stderr, prompt }) })
  if (isTTY) lines.prompt()
  for await (const line of lines) {
    if (line.trim() !== '') yield line
    if (isTTY) lines.prompt()
  }
}

/** The same command in a new process, with this terminal. */
function runOn(backend: Backend): Promise<number> {
  const child = spawn(process.execPath, [...conditionsOf(backend), script, ...args], {
    stdio: 'inherit',
    env: { ...process.env, [RESTARTED]: '1' },
  })
  process.on('SIGINT', () => undefined) // the terminal sends it to the child as well
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code) => resolve(code ?? 1))
  })
}

function probe(backend: Backend): Promise<ProbeResult> {
  const command = [
    ...conditionsOf(backend),
    script,
    'doctor',
    '--json',
    '--only-loaded',
    '--backend',
    backend,
  ]
  const env = { ...process.env, [RESTARTED]: '1' }
  return new Promise((resolve) => {
    execFile(process.execPath, command, { timeout: PROBE_TIMEOUT_MS, env }, (error, stdout, stderr) => {
      resolve({ code: error ? 1 : 0, stdout, stderr })
    })
  })
}
