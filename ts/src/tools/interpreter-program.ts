/**
 * Python: runs a block in a scope; returns whether it succeeded, and the bytes of its value and of its traceback.
 *
 * It imports `traceback` for an exception, and not before, because a block takes less time than that. The lines of blocks are
 * given to `linecache`, which tracebacks read them from, as the code or an exception imports it.
 */
export const BLOCK_PROGRAM = `
import _ast, sys

START_PATH = list(sys.path)
lines_of_blocks = {}

def run_block(source, name, scope):
    value, error = None, b""
    try:
        value = evaluate(source.decode("utf-8"), name, scope)
    except BaseException as exception:
        if not (type(exception) is SystemExit and type(exception.code) in (int, type(None)) and not exception.code):
            error = described(exception) or b"an exception without a description"
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass
    return not error, value, error

def evaluate(source, name, scope):
    keep_lines(source, name)
    tree = compile(source, name, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), scope)
    if last is None:
        return None
    value = eval(compile(_ast.Expression(last.value), name, "eval", dont_inherit=True), scope)
    return None if value is None else utf8(repr(value))

def keep_lines(source, name):
    entry = lines_of_blocks[name] = (len(source), None, source.splitlines(True), name)
    cache = getattr(sys.modules.get("linecache"), "cache", None)
    if isinstance(cache, dict):
        cache[name] = entry

class LineCacheLoader:
    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module.cache.update(lines_of_blocks)

class LineCacheFinder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "linecache":
            return None
        sys.meta_path.remove(LineCacheFinder)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in sys.meta_path)))
        spec.loader = LineCacheLoader(spec.loader)
        return spec

sys.meta_path.insert(0, LineCacheFinder)

def described(exception):
    try:
        trace = exception.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        return utf8("".join(traceback_module().format_exception(type(exception), exception, trace)))
    except BaseException:
        return named(exception)

def traceback_module():
    path, sys.path = sys.path, START_PATH
    try:
        import traceback
    finally:
        sys.path = path
    return traceback

def named(exception):
    name = type(exception).__name__
    try:
        return utf8(name + ": " + str(exception))
    except BaseException:
        return utf8(name)

def utf8(text):
    return text.encode("utf-8", "backslashreplace")

__file__ = run_block.__code__.co_filename
`

/**
 * The program of an interpreter in a sandbox: a supervisor, and the process that runs blocks of code.
 *
 * ```text
 * host -- requests -> supervisor -- blocks -> runner (the code of the model)
 * host <-- frames --- supervisor <- outputs, ends -- runner
 * ```
 *
 * The runner has no descriptor of the host: its outputs are pipes of the supervisor, which writes each part as a frame
 * with its length. So no text that the code prints can end a block or pass for another output. The supervisor is not
 * dumpable, so the runner cannot open its descriptors under `/proc` or trace it. The end of a block carries the random
 * number of its request: an end without a request, or with another number, ends the interpreter.
 *
 * All numbers are big-endian.
 *
 * ```text
 * setup    6 x u64 limits (cpu s, memory, file bytes, processes, open files, output bytes), u32 files: u32 + path, u32 + data
 * request  16 bytes random number, u32 + code
 * frame    u8 kind, u32 + data; kinds: R ready, O stdout, E stderr, C output was cut, D end, X broken (reason)
 * end      u8 ok, u8 1 for a value + 2 if value or error was cut, u32 + value, u32 + error
 * ```
 */
export const INTERPRETER_PROGRAM = `${BLOCK_PROGRAM}
import ctypes, os, resource, select, signal, struct, sys, types

CHUNK = 65536
END_MAX = 1 << 26

def read_exact(fd, size):
    data = bytearray()
    while len(data) < size:
        part = os.read(fd, min(size - len(data), CHUNK))
        if not part:
            os._exit(0)
        data += part
    return bytes(data)

def read_sized(fd):
    return read_exact(fd, struct.unpack(">I", read_exact(fd, 4))[0])

def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]

def set_dumpable(flag):
    if ctypes.CDLL(None).prctl(4, flag, 0, 0, 0) != 0:
        os._exit(9)

def send(kind, data=b""):
    write_all(1, struct.pack(">cI", kind, len(data)) + data)

def broken(reason):
    send(b"X", reason.encode())
    os._exit(0)

def set_up():
    set_dumpable(0)
    cpu, memory, file, processes, files, output = struct.unpack(">6Q", read_exact(0, 48))
    for what, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, memory),
                        (resource.RLIMIT_FSIZE, file), (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_NOFILE, files)):
        resource.setrlimit(what, (limit, limit))
    for _ in range(struct.unpack(">I", read_exact(0, 4))[0]):
        path, data = read_sized(0), read_sized(0)
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with open(path, "wb") as made:
                made.write(data)
        except OSError as error:
            broken("file " + os.fsdecode(path)[:200] + " must fit into the home: " + str(error.strerror))
    return output

def start_runner(room):
    (code_r, code_w), (end_r, end_w), (out_r, out_w), (err_r, err_w) = (os.pipe() for _ in range(4))
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_RDONLY)
        for fd, place in ((null, 0), (out_w, 1), (err_w, 2)):
            os.dup2(fd, place)
        code, end = os.dup2(code_r, 20), os.dup2(end_w, 21)
        os.closerange(3, 20)
        os.closerange(22, 256)
        set_dumpable(1)
        run_blocks(code, end, min(room, END_MAX))
    for fd in (code_r, end_w, out_w, err_w):
        os.close(fd)
    for fd in (code_w, out_r, err_r):
        os.set_blocking(fd, False)
    return pid, code_w, end_r, out_r, err_r

class Supervisor:
    def __init__(self):
        self.output_max = set_up()
        self.pid, self.code_w, self.end_r, self.out_r, self.err_r = start_runner(self.output_max)
        self.runner = os.pidfd_open(self.pid)
        self.kinds = {self.out_r: b"O", self.err_r: b"E"}
        send(b"R")

    def run(self):
        while True:
            poll = select.poll()
            for fd in (0, self.end_r):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            if self.end_r in ready:
                broken("its end came between blocks")
            self.block(read_exact(0, 16), read_sized(0))

    def block(self, nonce, code):
        self.room, self.is_cut, self.end = self.output_max, False, bytearray()
        pending = memoryview(nonce + struct.pack(">I", len(code)) + code)
        poll = select.poll()
        for fd in (0, self.end_r, self.runner, *self.kinds):
            poll.register(fd, select.POLLIN)
        poll.register(self.code_w, select.POLLOUT)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            for fd in ready & self.kinds.keys():
                if not self.forward(fd):
                    poll.unregister(fd)
            if self.code_w in ready:
                pending = self.feed(pending)
                if not pending:
                    poll.unregister(self.code_w)
            if self.end_r in ready:
                self.end += os.read(self.end_r, CHUNK)
                if self.ended(nonce):
                    return
            elif self.runner in ready:
                self.drain()
                broken("it ended with " + self.why())
            if 0 in ready:
                os._exit(0)

    def feed(self, pending):
        try:
            return pending[os.write(self.code_w, pending):]
        except BlockingIOError:
            return pending
        except BrokenPipeError:
            return pending[:0]

    def ended(self, nonce):
        end = self.end
        if len(end) == 0:
            self.drain()
            broken("it ended with " + self.why())
        if not nonce.startswith(bytes(end[:16])):
            self.drain()
            broken("the code wrote an end of its own")
        if len(end) < 22:
            return False
        value = struct.unpack(">I", end[18:22])[0]
        if value > END_MAX:
            broken("the code wrote an end of its own")
        if len(end) < 26 + value:
            return False
        error = struct.unpack(">I", end[22 + value:26 + value])[0]
        if error > END_MAX or len(end) > 26 + value + error:
            broken("the code wrote an end of its own")
        if len(end) < 26 + value + error:
            return False
        self.drain()
        send(b"D", bytes(end[16:]))
        return True

    def forward(self, fd):
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return True
        kept = data[:self.room]
        self.room -= len(kept)
        if kept:
            send(self.kinds[fd], kept)
        if len(kept) < len(data) and not self.is_cut:
            self.is_cut = True
            send(b"C")
        if not data:
            del self.kinds[fd]
        return bool(data)

    def drain(self):
        for fd in list(self.kinds):
            for _ in range(16):
                if not select.select([fd], [], [], 0)[0] or not self.forward(fd):
                    break

    def why(self):
        if not select.select([self.runner], [], [], 1)[0]:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return "signal " + signal.Signals(-code).name if code < 0 else "exit code " + str(code)

def run_blocks(code_fd, end_fd, room):
    pid, count = os.getpid(), 0
    main, own = types.ModuleType("__main__"), sys.modules["__main__"]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    sys.path.insert(0, os.getcwd())
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    while True:
        nonce = read_exact(code_fd, 16)
        source = read_sized(code_fd)
        count += 1
        ok, value, error = own.run_block(source, "<block %d>" % count, main.__dict__)
        if os.getpid() != pid:
            os._exit(0)
        flags = (value is not None) + 2 * (len(value or b"") > room or len(error) > room)
        text, error = (value or b"")[:room], error[-room:]
        write_all(end_fd, nonce + struct.pack(">BBI", ok, flags, len(text)) + text + struct.pack(">I", len(error)) + error)

Supervisor().run()
`
