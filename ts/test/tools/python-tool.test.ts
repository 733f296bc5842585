import { readdir, readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import type { PythonResult } from '../../src/tools/interpreter.js'
import { Interpreters } from '../../src/tools/interpreters.js'
import { type PythonToolOptions, pythonTool } from '../../src/tools/python-tool.js'
import { ToolRunner } from '../../src/tools/tool-runner.js'
import { failing } from '../torchrl/envs/chats.js'
import { worksHere } from './sandbox-here.js'

/** Deadline of calls on a busy machine. */
const PATIENT = { timeoutMs: 30_000 }

/** Runs blocks one after another in one conversation; the last result, or the code of its failure. */
async function talk(options: PythonToolOptions, ...codes: readonly unknown[]): Promise<unknown> {
  using python = pythonTool({ limits: PATIENT, ...options })
  return await say(python, codes, new AbortController().signal)
}

async function say(
  python: ReturnType<typeof pythonTool>,
  codes: readonly unknown[],
  conversation: AbortSignal | undefined,
): Promise<unknown> {
  const runner = new ToolRunner({ tools: [python], timeoutMs: 60_000 })
  const calls = codes.map((code) => ({ tool: 'python', args: { code: code as string }, tag: null }))
  const results = await runner.run(calls, { messages: [], inOrder: true, conversation })
  const last = results.at(-1)
  return last?.ok ? (last.value as unknown as PythonResult) : last?.error.code
}

const ok = (parts: Partial<PythonResult>) => ({
  status: 'ok',
  stdout: '',
  stderr: '',
  value: null,
  error: null,
  isCut: false,
  ...parts,
})

const isUsable = await worksHere()

describe.runIf(isUsable)('pythonTool', () => {
  it('keeps stdout, stderr and the value of the last line apart, and a warning is no failure', async () => {
    const code = 'import warnings\nprint("made")\nwarnings.warn("careful")\n[1, "a"]'
    const result = await talk({}, code)
    expect(result).toEqual(
      ok({ stdout: 'made\n', stderr: expect.stringContaining('careful'), value: "[1, 'a']" }),
    )
    expect(await talk({}, 'print("no value")')).toEqual(ok({ stdout: 'no value\n' }))
    expect(await talk({}, '')).toEqual(ok({}))
  })

  it('lets functions see imports and each other, at every depth', async () => {
    const code = `import math
def half(x): return x / 2
def area(r): return half(math.pi * r * r)
class Disk:
  area = [area(r) for r in (1, 2)][1]
round(Disk.area, 3)`
    expect(await talk({}, code)).toEqual(ok({ value: '6.283' }))
  })

  it('answers an exception with its traceback, in which the lines of the code are shown', async () => {
    const failed = await talk({}, 'print("before")\ndef f():\n  raise ValueError("no")\nf()')
    expect(failed).toEqual(ok({ status: 'error', stdout: 'before\n', error: expect.any(String) }))
    expect((failed as PythonResult).error).toMatch(
      /^Traceback.*\n {2}File "<block 1>", line 4, in <module>\n {4}f\(\)\n[\s\S]*ValueError: no\n$/,
    )
    expect(await talk({}, 'def f(:')).toMatchObject({ error: expect.stringMatching(/SyntaxError/) })
    expect(await talk({}, 'import sys; sys.exit(7)')).toMatchObject({
      error: expect.stringMatching(/SystemExit: 7/),
    })
    expect(await talk({}, 'import sys; sys.exit()')).toEqual(ok({}))
    expect(await talk({}, 7)).toBe('MALFORMED')
  })

  it('shows the lines of blocks to code that makes tracebacks itself, and to warnings', async () => {
    const print = 'import traceback\ntry: 1 / 0 # first\nexcept ZeroDivisionError: traceback.print_exc()'
    const again = 'def f(): 1 / 0 # second\ntry: f()\nexcept ZeroDivisionError: print(traceback.format_exc())'
    const first = expect.stringMatching(/line 2, in <module>\n {4}try: 1 \/ 0 # first\n/)
    expect(await talk({}, print)).toEqual(ok({ stderr: first }))
    const second = expect.stringMatching(/line 1, in f\n {4}def f\(\): 1 \/ 0 # second\n/)
    expect(await talk({ persistent: true }, print, again)).toEqual(ok({ stdout: second }))
    const warn = 'import warnings\nwarnings.warn("careful") # third'
    expect(await talk({}, warn)).toEqual(ok({ stderr: expect.stringContaining('# third\n') }))
  })

  it('answers an exception though no file can be opened, and though modules of the home have the names of its own', async () => {
    const open = 'import os\nkept = []\nwhile True: kept.append(os.open("/dev/null", 0))'
    expect(await talk({}, open)).toMatchObject({
      error: expect.stringMatching(/OSError: .*Too many open files/),
    })
    const files = { 'traceback.py': '1 / 0', 'linecache.py': '1 / 0', 're.py': '1 / 0' }
    expect(await talk({ files }, 'raise ValueError("no")')).toMatchObject({
      error: expect.stringMatching(
        /^Traceback.*\n {2}File "<block 1>", line 1, in <module>\n {4}raise ValueError\("no"\)\n/,
      ),
    })
  })

  it('has files, can import modules that it wrote, and reads an empty input', async () => {
    const options = { files: { 'deep/numbers.txt': '1 2', 'mod.py': 'x = 5' }, persistent: true }
    const code = `open("made.py", "w").write("y = 1")
import mod, made
mod.x + made.y + len(open("deep/numbers.txt").read().split())`
    expect(await talk(options, code)).toEqual(ok({ value: '8' }))
    expect(await talk(options, 'input()')).toMatchObject({ error: expect.stringMatching(/EOFError/) })
    const big = { files: { big: new Uint8Array(2_000_000) }, limits: { ...PATIENT, homeBytes: 1_000_000 } }
    expect(await talk(big, '1')).toBe('USER_CODE')
  })

  it('keeps variables from call to call of a conversation, and passes none to another', async () => {
    using python = pythonTool({ persistent: true, limits: PATIENT })
    const [one, other] = [new AbortController(), new AbortController()]
    await say(python, ['a = 1; open("f", "w").write("x")'], one.signal)
    expect(await say(python, ['a += 1', 'a'], one.signal)).toEqual(ok({ value: '2' }))
    expect(await say(python, ['import os; os.listdir("."), "a" in globals()'], other.signal)).toEqual(
      ok({ value: '([], False)' }),
    )
    one.abort()
    expect(await say(python, ['a'], one.signal)).toBe('USER_CODE')
    expect(await say(python, ['a'], undefined)).toBe('USER_CODE')
  })

  it('begins anew in each call unless it is persistent', async () => {
    expect(await talk({}, 'a = 1', '"a" in globals()')).toEqual(ok({ value: 'False' }))
  })

  it('ends a block at its deadline with what it printed, and says that the variables are gone', async () => {
    using python = pythonTool({ persistent: true, limits: { timeoutMs: 1_000 } })
    const conversation = new AbortController()
    await say(python, ['a = 1'], conversation.signal)
    const late = await say(python, ['print("so far")\nwhile True: pass'], conversation.signal)
    expect(late).toEqual(
      ok({
        status: 'timeout',
        stdout: 'so far\n',
        error: expect.stringMatching(/timed out: no end within 1000 ms; all variables are gone/),
      }),
    )
    expect(await say(python, ['"a" in globals()'], conversation.signal)).toEqual(ok({ value: 'False' }))
  })

  it('cuts outputs, values and tracebacks, and goes on', async () => {
    const limits = { ...PATIENT, outputBytes: 1_000 }
    const options = { limits, persistent: true }
    const cut = await talk(options, 'import sys\nprint("a" * 10**7); sys.stderr.write("b" * 10**7)\n5')
    expect(cut).toMatchObject({ status: 'ok', value: '5', isCut: true })
    const { stdout, stderr } = cut as PythonResult
    expect(stdout.length + stderr.length).toBe(1_000)
    const long = { status: 'error', error: expect.stringMatching(/^e{999}\n$/), isCut: true }
    expect(await talk(options, 'raise ValueError("e" * 10**7)')).toEqual(ok(long as never))
    expect(await talk(options, '"v" * 10**7')).toEqual(ok({ value: `'${'v'.repeat(999)}`, isCut: true }))
    expect(await talk(options, 'print("a" * 10**7)', 'print("b" * 999)')).toEqual(
      ok({ stdout: `${'b'.repeat(999)}\n` }),
    )
  })
})

/** Code that tries to break out of its block, with the result that the next block of the conversation must have. */
const ATTACKS: Readonly<Record<string, string>> = {
  'a frame on its output':
    'import os, struct\nos.write(1, struct.pack(">cI", b"D", 10) + b"\\1\\0" + bytes(8))',
  'a frame on every descriptor':
    'import os, struct\nfor fd in range(64):\n  try: os.write(fd, struct.pack(">cI", b"D", 10) + b"\\1\\0" + bytes(8))\n  except OSError: pass',
  'a frame on the descriptors of the supervisor':
    'import os, struct\nfor fd in range(64):\n  try: os.write(os.open(f"/proc/{os.getppid()}/fd/{fd}", 1), struct.pack(">cI", b"D", 10) + b"\\1\\0" + bytes(8)); print("GOT")\n  except OSError: pass',
  'an end of its own with the number of its request':
    'import sys, os, struct\nf = sys._getframe()\nwhile f and "nonce" not in f.f_locals: f = f.f_back\nos.write(f.f_locals["end_fd"], f.f_locals["nonce"] + struct.pack(">BBII", 1, 0, 0, 0))',
  'an end that is too long': 'import os, struct\nos.write(21, bytes(18) + struct.pack(">I", 2**31))',
  'the memory of the supervisor':
    'import os\ntry: open(f"/proc/{os.getppid()}/mem", "r+b"); print("GOT")\nexcept OSError: pass',
  'a trace of the supervisor':
    'import ctypes, os\nprint("GOT" if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else "")',
  'the end of the supervisor': 'import os\nos.kill(os.getppid(), 9)',
  'a stop of the supervisor and of itself': 'import os, time\nos.kill(os.getppid(), 19)\ntime.sleep(60)',
  'its own end': 'import os\nos._exit(0)',
  'a crash': 'import ctypes\nctypes.string_at(0)',
  'a child that runs on': 'import os\nif os.fork() == 0: print("child", flush=True)\nelse: os.wait()',
  'a child that answers later': 'import os, time\nif os.fork() == 0:\n  time.sleep(0.2); print("GOT")',
  'a daemon that holds its outputs': 'import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(1000)',
  'closed outputs': 'import os\nos.close(1); os.close(2)',
  'closed protocol': 'import os\nos.closerange(3, 64)',
  'a flood from a thread':
    'import threading\ndef flood():\n  while True: print("x" * 10**5)\nthreading.Thread(target=flood, daemon=True).start()',
  memory: 'x = bytearray(4 * 10**9)',
  forks:
    'import os\ntry:\n  while True:\n    if os.fork() == 0: import time; time.sleep(1000)\nexcept OSError: pass',
  descriptors: 'import os\nkept = []\nwhile True: kept.append(os.open("/", 0))',
  'a value without end': 'class V:\n  def __repr__(self): return "v" * 10**8\nV()',
  'a value that fails': 'class V:\n  def __repr__(self): raise KeyError("repr")\nV()',
  'an exception that fails': 'class E(Exception):\n  def __str__(self): raise KeyError("str")\nraise E()',
  'an exception without end': 'raise ValueError("e" * 10**8)',
  recursion: 'def f(): f()\nf()',
  'nested code': `x = ${'('.repeat(5_000)}${')'.repeat(5_000)}`,
  'a NUL': 'print("a\0b")',
  surrogates: 'print("\\ud800"); "\\ud800"',
  'another output': 'import sys, io\nsys.stdout = io.StringIO(); print("lost")',
  'no builtins': 'import builtins\nbuiltins.__dict__.clear()',
  'a signal handler':
    'import signal\nfor s in range(1, 64):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass',
  'a longer deadline':
    'import resource\ntry: resource.setrlimit(0, (10**6, 10**6)); print("GOT")\nexcept ValueError: pass',
  'the network':
    'import socket\ntry: socket.create_connection(("127.0.0.1", 9), 1); print("GOT")\nexcept OSError: pass',
  "a file of the host's": 'try: print("GOT", open("/etc/passwd").read())\nexcept OSError: pass',
}

describe.runIf(isUsable)('an interpreter', () => {
  it.each(Object.entries(ATTACKS))(
    'survives %s, or ends with a reason, and the next block runs',
    async (name, code) => {
      using python = pythonTool({
        persistent: true,
        limits: { timeoutMs: name.startsWith('a stop') ? 1_500 : 15_000 },
        numWarm: 0,
      })
      const { signal } = new AbortController()
      const result = await say(python, [code], signal)
      expect(JSON.stringify(result)).not.toContain('GOT')
      expect(['ok', 'error', 'ended', 'timeout']).toContain((result as PythonResult).status)
      const { status, stdout } = (await say(python, ['print("here")'], signal)) as PythonResult
      if (status === 'ok') expect(stdout).toMatch(/here|^$|xxx/)
      // A conversation that broke its interpreter gets another one.
      expect(await say(python, ['1', '1 + 1'], signal)).toMatchObject({
        status: expect.stringMatching(/ok|error|ended/),
      })
      expect(await say(python, ['1 + 1'], new AbortController().signal)).toEqual(ok({ value: '2' }))
    },
  )

  it('leaves no process: not at a deadline, at the end of a conversation, or when it is closed', async () => {
    const mark = `fulmar-orphan-${process.pid}`
    const daemon = `import os, time
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0: os.execvp("python3", ["python3", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)", "${mark}"])
  os._exit(0)
time.sleep(0.2)`
    const python = pythonTool({ persistent: true, limits: PATIENT })
    const conversation = new AbortController()
    await say(python, [daemon], conversation.signal)
    conversation.abort()
    await say(python, [daemon], new AbortController().signal)
    python[Symbol.dispose]()
    await talk({}, daemon)
    for (let tries = 0; (await running(mark)) > 0 && tries < 1_000; tries++) await new Promise(setImmediate)
    expect(await running(mark)).toBe(0)
  })

  it('is started ahead, used once and ended: many at once leave none behind', async () => {
    const interpreters = new Interpreters({ numWarm: 4, maxInterpreters: 12, limits: PATIENT })
    for (let round = 0; round < 8; round++) {
      const results = await Promise.all(Array.from({ length: 4 }, () => interpreters.run('1', {})))
      expect(results).toEqual(results.map(() => ok({ value: '1' })))
      expect(interpreters.numOpen).toBeLessThanOrEqual(4)
    }
    interpreters.close()
    while (interpreters.numOpen > 0) await new Promise(setImmediate) // those that were starting
    await expect(interpreters.run('1', {})).rejects.toThrow(failing('CLOSED'))
  })

  it('is one of at most so many', async () => {
    using python = pythonTool({ persistent: true, limits: PATIENT, numWarm: 3, maxInterpreters: 2 })
    const [first, second, third] = Array.from({ length: 3 }, () => new AbortController())
    expect(await say(python, ['1'], first?.signal)).toEqual(ok({ value: '1' }))
    expect(await say(python, ['2'], second?.signal)).toEqual(ok({ value: '2' }))
    expect(await say(python, ['3'], third?.signal)).toBe('USER_CODE')
    second?.abort()
    expect(await say(python, ['3'], third?.signal)).toEqual(ok({ value: '3' }))
  })
})

/** Number of processes of the host whose command line has the text. */
async function running(mark: string): Promise<number> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')))
  return lines.filter((line) => line.includes(mark)).length
}

describe('pythonTool', () => {
  it('runs nothing without a sandbox, and refuses wrong options', async () => {
    using python = pythonTool({ bwrap: '/no/such/bwrap', backend: 'bubblewrap' })
    const run = new ToolRunner({ tools: [python] }).run(
      [{ tool: 'python', args: { code: '1' }, tag: null }],
      { messages: [] },
    )
    expect((await run)[0]).toMatchObject({
      ok: false,
      error: { message: expect.stringMatching(/sandbox must be available: bubblewrap/) },
    })
    expect(() => pythonTool({ limit: {} } as never)).toThrow(failing('UNKNOWN_NAME', /limits/))
    expect(() => pythonTool({ backend: 'none' as never })).toThrow(failing('UNKNOWN_NAME', /backend/))
    expect(() => pythonTool({ persistent: 1 as never })).toThrow(failing('MALFORMED', /persistent/))
    expect(() => pythonTool({ numWarm: -1 })).toThrow(failing('OUT_OF_RANGE', /numWarm/))
    expect(() => pythonTool({ maxInterpreters: 0 })).toThrow(failing('OUT_OF_RANGE', /maxInterpreters/))
    expect(() => pythonTool({ files: { '/etc/passwd': '' } })).toThrow(failing('MALFORMED', /relative/))
  })
})
