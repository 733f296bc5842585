import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ManualClock, systemClock } from '../../src/telemetry/index.js'
import { killGroup, runInBubblewrap, startInBubblewrap, whyNoBubblewrap } from '../../src/tools/bubblewrap.js'
import { SANDBOX_CODE_BYTES_MAX, Sandbox, type SandboxOptions } from '../../src/tools/sandbox.js'
import { checkedLimits } from '../../src/tools/sandbox-limits.js'
import { failing } from '../torchrl/envs/chats.js'
import { worksHere } from './sandbox-here.js'

const isUsable = await worksHere()

/** Opens a sandbox for one body. */
async function inSandbox<T>(
  body: (sandbox: Sandbox) => Promise<T>,
  options: SandboxOptions = {},
): Promise<T> {
  const sandbox = await Sandbox.open(options)
  try {
    return await body(sandbox)
  } finally {
    sandbox.close()
  }
}

describe.runIf(isUsable)('Sandbox', () => {
  it('runs commands and code, with input, both outputs and the exit code apart', async () => {
    await inSandbox(async (sandbox) => {
      expect(sandbox.backend).toBe('bubblewrap')
      const code = 'import sys; print(sys.stdin.read()[::-1]); print("careful", file=sys.stderr)'
      const warned = await sandbox.run({ code }, { stdin: 'abc' })
      expect(warned).toEqual({ status: 'exited', exitCode: 0, stdout: 'cba\n', stderr: 'careful\n' })
      const failed = await sandbox.run({ code: 'import sys; sys.exit(7)' })
      expect(failed).toMatchObject({ status: 'exited', exitCode: 7 })
      const words = ['a b', "'", '"$HOME"', '--', '\n']
      const { stdout } = await sandbox.run({ command: ['printf', '<%s>', ...words] })
      expect(stdout).toBe(words.map((word) => `<${word}>`).join(''))
      expect(await sandbox.run({ command: ['no-such-program'] })).toMatchObject({ exitCode: 127 })
      expect(
        await sandbox.run({ code: 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)' }),
      ).toMatchObject({
        exitCode: 143,
      })
    })
  })

  it('keeps files from run to run, whatever their names and bytes, and for itself alone', async () => {
    const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256)
    const files = { 'deep/er/data.bin': bytes, '-n': 'dash', 'new\nline ü': 'odd' }
    await inSandbox(
      async (sandbox) => {
        await sandbox.run({
          code: 'open("made", "w").write("by code"); import os; os.symlink("made", "link")',
        })
        await sandbox.write('made', 'anew')
        expect(Buffer.from(await sandbox.read('link')).toString()).toBe('anew')
        expect(await sandbox.read('deep/er/data.bin')).toEqual(bytes)
        expect(Buffer.from(await sandbox.read('-n')).toString()).toBe('dash')
        expect(Buffer.from(await sandbox.read('new\nline ü')).toString()).toBe('odd')
        const other = await inSandbox((next) => next.run({ command: ['ls', '-A'] }))
        expect(other.stdout).toBe('')
      },
      { files },
    )
  })

  it('ends runs at their deadline, and leaves the home as it was', async () => {
    const clock = new ManualClock()
    await inSandbox(
      async (sandbox) => {
        const running = sandbox.run({ code: 'open("a", "w").write("x"); import time; time.sleep(1000)' })
        while (clock.numTimers === 0) await new Promise(setImmediate)
        clock.advance(10_000)
        expect(await running).toMatchObject({ status: 'timeout', exitCode: null })
        expect((await sandbox.run({ command: ['ls'] })).stdout).toBe('')
      },
      { clock },
    )
  })

  it('ends at its deadline though a process that left the group holds the pipes', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    await chmod(folder, 0o777)
    const [bwrap, about] = [join(folder, 'bwrap'), join(folder, 'pid')]
    await writeFile(
      bwrap,
      `#!/bin/sh\necho said\nsetsid sleep 1000 &\necho $! > ${about}\nexec sleep 1000\n`,
      {
        mode: 0o755,
      },
    )
    const clock = new ManualClock()
    const none = new Uint8Array()
    const limits = checkedLimits({ timeoutMs: 1 })
    const inputs = { bwrap, limits, clock, command: [], stdin: none, home: none, signal: undefined }
    const running = runInBubblewrap(inputs)
    const pid = async () => Number(await readFile(about, 'utf8').catch(() => ''))
    while ((await pid()) === 0) await new Promise(setImmediate)
    try {
      clock.advance(1)
      const { status, stdout } = await running
      expect([status, stdout.toString()]).toEqual(['timeout', 'said\n'])
    } finally {
      process.kill(await pid())
      await rm(folder, { recursive: true })
    }
  })

  it('cuts output, and says so', async () => {
    await inSandbox(
      async (sandbox) => {
        const { status, stdout, stderr } = await sandbox.run({ code: 'print("a" * 10**7)' })
        expect([status, stdout.length + stderr.length]).toEqual(['output', 1000])
        const whole = await sandbox.run({ code: 'import sys; sys.stderr.write("b" * 1000)' })
        expect([whole.status, whole.stderr.length]).toEqual(['exited', 1000])
      },
      { limits: { outputBytes: 1000 } },
    )
  })

  it('takes turns, stops by a signal, and ends with close', async () => {
    const sandbox = await Sandbox.open()
    const append = (word: string) => sandbox.run({ command: ['sh', '-c', `echo ${word} >> log`] })
    await Promise.all(['a', 'b', 'c'].map(append))
    expect(Buffer.from(await sandbox.read('log')).toString()).toBe('a\nb\nc\n')
    const stop = new AbortController()
    const stopped = sandbox.run({ command: ['sleep', '1000'] }, { signal: stop.signal })
    stop.abort()
    await expect(stopped).rejects.toThrow(failing('ABORTED'))
    const cut = sandbox.run({ command: ['sleep', '1000'] })
    sandbox.close()
    await expect(cut).rejects.toThrow(failing('CLOSED'))
    await expect(sandbox.run({ command: ['true'] })).rejects.toThrow(failing('CLOSED'))
  })

  it('refuses what is no program, path or limit', async () => {
    await inSandbox(async (sandbox) => {
      for (const program of [
        {},
        { command: [] },
        { command: [1] },
        { code: 1 },
        { command: ['a\0'] },
        { code: 'a', command: ['b'] },
      ])
        await expect(async () => sandbox.run(program as never)).rejects.toThrow(failing('MALFORMED'))
      const long = 'a'.repeat(SANDBOX_CODE_BYTES_MAX + 1)
      await expect(async () => sandbox.run({ code: long })).rejects.toThrow(
        failing('LIMIT_EXCEEDED', /100000/),
      )
      expect(await sandbox.run({ code: `#${long.slice(2)}` })).toMatchObject({ exitCode: 0 })
      await expect(sandbox.run({ code: '' }, { timeoutMs: 0 })).rejects.toThrow(
        failing('OUT_OF_RANGE', /timeoutMs/),
      )
      for (const path of ['', '/etc/passwd', 'a\0b'])
        await expect(sandbox.write(path, '')).rejects.toThrow(failing('MALFORMED', /relative/))
      await expect(sandbox.read('none')).rejects.toThrow(failing('IO', /none/))
    })
    await expect(Sandbox.open({ limits: { cpuSecond: 1 } as never })).rejects.toThrow(failing('UNKNOWN_NAME'))
    await expect(Sandbox.open({ limits: { numFiles: 0.5 } })).rejects.toThrow(
      failing('OUT_OF_RANGE', /numFiles/),
    )
    await expect(Sandbox.open({ backend: 'none' as never })).rejects.toThrow(failing('UNKNOWN_NAME'))
    const tooLong = { big: new Uint8Array(2_000_000) }
    await expect(Sandbox.open({ files: tooLong, limits: { homeBytes: 1_000_000 } })).rejects.toThrow(
      failing('LIMIT_EXCEEDED', /big/),
    )
  })
})

/** Escapes: code whose output begins with `GOT` got out, or exceeded a limit. */
const ESCAPES: Readonly<Record<string, string>> = {
  'a socket to the host': 'import socket; socket.create_connection(("127.0.0.1", PORT), 2); print("GOT")',
  'a socket to elsewhere': 'import socket; socket.create_connection(("192.0.2.1", 80), 2); print("GOT")',
  'a datagram': 'import socket; socket.socket(2, 2).sendto(b"x", ("8.8.8.8", 53)); print("GOT")',
  'a name lookup': 'import socket; socket.getaddrinfo("localhost.localdomain.example", 80); print("GOT")',
  'an abstract socket': 'import socket; socket.socket(1).connect("\\0fulmar-PORT"); print("GOT")',
  'another interface':
    'import socket; print("GOT" if [n for _, n in socket.if_nameindex()] != ["lo"] else "")',
  'a raw socket': 'import socket; socket.socket(2, 3, 1).sendto(b"x" * 64, ("127.0.0.1", 0)); print("GOT")',
  "a file of the host's": 'print("GOT", open("SECRET").read())',
  'a file through a link': 'import os; os.symlink("SECRET", "l"); print("GOT", open("l").read())',
  'a file through a hard link': 'import os; os.link("SECRET", "l"); print("GOT", open("l").read())',
  'a file through a path up': 'print("GOT", open("../../../../../../../SECRET").read())',
  "a file through the first process's root": 'print("GOT", open("/proc/1/root/SECRET").read())',
  "a file through the parent's folder":
    'import os; print("GOT", open(f"/proc/{os.getppid()}/cwd/SECRET").read())',
  passwords: 'print("GOT", open("/etc/shadow").read())',
  users: 'print("GOT", open("/etc/passwd").read())',
  "root's home": 'import os; print("GOT", os.listdir("/root"))',
  'a write to /usr': 'open("/usr/bin/evil", "w").write("x"); print("GOT")',
  'a write to the root': 'open("/evil", "w").write("x"); print("GOT")',
  'a write to /etc': 'open("/etc/evil", "w").write("x"); print("GOT")',
  'a write to /dev': 'open("/dev/evil", "w").write("x"); print("GOT")',
  'a setting of the kernel': 'open("/proc/sys/kernel/hostname", "w").write("evil"); print("GOT")',
  'a trigger of the kernel': 'open("/proc/sysrq-trigger", "w").write("h"); print("GOT")',
  'the memory of the kernel': 'print("GOT", open("/dev/mem", "rb").read(1))',
  '/sys': 'import os; print("GOT", os.listdir("/sys"))',
  'a device': 'import os; os.mknod("d", 0o60600, os.makedev(8, 0)); print("GOT", open("d", "rb").read(1))',
  'a mount':
    'import ctypes; print("GOT" if ctypes.CDLL(None).mount(b"none", b"/sandbox", b"tmpfs", 0, 0) == 0 else "")',
  'a remount':
    'import ctypes; print("GOT" if ctypes.CDLL(None).mount(0, b"/usr", 0, 32 | 4096, 0) == 0 else "")',
  'an unmount': 'import ctypes; print("GOT" if ctypes.CDLL(None).umount2(b"/usr", 2) == 0 else "")',
  'another user namespace':
    'import ctypes; print("GOT" if ctypes.CDLL(None).unshare(0x10000000) == 0 else "")',
  'the namespaces of the first process':
    'import ctypes, os; print("GOT" if ctypes.CDLL(None).setns(os.open("/proc/1/ns/user", 0), 0) == 0 else "")',
  'a change of the root': 'import os; os.chroot("/sandbox"); print("GOT")',
  'another user': 'import os; os.setuid(0); print("GOT")',
  'a set-user-id program':
    'import subprocess; print("GOT" if subprocess.run(["su", "-c", "true"], stdin=-3).returncode == 0 else "")',
  capabilities:
    'print("GOT" if "CapEff:\\t0000000000000000" not in open("/proc/self/status").read() else "")',
  'new privileges': 'print("GOT" if "NoNewPrivs:\\t1" not in open("/proc/self/status").read() else "")',
  'a variable of the host': 'import os; print("GOT" if "FULMAR_SECRET" in str(os.environ) else "")',
  "a variable of the first process's":
    'print("GOT" if "FULMAR_SECRET" in open("/proc/1/environ").read() else "")',
  'a process of the host':
    'import os; print("GOT" if any(p.isdigit() and int(p) == HOST for p in os.listdir("/proc")) and HOST > 9 else "")',
  'a signal to all': 'import os; os.fork() or os.kill(-1, 9)',
  'a signal to the first process': 'import os; os.kill(1, 9); open("/proc/1/status"); print("alive")',
  'a signal to the wrapper': 'import os; os.kill(os.getppid(), 9)',
  'a descriptor of the wrapper':
    'import os; print("GOT" if [f for f in range(3, 256) if os.path.exists(f"/proc/self/fd/{f}")] else "")',
  'a forged home':
    'import os; os.write(os.open(f"/proc/{os.getppid()}/fd/4", 1), b"../../evil" * 999); print("forged its own home")',
  'a longer deadline': 'import resource; resource.setrlimit(0, (10**6, 10**6)); print("GOT")',
  'more processes': 'import resource; resource.setrlimit(6, (10**6, 10**6)); print("GOT")',
  forks: 'import os\nfor _ in range(1000):\n  if os.fork() == 0: import time; time.sleep(9)\nprint("GOT")',
  threads:
    'import threading, time\nfor _ in range(1000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint("GOT")',
  memory: 'x = bytearray(2 * 10**9); print("GOT")',
  descriptors: 'import os\nfor _ in range(1000): os.open("/", 0)\nprint("GOT")',
  'a large file': 'f = open("f", "wb")\nfor _ in range(100): f.write(b"x" * 10**6)\nf.close(); print("GOT")',
  'many files': 'for i in range(100): open(f"f{i}", "wb").write(b"x" * 10**6)\nprint("GOT")',
  'shared memory': 'for i in range(100): open(f"/dev/shm/f{i}", "wb").write(b"x" * 10**6)\nprint("GOT")',
  'a sparse file': 'f = open("f", "wb"); f.truncate(10**9); print("GOT")',
  'a core file': 'import resource; print("GOT" if resource.getrlimit(4)[1] != 0 else "")',
  'a deep folder': 'import os\nfor _ in range(3000): os.mkdir("d" * 200); os.chdir("d" * 200)',
  'a real-time priority':
    'import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)); print("GOT")',
  'a nicer priority': 'import os; os.nice(-10); print("GOT")',
  'the clock': 'import time; time.clock_settime(time.CLOCK_REALTIME, 0); print("GOT")',
  'the name of the host': 'import socket; socket.sethostname("evil"); print("GOT")',
  'a key of the session':
    'import ctypes; print("GOT" if ctypes.CDLL(None).syscall(NR_ADD_KEY, b"user", b"k", b"v", 1, -3) >= 0 else "")',
  'the terminal': 'import os; os.open("/dev/tty", 2); print("GOT")',
}

describe.runIf(isUsable)('a program in a Sandbox', () => {
  let numConnections = 0
  const servers = [createServer(() => (numConnections += 1)), createServer(() => (numConnections += 1))]
  let [port, folder, secret] = [0, '', '']

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    secret = join(folder, 'secret')
    await writeFile(secret, 'the secret')
    process.env.FULMAR_SECRET = 'the secret'
    const [tcp, abstract] = servers
    await new Promise<void>((resolve) => tcp?.listen(0, '127.0.0.1', resolve))
    const address = tcp?.address()
    port = typeof address === 'object' && address !== null ? address.port : 0
    await new Promise<void>((resolve) => abstract?.listen(`\0fulmar-${port}`, resolve))
  })

  afterAll(async () => {
    delete process.env.FULMAR_SECRET
    for (const server of servers) server.close()
    await rm(folder, { recursive: true })
  })

  it.each(Object.entries(ESCAPES))('cannot have %s', async (_, code) => {
    const filled = code
      .replaceAll('NR_ADD_KEY', process.arch === 'arm64' ? '217' : '248')
      .replaceAll('PORT', String(port))
      .replaceAll('SECRET', secret.slice(1))
      .replaceAll('HOST', String(process.pid))
    const absolute = filled.replaceAll(`("${secret.slice(1)}"`, `("${secret}"`)
    await inSandbox(async (sandbox) => {
      const { stdout, stderr } = await sandbox.run({ code: absolute }, { timeoutMs: 20_000 })
      expect(stdout).not.toMatch(/GOT|the secret/)
      expect(stderr).not.toMatch(/SyntaxError|NameError|the secret/)
    })
    expect(numConnections).toBe(0)
    expect(await readFile(secret, 'utf8')).toBe('the secret')
  })

  it('can forge its own home and no more: the next run begins with an empty one', async () => {
    await inSandbox(async (sandbox) => {
      await sandbox.run({ code: ESCAPES['a forged home'] ?? '' })
      expect(await sandbox.run({ command: ['ls', '-A', '..', '.'] })).toMatchObject({ exitCode: 0 })
    })
  })

  it('leaves nothing running, whenever it is killed: while bubblewrap starts, or later', async () => {
    const mark = `fulmar-killed-${process.pid}`
    const code = `"${mark}"\nimport os, time\nif os.fork() == 0:\n  os.setsid()\n  os.fork()\ntime.sleep(1000)`
    const command = ['python3', '-I', '-c', code]
    for (let timeMs = 0; timeMs < 20; timeMs += 0.5) {
      const aborted = new AbortController()
      const none = new Uint8Array()
      const limits = checkedLimits({})
      const inputs = { bwrap: 'bwrap', limits, command, stdin: none, home: none, clock: systemClock }
      const run = runInBubblewrap({ ...inputs, signal: aborted.signal }).catch(() => undefined)
      const lasting = startInBubblewrap({ bwrap: 'bwrap', command, homeBytes: 1_048_576 })
      const ended = new Promise((resolve) => lasting.on('exit', resolve))
      const startMs = performance.now()
      while (performance.now() - startMs < timeMs) await new Promise(setImmediate)
      aborted.abort()
      killGroup(lasting)
      await Promise.all([run, ended])
    }
    await noneRunning(mark)
  })

  it('leaves nothing running: no daemon, no child, at any end', async () => {
    const mark = `fulmar-orphan-${process.pid}`
    const orphan = `import os, sys, time
for _ in range(3):
  if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
      os.execvp("python3", ["python3", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)", "${mark}"])
    os._exit(0)
time.sleep(0.2)
`
    await inSandbox(async (sandbox) => {
      expect(await sandbox.run({ code: orphan })).toMatchObject({ exitCode: 0 })
      const late = await sandbox.run({ code: `${orphan}time.sleep(1000)` }, { timeoutMs: 1_500 })
      expect(late.status).toBe('timeout')
    })
    await noneRunning(mark)
  })
})

/** Waits for processes that were killed to end. */
async function noneRunning(mark: string): Promise<void> {
  for (let tries = 0; (await running(mark)) > 0 && tries < 1_000; tries++) await new Promise(setImmediate)
  expect(await running(mark)).toBe(0)
}

/** Number of processes of the host whose command line has the text. */
async function running(mark: string): Promise<number> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')))
  return lines.filter((line) => line.includes(mark)).length
}

describe('Sandbox.support', () => {
  it('says why there is none, and nothing runs then', async () => {
    const support = await Sandbox.support({ backend: 'bubblewrap', bwrap: '/no/such/bwrap' })
    expect(support).toMatchObject({ isUsable: false, reason: expect.stringMatching(/Debian|needs Linux/) })
    await expect(Sandbox.open({ backend: 'bubblewrap', bwrap: '/no/such/bwrap' })).rejects.toThrow(
      failing('UNAVAILABLE', /bubblewrap/),
    )
    // A program that answers, but not as bubblewrap does.
    await expect(Sandbox.open({ backend: 'bubblewrap', bwrap: 'false' })).rejects.toThrow(
      failing('UNAVAILABLE'),
    )
    await expect(Sandbox.open({ backend: 'bubblewrap', bwrap: 'echo' })).rejects.toThrow(
      failing('UNAVAILABLE'),
    )
  })

  it.runIf(process.platform === 'linux').each([
    ['/proc/sys/user/max_user_namespaces', '0\n'],
    ['/proc/sys/kernel/unprivileged_userns_clone', '0\n'],
    ['/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '1\n'],
  ])('names the setting %s, which turns user namespaces off', (path, value) => {
    const error = new Error('bwrap: No permissions to create new namespace\nmore')
    const why = whyNoBubblewrap(error, (asked) => (asked === path ? value : ''))
    expect(why).toBe(`user namespaces are off: ${path} is ${value.trim()}`)
    expect(whyNoBubblewrap(error, () => '')).toBe('bwrap: No permissions to create new namespace')
  })
})
