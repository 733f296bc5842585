/** Runs of a sandbox on Pyodide: each has a process of its own, which takes the home as an archive and gives it back. */

import type { Clock } from '../telemetry/index.js'
import { killGroup, type ProgramEnd } from './bubblewrap.js'
import { Interpreter } from './interpreter.js'
import { startInPyodide, whyNoPyodide } from './pyodide.js'
import type { SandboxAction } from './sandbox-action.js'
import type { SandboxLimits } from './sandbox-limits.js'

/** One run. */
export interface PyodideRun {
  readonly action: SandboxAction
  readonly stdin: Uint8Array
  /** The home before, as an archive; empty for an empty home. */
  readonly home: Uint8Array
  readonly limits: Required<SandboxLimits>
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
}

/** Starts an interpreter on Pyodide. @throws {FulmarError} `UNAVAILABLE` if it does not start. */
export async function startPyodide(
  limits: Required<SandboxLimits>,
  files: Readonly<Record<string, string | Uint8Array>>,
  clock: Clock,
): Promise<Interpreter> {
  const child = startInPyodide(limits)
  const kill = () => (process.platform === 'win32' ? child.kill('SIGKILL') : killGroup(child))
  return await Interpreter.start({ child, limits, files, clock, kill, why: whyNoPyodide })
}

/** Python: does what the action asks, and returns the exit code and the home as text. */
const RUN = `
import base64, io, os, shutil, sys, tarfile, traceback
with open("/in/home", "rb") as home:
    if os.path.getsize("/in/home"):
        with tarfile.open(fileobj=home) as archive:
            archive.extractall("/sandbox", filter="fully_trusted")
os.chdir("/sandbox")
def read(name):
    with open("/in/" + name, "rb") as file:
        return file.read()
kind, word, data = read("kind").decode(), read("word").decode(), read("stdin")
limit, code = int(read("limit")), 0
shutil.rmtree("/in")
def used():
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk("/sandbox") for name in names if not os.path.islink(os.path.join(folder, name)))
try:
    if kind == "code":
        sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
        sys.argv = ["-c"]
        exec(compile(word, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    elif kind == "write":
        os.makedirs(os.path.dirname(os.path.abspath(word)), exist_ok=True)
        with open(word, "wb") as file:
            file.write(data)
    else:
        with open(word, "rb") as file:
            sys.stdout.flush()
            os.write(1, file.read())
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if code == 1 and end.code != 1:
        print(end.code, file=sys.stderr)
except OSError if kind != "code" else () as error:
    print(error, file=sys.stderr)
    code = 1
except BaseException:
    traceback.print_exc()
    code = 1
for stream in (sys.stdout, sys.stderr):
    stream.flush()
if used() > limit:
    os.write(2, b"the home has no space for so many bytes\\n")
    result = "%d:-" % (code or 1)
else:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add("/sandbox", arcname=".")
    result = "%d:%s" % (code % 256, base64.b64encode(archive.getvalue()).decode())
result`

/** Bytes of an archive and its text beyond those of the files. */
const ARCHIVE_BYTES = 4_194_304

/**
 * Runs an action to its end, or to one of its limits.
 * @throws {FulmarError} `UNAVAILABLE` if Pyodide does not start; `ABORTED` if the signal fires.
 */
export async function runInPyodide({
  action,
  stdin,
  home,
  limits,
  clock,
  signal,
}: PyodideRun): Promise<ProgramEnd> {
  // The home comes back as a value, which has the limit of output.
  const roomy = { ...limits, outputBytes: limits.outputBytes + 3 * limits.homeBytes + ARCHIVE_BYTES }
  const inputs = { home, stdin, kind: action.kind, word: wordOf(action), limit: String(limits.homeBytes) }
  const files = Object.fromEntries(Object.entries(inputs).map(([name, data]) => [`../in/${name}`, data]))
  const interpreter = await startPyodide(roomy, files, clock)
  try {
    const result = await interpreter.run(RUN, { timeoutMs: limits.timeoutMs, signal })
    return endOf(result, limits.outputBytes)
  } finally {
    interpreter.close()
  }
}

function wordOf(action: SandboxAction): string {
  if (action.kind === 'code') return action.code
  return action.kind === 'command' ? '' : action.path
}

function endOf(
  { status, stdout, stderr, value, error }: Awaited<ReturnType<Interpreter['run']>>,
  max: number,
): ProgramEnd {
  const [out, err] = [Buffer.from(stdout, 'utf8'), Buffer.from(stderr, 'utf8')]
  const outputs = { stdout: out.subarray(0, max), stderr: err.subarray(0, Math.max(0, max - out.length)) }
  const [, code, archive = '-'] = /^'(\d+):(.*)'$/s.exec(value ?? '') ?? []
  if (out.length + err.length > max) return { status: 'output', exitCode: null, home: null, ...outputs }
  if (status === 'timeout') return { status, exitCode: null, home: null, ...outputs }
  const home = archive === '-' ? null : Buffer.from(archive, 'base64')
  if (code !== undefined) return { status: 'exited', exitCode: Number(code), home, ...outputs }
  // The code ended the interpreter.
  return { status: 'exited', exitCode: 137, home: null, ...outputs, stderr: Buffer.from(error ?? '', 'utf8') }
}
