/**
 * Programs in namespaces of their own, by bubblewrap (`bwrap`), which needs no privileges.
 *
 * ```text
 * bwrap: new user, mount, pid, network, ipc, uts and cgroup namespaces; /usr read-only; a tmpfs for the home
 *   sh: unpacks the home from descriptor 3
 *     prlimit: the program, with limits, and without descriptors 3 and 4
 *   sh: packs the home into descriptor 4
 * ```
 *
 * The home travels as an archive that the host never unpacks, so no link or name in it can reach a host's file. A
 * program can forge nothing but its own output, exit code and home. The pid namespace ends with its first process, which
 * is of bubblewrap and stays in bubblewrap's process group: one kill of the group ends both at once, at any moment, so
 * nothing survives a run. For that the program gets a session of its own by `setsid` inside, and not by bubblewrap's
 * `--new-session`, which takes the first process out of the group before it asks for a signal at its parent's death.
 * Node only, Linux only.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { lstatSync, readFileSync, readlinkSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { FulmarError, messageOf } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'
import type { SandboxLimits } from './sandbox-limits.js'
import { seccompFilter } from './seccomp.js'

/** Path of the home inside. */
const SANDBOX_HOME = '/sandbox'

/** User and group of programs where the host's process is root: limits on processes do not bind root. */
const NOBODY = 65_534

/** Refuses calls that namespaces do not keep apart. */
const FILTER = seccompFilter()

/** One program to run. */
export interface Program {
  /** Program and arguments, looked up in `/usr/bin` inside. */
  readonly command: readonly string[]
  readonly stdin: Uint8Array
  /** The home before, as an archive; empty for an empty home. */
  readonly home: Uint8Array
  readonly limits: Required<SandboxLimits>
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
  /** Path or name of bubblewrap. */
  readonly bwrap: string
}

/** End of a program. */
export interface ProgramEnd {
  /** `exited`, or the limit that ended it. */
  readonly status: 'exited' | 'timeout' | 'output'
  /** Exit code, 128 plus the number of a signal; `null` if a limit ended it. */
  readonly exitCode: number | null
  readonly stdout: Buffer
  readonly stderr: Buffer
  /** The home after; `null` if the program was ended before it could be packed. */
  readonly home: Buffer | null
}

/**
 * Closes what bubblewrap inherited and passed on, unpacks the home, runs the program and packs the home again. The
 * program gets neither descriptor 3 nor 4.
 */
const UNPACK_RUN_PACK = [
  // biome-ignore-start lint/suspicious/noTemplateCurlyInString: variables of the shell
  'for fd in /proc/self/fd/*; do fd="${fd##*/}"; if [ "$fd" -gt 4 ]; then eval "exec $fd>&-"; fi; done',
  'tar -C "$HOME" -xf - <&3 2>/dev/null',
  'exec 3<&-',
  'prlimit --cpu="$1" --as="$2" --fsize="$3" --nproc="$4" --nofile="$5" --core=0 -- "${@:6}" 4>&-',
  // biome-ignore-end lint/suspicious/noTemplateCurlyInString: variables of the shell
  'code=$?',
  'tar -C "$HOME" -cf - . >&4 2>/dev/null',
  'exit $code',
].join('\n')

/**
 * Runs a program to its end, or to one of its limits.
 * @throws {FulmarError} `UNAVAILABLE` if bubblewrap cannot be started; `ABORTED` if the signal fires.
 */
export function runInBubblewrap(program: Program): Promise<ProgramEnd> {
  const { bwrap, limits, command } = program
  const { cpuSeconds, memoryBytes, fileBytes, numProcesses, numFiles } = limits
  const bounds = [cpuSeconds, memoryBytes, fileBytes, numProcesses, numFiles]
  const child = spawned(bwrap, [...namespaces(limits, 5), 'setsid', ...wrapped(command, bounds)], 6)
  return new ProgramRun(child, program).end
}

/** A program that runs until it is killed, by {@link killGroup}. Its home is empty, and forgotten at its end. */
export interface LastingProgram extends Pick<Program, 'command' | 'bwrap'> {
  /** Bytes of the home. */
  readonly homeBytes: number
  /** Absolute paths that the program may read, in addition to `/usr`. @default none */
  readonly readOnly?: readonly string[]
  /** Environment variables. @default none */
  readonly env?: Readonly<Record<string, string>>
}

/** Starts a program, whose standard input, output and error are pipes. It sets its own limits. */
export function startInBubblewrap(program: LastingProgram): ChildProcess {
  const { command, bwrap, homeBytes, readOnly = [], env = {} } = program
  const more = [
    ...readOnly.flatMap((path) => ['--ro-bind', path, path]),
    ...Object.entries(env).flatMap(([name, value]) => ['--setenv', name, value]),
  ]
  const child = spawned(bwrap, [...namespaces({ homeBytes }, 3, more), 'setsid', ...command], 4)
  const filterIn: Readable | Writable | null | undefined = child.stdio[3]
  filterIn?.on('error', () => {})
  if (filterIn && 'end' in filterIn) filterIn.end(FILTER)
  return child
}

/** Kills a process and, by its namespace, everything inside. */
export function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The group has ended.
  }
}

/** Starts bubblewrap in a process group of its own, with pipes for so many descriptors. */
function spawned(bwrap: string, args: readonly string[], numPipes: number): ChildProcess {
  const isRoot = process.getuid?.() === 0
  return spawn(bwrap, args, {
    stdio: Array.from({ length: numPipes }, () => 'pipe' as const),
    env: { PATH: '/usr/bin:/bin' },
    cwd: '/',
    detached: true,
    ...(isRoot && { uid: NOBODY, gid: NOBODY }),
  })
}

/** One run: collects output up to its limits and kills the process group at the deadline. */
class ProgramRun {
  readonly end: Promise<ProgramEnd>
  readonly #child: ChildProcess
  readonly #out = { stdout: [] as Buffer[], stderr: [] as Buffer[], home: [] as Buffer[] }
  #numBytes = 0
  #homeBytes = 0
  #limit: 'timeout' | 'output' | undefined

  constructor(child: ChildProcess, { stdin, home, limits, clock, signal }: Program) {
    this.#child = child
    const stopTimer = clock.startTimer(limits.timeoutMs, () => this.#kill('timeout'))
    const onAbort = () => this.#kill('timeout')
    signal?.addEventListener('abort', onAbort, { once: true })
    const stdio: readonly (Readable | Writable | null | undefined)[] = child.stdio
    const [input, stdout, stderr, homeIn, homeOut, filterIn] = stdio
    for (const stream of stdio) stream?.on('error', () => {}) // a program may close what it does not read
    if (input && 'end' in input) input.end(stdin)
    if (homeIn && 'end' in homeIn) homeIn.end(home)
    if (filterIn && 'end' in filterIn) filterIn.end(FILTER)
    const max = limits.outputBytes
    collect(stdout, (bytes) => this.#keep(this.#out.stdout, bytes, max))
    collect(stderr, (bytes) => this.#keep(this.#out.stderr, bytes, max))
    // Headers of the archive take up to a block and a half for each file.
    collect(homeOut, (bytes) => this.#keepHome(bytes, 2 * limits.homeBytes + 1_048_576))
    this.end = new Promise<ProgramEnd>((resolve, reject) => {
      child.on('error', (cause) => {
        const detail = `bubblewrap must start: got ${messageOf(cause)}`
        reject(new FulmarError('UNAVAILABLE', detail, { cause }))
      })
      child.on('exit', () => {
        if (this.#limit !== undefined) this.#closeOnceQuiet(stdio)
      })
      child.on('close', (code, killedBy) => {
        this.#kill(undefined)
        if (signal?.aborted) reject(new FulmarError('ABORTED', 'signal must not fire during the run: it did'))
        else resolve(this.#ended(code, killedBy))
      })
    }).finally(() => {
      stopTimer()
      signal?.removeEventListener('abort', onAbort)
    })
    if (signal?.aborted) onAbort()
  }

  #keep(parts: Buffer[], bytes: Buffer, max: number): void {
    const room = max - this.#numBytes
    this.#numBytes += bytes.length
    if (room > 0) parts.push(bytes.subarray(0, room))
    if (bytes.length > room) this.#kill('output')
  }

  #keepHome(bytes: Buffer, max: number): void {
    this.#homeBytes += bytes.length
    if (this.#homeBytes <= max) this.#out.home.push(bytes)
    else this.#kill('output')
  }

  /** Closes the pipes once they give no more bytes. A process that left the group before it was killed would hold them for ever. */
  #closeOnceQuiet(stdio: readonly (Readable | Writable | null | undefined)[]): void {
    let seen = -1
    const look = () => {
      const numBytes = this.#numBytes + this.#homeBytes
      if (numBytes === seen) for (const stream of stdio) stream?.destroy()
      else setImmediate(look)
      seen = numBytes
    }
    setImmediate(look)
  }

  #kill(limit: 'timeout' | 'output' | undefined): void {
    this.#limit ??= limit
    killGroup(this.#child)
  }

  #ended(code: number | null, killedBy: NodeJS.Signals | null): ProgramEnd {
    const [stdout, stderr, home] = [this.#out.stdout, this.#out.stderr, this.#out.home].map((parts) =>
      Buffer.concat(parts),
    )
    const wasKilled = this.#limit !== undefined || killedBy !== null
    return {
      status: this.#limit ?? 'exited',
      exitCode: this.#limit === undefined ? (code ?? 137) : null,
      stdout: stdout ?? Buffer.alloc(0),
      stderr: stderr ?? Buffer.alloc(0),
      home: wasKilled || home === undefined || home.length === 0 ? null : home,
    }
  }
}

function collect(stream: unknown, onBytes: (bytes: Buffer) => void): void {
  if (typeof stream === 'object' && stream !== null && 'on' in stream)
    (stream as Readable).on('data', onBytes)
}

/** Options of bubblewrap: everything that a program may see. The filter of calls comes from a descriptor. */
function namespaces(
  { homeBytes }: { readonly homeBytes: number },
  filterFd: number,
  more: readonly string[] = [],
): string[] {
  const size = String(homeBytes)
  return [
    ...['--unshare-all', '--unshare-user', '--disable-userns', '--die-with-parent'],
    ...(FILTER ? ['--seccomp', String(filterFd)] : []),
    ...['--uid', '1000', '--gid', '1000', '--hostname', 'sandbox', '--clearenv'],
    ...['--setenv', 'PATH', '/usr/bin:/bin', '--setenv', 'HOME', SANDBOX_HOME, '--setenv', 'LANG', 'C.UTF-8'],
    ...['--ro-bind', '/usr', '/usr', ...['/bin', '/lib', '/lib64', '/sbin'].flatMap(systemFolder)],
    ...['--ro-bind-try', '/etc/alternatives', '/etc/alternatives'],
    ...['--ro-bind-try', '/etc/ld.so.cache', '/etc/ld.so.cache'],
    ...['--proc', '/proc', '--dev', '/dev', '--size', size, '--tmpfs', '/dev/shm', '--remount-ro', '/dev'],
    ...['--perms', '0700', '--size', size, '--tmpfs', SANDBOX_HOME, '--symlink', 'sandbox', '/tmp'],
    ...more,
    // The root is a tmpfs without a bound.
    ...['--remount-ro', '/', '--chdir', SANDBOX_HOME],
  ]
}

/** A folder of the system as it is on the host: a link into `/usr`, or a folder of its own. */
function systemFolder(path: string): string[] {
  try {
    if (lstatSync(path).isSymbolicLink()) return ['--symlink', readlinkSync(path), path]
    return ['--ro-bind', path, path]
  } catch {
    return []
  }
}

function wrapped(command: readonly string[], limits: readonly number[]): string[] {
  return ['bash', '-c', UNPACK_RUN_PACK, 'bash', ...limits.map(String), ...command]
}

/** Knobs of the kernel that turn user namespaces off. */
const KNOBS = [
  ['/proc/sys/user/max_user_namespaces', '0'],
  ['/proc/sys/kernel/unprivileged_userns_clone', '0'],
  ['/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '1'],
] as const

/** Explains why bubblewrap does not work, by what it wrote and by the kernel's settings. */
export function whyNoBubblewrap(error: unknown, read: (path: string) => string = readSetting): string {
  if (process.platform !== 'linux') return `bubblewrap needs Linux: this is ${process.platform}`
  const text = messageOf(error).trim()
  if (text.includes('ENOENT')) return 'bwrap is not installed: on Debian, apt-get install bubblewrap'
  const off = KNOBS.find(([path, value]) => read(path).trim() === value)
  if (off !== undefined) return `user namespaces are off: ${off[0]} is ${off[1]}`
  return text.split('\n')[0] ?? text
}

function readSetting(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
