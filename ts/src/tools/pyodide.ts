/** Processes of Node in which Python runs as WebAssembly (Pyodide). */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { FulmarError, messageOf } from '../core/index.js'
import { BLOCK_PROGRAM } from './interpreter-program.js'
import { PYODIDE_PROGRAM } from './pyodide-program.js'

/** Path of the home inside. */
const PYODIDE_HOME = '/sandbox'

/** Heap of JavaScript in MiB; the memory of Python is limited apart. */
const HEAP_MIB = 512

/** Data that a process may have, in addition to the memory of Python, where the system can limit it. */
const MORE_BYTES = 1_073_741_824

/** Starts a process that speaks the protocol of interpreters. @throws {FulmarError} `UNAVAILABLE` without Pyodide. */
export function startInPyodide({ memoryBytes }: { readonly memoryBytes: number }): ChildProcess {
  const folder = `${pyodideFolder()}/`
  const flags = [
    permissionFlag(process.allowedNodeEnvironmentFlags),
    `--allow-fs-read=${folder}*`,
    '--no-warnings',
    `--max-old-space-size=${HEAP_MIB}`,
    '--disallow-code-generation-from-strings',
    '--input-type=module',
  ]
  const node = [...flags, '--eval', PYODIDE_PROGRAM, '--', folder, PYODIDE_HOME, BLOCK_PROGRAM]
  const prlimit = '/usr/bin/prlimit'
  const bounds = [`--data=${memoryBytes + MORE_BYTES}`, '--core=0', '--nofile=64']
  const isLimited = process.platform === 'linux' && existsSync(prlimit)
  const [command, args] = isLimited
    ? [prlimit, [...bounds, '--', process.execPath, ...node]]
    : [process.execPath, node]
  return spawn(command, args, {
    stdio: 'pipe',
    env: {},
    cwd: folder,
    detached: process.platform !== 'win32',
  })
}

/** Name of the flag for Node's permission model in this version of Node. */
export function permissionFlag(known: Pick<ReadonlySet<string>, 'has'>): string {
  return known.has('--permission') ? '--permission' : '--experimental-permission'
}

/** Returns the folder of the package `pyodide`. @throws {FulmarError} `UNAVAILABLE` if it is not installed. */
export function pyodideFolder(): string {
  try {
    return realpathSync(dirname(createRequire(import.meta.url).resolve('pyodide/package.json')))
  } catch (cause) {
    const detail = 'pyodide must be installed: it could not be found (npm install pyodide)'
    throw new FulmarError('UNAVAILABLE', detail, { cause })
  }
}

/** Explains why Pyodide does not start. */
export function whyNoPyodide(error: unknown): string {
  const lines = messageOf(error).trim().split('\n')
  return lines.find((line) => /error/i.test(line)) ?? lines[0] ?? 'it gave no answer'
}
