import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Interpreters } from '../../src/tools/interpreters.js'
import { permissionFlag, startInPyodide, whyNoPyodide } from '../../src/tools/pyodide.js'
import { Sandbox } from '../../src/tools/sandbox.js'
import { has } from '../needs.js'
import { failing } from '../torchrl/envs/chats.js'

/** A start takes seconds on a busy machine, so deadlines are long. Once for both builds of the core, which this does not need. */
const LIMITS = { timeoutMs: 30_000, memoryBytes: 268_435_456, outputBytes: 10_000 }
const isUsable =
  process.env.FULMAR_TEST_BACKEND !== 'wasm' &&
  has('pyodide', (await Sandbox.support({ backend: 'pyodide' })).isUsable)

/**
 * Escapes: code that prints `GOT` where it got out, exceeded a limit, or made something of JavaScript. `HOST` is this
 * process, `PORT` a port of this machine, `SECRET` a file of it.
 */
const ESCAPES: Readonly<Record<string, string>> = {
  'a file of the host': 'print("GOT", open("SECRET").read())',
  'a file through a link': 'import os; os.symlink("SECRET", "l"); print("GOT", open("l").read())',
  'a file through a path up': 'print("GOT", open("../../../../../../../.." + "SECRET").read())',
  "a file through a process's root": 'print("GOT", open("/proc/self/root" + "SECRET").read())',
  'the programs of the host': 'import os; print("GOT" if os.path.exists("/usr/bin/env") else "")',
  "root's home": 'import os; print("GOT", os.listdir("/root"))',
  'the memory of the kernel': 'print("GOT", open("/dev/mem", "rb").read(1))',
  'a process of the host':
    'import os; print("GOT" if any(p == str(HOST) for p in os.listdir("/proc")) else "")',
  passwords: 'print("GOT", open("/etc/passwd").read())',
  'the root of the host': 'import os; print("GOT" if "usr" in os.listdir("/") else "")',
  'a socket': 'import socket; socket.create_connection(("127.0.0.1", PORT), 1); print("GOT")',
  'a request': 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:PORT"); print("GOT")',
  'a program': 'import subprocess; print("GOT", subprocess.run(["id"], capture_output=True))',
  'a shell': 'import os; print("GOT" if os.system("id") == 0 else "")',
  'a fork': 'import os; os.fork(); print("GOT")',
  'a process of its own':
    'import multiprocessing; multiprocessing.Process(target=print, args=("GOT",)).start()',
  'a spawned program': 'import os; os.posix_spawn("/bin/true", ["true"], {}); print("GOT")',
  'another program in its place': 'import os; os.execv("/bin/sh", ["sh", "-c", "echo GOT"])',
  'a library of the host': 'import ctypes; ctypes.CDLL("libc.so.6"); print("GOT")',
  'a script by a function of Emscripten':
    'import ctypes; ctypes.CDLL(None).emscripten_run_script(b"1"); print("GOT")',
  'a thread': 'import threading; threading.Thread(target=print, args=("GOT",)).start()',
  'a signal to the host': 'import os; os.kill(HOST, 9); print("GOT")',
  'a variable of the host': 'import os; print("GOT" if "FULMAR_SECRET" in str(os.environ) else "")',
  'the module js': 'import js; print("GOT")',
  'the module js under a new name':
    'import sys, importlib; sys.modules.pop("js", None); importlib.import_module("js"); print("GOT")',
  'a finder of the module js':
    'import sys\nfor finder in sys.meta_path:\n  if hasattr(finder, "find_spec") and finder.find_spec("js", None, None): print("GOT")',
  'the process of Node': 'from js import process; print("GOT", process.pid)',
  'the modules of Node': 'from js import require; print("GOT")',
  'a worker': 'from js import Worker; Worker.new("x"); print("GOT")',
  'the module pyodide_js': 'import pyodide_js; print("GOT")',
  'the files of Emscripten': 'from pyodide_js import FS; print("GOT")',
  'a module of its own for JavaScript':
    'import pyodide_js; pyodide_js.registerJsModule("evil", {}); print("GOT")',
  'code of JavaScript': 'from pyodide.code import run_js; run_js("1"); print("GOT")',
  'a fetch':
    'from pyodide.http import pyfetch\nimport asyncio\nasyncio.get_event_loop().run_until_complete(pyfetch("http://127.0.0.1:PORT")); print("GOT")',
  'a page':
    'from pyodide.http import open_url\ntry: open_url("http://127.0.0.1:PORT"); print("GOT")\nexcept Exception: pass',
  'a package of the web': 'import micropip; print("GOT")',
  'a function made of text':
    'from pyodide.ffi import to_js\nto_js([1]).constructor.constructor("return 1")(); print("GOT")',
  'an async function made of text':
    'from pyodide.ffi import to_js\nimport asyncio\nc = to_js([1]).constructor.constructor\nc.new("return 1"); print("GOT")',
  'another prototype of objects':
    'from pyodide.ffi import to_js, create_proxy\nO = to_js({"a": 1}).constructor\nO.prototype.evil = 1\nprint("GOT" if hasattr(to_js([1]), "evil") else "")',
  'a listener on all arrays':
    'from pyodide.ffi import to_js, create_proxy\nA = to_js([1]).constructor\nA.prototype.push = create_proxy(lambda *a: print("GOT", a))\nprint(to_js([[1, 2], 3]))',
  'an accessor of all objects':
    'from pyodide.ffi import to_js, create_proxy\nO = to_js({"a": 1}).constructor\nO.prototype.__defineGetter__("fd", create_proxy(lambda: 1)); print("GOT" if hasattr(to_js([1]), "fd") else "")',
  'a property of all functions':
    'from pyodide.ffi import to_js, create_proxy\nF = to_js([1]).constructor.constructor\nF.prototype.call = create_proxy(lambda *a: print("GOT"))\nto_js([1])',
  'the global object':
    'from pyodide.ffi import to_js\nA = to_js([1]).constructor\nfor name in ("globalThis", "process", "require", "fetch", "eval"):\n  if hasattr(A, name) or hasattr(A.constructor, name): print("GOT", name)',
  'objects that the collector knows':
    'import gc\nfor o in gc.get_objects():\n  if "JsProxy" in type(o).__name__:\n    for name in ("process", "FS", "_module", "fetch", "require"):\n      if hasattr(o, name): print("GOT", name)',
  'objects in modules':
    'import sys\nfor m in list(sys.modules.values()):\n  for n, o in list(vars(m).items()):\n    if "JsProxy" in type(o).__name__ and any(hasattr(o, x) for x in ("process", "FS", "_module", "globalThis")): print("GOT", m, n)',
  'the parents of frames':
    'import sys\nf = sys._getframe()\nwhile f:\n  for v in list(f.f_locals.values()) + list(f.f_globals.values()):\n    if "JsProxy" in type(v).__name__ and hasattr(v, "FS"): print("GOT")\n  f = f.f_back',
  'the descriptors of the host':
    'import os\nfor fd in range(3, 64):\n  try: os.write(fd, b"D" * 99); print("GOT")\n  except OSError: pass',
  'a frame on its output': 'import os; os.write(1, b"D\\0\\0\\0\\n" + bytes(10)); print("still here")',
  'a mount': 'import pyodide_js; pyodide_js.mountNodeFS("/mnt", "/"); print("GOT")',
  memory: 'x = bytearray(10**9); print("GOT")',
  'memory, piece by piece': 'kept = []\nwhile len(kept) < 100: kept.append(bytearray(10**7))\nprint("GOT")',
  'memory of JavaScript':
    'from pyodide.ffi import to_js\nA = to_js(bytearray(1)).constructor\nkept = [A.new(10**9) for _ in range(50)]\nfor k in kept: k.fill(1)\nprint("GOT")',
  'many files': 'for i in range(300): open(f"f{i}", "wb").write(b"x" * 10**7)\nprint("GOT")',
  recursion: 'def f(): f()\nf()',
  'deep code': `x = ${'('.repeat(5_000)}${')'.repeat(5_000)}`,
  'a fatal error': 'import _pyodide_core; _pyodide_core.trigger_fatal_error()',
  'a call of memory': 'import ctypes; ctypes.string_at(2**31)',
  'a longer output': 'print("x" * 10**6); print("GOT")',
  'a longer error': 'import sys; sys.stderr.write("x" * 10**6 + "GOT")',
  'the end of the process': 'import os; os._exit(0)',
  'an abort': 'import os; os.abort()',
}

/** Escapes that end their interpreter, whose successor takes seconds to start: all of them where `FULMAR_SOAK` is set. */
const ENDING = [
  'a shell',
  'a script by a function of Emscripten',
  'a fatal error',
  'a call of memory',
  'an abort',
]
const tried = Object.entries(ESCAPES).filter(([name]) => process.env.FULMAR_SOAK || !ENDING.includes(name))

describe.runIf(isUsable)('an interpreter on Pyodide', () => {
  let [numConnections, port, folder, secret] = [0, 0, '', '']
  const server = createServer(() => {
    numConnections += 1
  })
  const interpreters = new Interpreters({ backend: 'pyodide', persistent: true, limits: LIMITS, numWarm: 0 })
  const conversation = new AbortController()
  const run = (code: string, signal = conversation.signal) => interpreters.run(code, { conversation: signal })

  beforeAll(async () => {
    process.env.FULMAR_SECRET = 'the secret'
    folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
    secret = join(folder, 'secret')
    await writeFile(secret, 'the secret')
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    port = typeof address === 'object' && address !== null ? address.port : 0
  })

  afterAll(async () => {
    delete process.env.FULMAR_SECRET
    interpreters.close()
    server.close()
    await rm(folder, { recursive: true })
  })

  it('runs blocks as in bubblewrap: outputs, values, tracebacks and variables', async () => {
    const { signal } = new AbortController()
    const first = await run(
      'import sys, math\nprint("out"); sys.stderr.write("err"); a = 1\n[math.pi > 3, a]',
      signal,
    )
    expect(first).toEqual({
      status: 'ok',
      stdout: 'out\n',
      stderr: 'err',
      value: '[True, 1]',
      error: null,
      isCut: false,
    })
    const failed = await run('def f(): raise ValueError(a)\nf()', signal)
    expect(failed.error).toMatch(/^Traceback[\s\S]*File "<block 2>", line 1, in f\n[\s\S]*ValueError: 1\n$/)
    const cut = await run('print("x" * 10**6); "v" * 10**6', signal)
    expect([cut.isCut, cut.stdout.length, cut.value?.length]).toEqual([true, 10_000, 10_000])
    expect(await run('input()', signal)).toMatchObject({ error: expect.stringMatching(/EOFError/) })
  })

  it.each(tried)('does not give %s', async (_, code) => {
    const filled = code
      .replaceAll('PORT', String(port))
      .replaceAll('SECRET', secret)
      .replaceAll('HOST', String(process.pid))
    const { stdout, stderr, error, value } = await run(filled)
    expect(`${stdout}${stderr}${value}`).not.toMatch(/GOT|the secret/)
    expect(`${error}`).not.toMatch(/invalid syntax|NameError/)
    expect(await run('1 + 1')).toMatchObject({
      status: expect.stringMatching(/ok|ended|error/),
    })
    expect(numConnections).toBe(0)
    expect(await readFile(secret, 'utf8')).toBe('the secret')
  })

  it('ends at the deadline, and leaves no process', async () => {
    const before = await numProcesses()
    const short = new Interpreters({
      backend: 'pyodide',
      limits: { ...LIMITS, timeoutMs: 1_000 },
      numWarm: 0,
    })
    expect(await short.run('print("so far")\nwhile True: pass', {})).toMatchObject({
      status: 'timeout',
      stdout: 'so far\n',
    })
    short.close()
    for (let tries = 0; (await numProcesses()) > before && tries < 1_000; tries++)
      await new Promise(setImmediate)
    expect(await numProcesses()).toBe(before)
  })
})

describe.runIf(isUsable)('Sandbox on Pyodide', () => {
  it('runs code with input, exit code and a home that stays, but no commands', async () => {
    using sandbox = await Sandbox.open({
      backend: 'pyodide',
      limits: LIMITS,
      files: { 'deep/in.txt': '1 2' },
    })
    expect(sandbox.backend).toBe('pyodide')
    const code =
      'import sys; print(sys.stdin.read()[::-1], open("deep/in.txt").read()); open("made", "w").write("x"); sys.exit(7)'
    expect(await sandbox.run({ code }, { stdin: 'abc' })).toEqual({
      status: 'exited',
      exitCode: 7,
      stdout: 'cba 1 2\n',
      stderr: '',
    })
    expect(Buffer.from(await sandbox.read('made')).toString()).toBe('x')
    const failed = await sandbox.run({ code: 'import os; os.remove("made"); boom' })
    expect(failed).toMatchObject({ exitCode: 1, stderr: expect.stringMatching(/NameError/) })
    await expect(sandbox.read('made')).rejects.toThrow(failing('IO', /made/))
    expect(await sandbox.run({ code: 'print("a" * 10**6)' })).toMatchObject({
      status: 'output',
      exitCode: null,
    })
    await expect(sandbox.run({ command: ['ls'] })).rejects.toThrow(failing('INCOMPATIBLE', /Python alone/))
    await expect(sandbox.write('/etc/passwd', '')).rejects.toThrow(failing('MALFORMED', /relative/))
  })

  it('limits its home and the time of a run', async () => {
    using sandbox = await Sandbox.open({ backend: 'pyodide', limits: { ...LIMITS, homeBytes: 100_000 } })
    await expect(sandbox.write('big', new Uint8Array(200_000))).rejects.toThrow(
      failing('LIMIT_EXCEEDED', /big/),
    )
    const late = await sandbox.run({ code: 'while True: pass' }, { timeoutMs: 500 })
    expect(late).toMatchObject({ status: 'timeout', exitCode: null })
    const cut = await sandbox.run({ code: 'import os; print(os.listdir()); print("a" * 10**6)' })
    expect(cut).toMatchObject({ status: 'output', exitCode: null, stdout: expect.stringMatching(/^\[\]\na/) })
  })
})

describe('Pyodide', () => {
  it('starts under the permission model, by the name that it has in this version of Node', () => {
    expect(permissionFlag(new Set(['--permission']))).toBe('--permission')
    expect(permissionFlag(new Set())).toBe('--experimental-permission')
    const child = startInPyodide({ memoryBytes: 1 })
    expect(child.spawnargs.join(' ')).toMatch(/--(experimental-)?permission --allow-fs-read=\S+pyodide\/\* /)
    child.kill('SIGKILL')
    expect(whyNoPyodide(new Error('node:internal\n\nTypeError: no\n'))).toBe('TypeError: no')
  })
})

/** Number of processes of the host that run Pyodide for this one. */
async function numProcesses(): Promise<number> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const children = await Promise.all(
    ids.map(async (id) => {
      const [stat, line] = await Promise.all(
        ['stat', 'cmdline'].map((name) => readFile(`/proc/${id}/${name}`, 'utf8').catch(() => '')),
      )
      return stat?.includes(` ${process.pid} `) === true && line?.includes('pyodide') === true
    }),
  )
  return children.filter(Boolean).length
}
