#!/usr/bin/env node
/**
 * The executable: chooses the build of the core, then runs the command.
 *
 * Node decides by an import condition which build is loaded, and takes conditions only at its start. So
 * `--backend wasm` starts Node once more with that condition.
 */

import { execFile, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { backendOf, conditionsOf } from './backend.js'
import { type Backend, type CliIo, type ProbeResult, readStream } from './io.js'
import { runCli } from './program.js'

const PROBE_TIMEOUT_MS = 30_000

const args = process.argv.slice(2)
const script = fileURLToPath(import.meta.url)
const wanted = backendOf(args)
const loaded: Backend = process.execArgv.some((flag) => flag.includes('fulmar-wasm')) ? 'wasm' : 'native'

process.exitCode = wanted === undefined || wanted === loaded ? await runHere() : await runOn(wanted)

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
    probe,
    version: isVersioned ? String(manifest.version) : 'unknown',
    signal: controller.signal,
  }
  return await runCli(args, io)
}

/** The same command in a new process, with this terminal. */
function runOn(backend: Backend): Promise<number> {
  const child = spawn(process.execPath, [...conditionsOf(backend), script, ...args], { stdio: 'inherit' })
  process.on('SIGINT', () => undefined) // the terminal sends it to the child as well
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code) => resolve(code ?? 1))
  })
}

function probe(backend: Backend): Promise<ProbeResult> {
  const command = [...conditionsOf(backend), script, 'doctor', '--json', '--only-loaded']
  return new Promise((resolve) => {
    execFile(process.execPath, command, { timeout: PROBE_TIMEOUT_MS }, (error, stdout, stderr) => {
      resolve({ code: error ? 1 : 0, stdout, stderr })
    })
  })
}
