/**
 * The program of an interpreter on Pyodide, Python compiled to WebAssembly, in a process of Node with a permission model.
 *
 * ```text
 * host -- setup, requests -> this program -- block -> Python in WebAssembly (the code of the model)
 * host <-- frames ---------- this program <- outputs, end
 * ```
 *
 * It speaks the protocol of the interpreter's program. The code reaches no object of JavaScript that leads out: the modules
 * `js` and `pyodide_js` are gone, what all objects inherit is frozen, and no code can be made from text. Beyond that, the permission model refuses files,
 * processes, threads and addons, and what opens connections or sends signals is replaced before the code runs.
 */
export const PYODIDE_PROGRAM = `
import dgram from 'node:dgram'
import dns from 'node:dns'
import { constants, readSync, writeSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import net from 'node:net'

const [folder, home, blocks] = process.argv.slice(1)

function readExact(size) {
  const data = Buffer.alloc(size)
  for (let at = 0; at < size; ) {
    const count = readSync(0, data, at, size - at, null)
    if (count === 0) leave(0)
    at += count
  }
  return data
}
const readSized = () => readExact(readExact(4).readUInt32BE())

function send(kind, data = Buffer.alloc(0)) {
  const head = Buffer.alloc(5)
  head.write(kind)
  head.writeUInt32BE(data.length, 1)
  const frame = Buffer.concat([head, data])
  for (let at = 0; at < frame.length; ) at += writeSync(1, frame, at)
}

const refused = () => {
  throw new Error('this is refused in a sandbox')
}
function refuse(object, names) {
  for (const name of names) {
    if (object && name in object) Object.defineProperty(object, name, { value: refused, writable: false, configurable: false })
  }
}
const functionsOf = (object) => Object.getOwnPropertyNames(object).filter((name) => name !== 'constructor' && typeof object[name] === 'function')

function closeTheNetwork() {
  refuse(net.Socket.prototype, ['connect'])
  refuse(net.Server.prototype, ['listen'])
  refuse(net, ['connect', 'createConnection', 'createServer'])
  refuse(dgram.Socket.prototype, ['bind', 'send', 'connect', 'addMembership'])
  for (const one of [dns, dns.promises, dns.Resolver.prototype, dns.promises.Resolver.prototype]) refuse(one, functionsOf(one))
  syncBuiltinESMExports()
  for (const name of ['fetch', 'WebSocket', 'EventSource', 'XMLHttpRequest', 'BroadcastChannel']) delete globalThis[name]
}

const PROCESS = ['kill', '_kill', 'binding', '_linkedBinding', 'dlopen', 'getBuiltinModule', 'abort', 'chdir', 'setuid', 'setgid', 'seteuid',
  'setegid', 'setgroups', 'initgroups', 'umask', '_debugProcess', '_debugEnd', '_startProfilerIdleNotifier', 'openStdin', 'loadEnvFile', 'report']

function limitMemory(bytes) {
  const { grow } = WebAssembly.Memory.prototype
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (this.buffer.byteLength + 65536 * pages > bytes) throw new RangeError('no memory is left')
    return grow.call(this, pages)
  }
}

/** Code of a model can reach objects of JavaScript through values that it converts; it must not change what all of them inherit. */
function freezeIntrinsics() {
  const seen = new Set([globalThis])
  const asked = Object.getOwnPropertyNames(globalThis).map((name) => Object.getOwnPropertyDescriptor(globalThis, name).value)
  asked.push((async () => {}).constructor, (function* () {}).constructor, (async function* () {}).constructor, [][Symbol.iterator]().__proto__)
  const errors = [Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, AggregateError]
  for (const { prototype } of [Object, Function, ...errors]) keepOverridable(prototype)
  while (asked.length > 0) {
    const one = asked.pop()
    if ((typeof one !== 'object' && typeof one !== 'function') || one === null || seen.has(one)) continue
    seen.add(one)
    if (ArrayBuffer.isView(one)) continue
    for (const key of Reflect.ownKeys(one)) {
      const { value, get, set } = Object.getOwnPropertyDescriptor(one, key)
      asked.push(value, get, set)
    }
    asked.push(Object.getPrototypeOf(one))
    if (one !== Error) Object.freeze(one) // Pyodide sets its limit of stack traces
  }
}

/** Lets objects have properties of their own in the place of those that they inherit from a frozen object. */
function keepOverridable(prototype) {
  for (const key of Reflect.ownKeys(prototype)) {
    const { value, configurable, enumerable } = Object.getOwnPropertyDescriptor(prototype, key)
    if (!configurable || value === undefined) continue
    const set = function (next) {
      if (this === prototype) throw new TypeError('this is frozen')
      Object.defineProperty(this, key, { value: next, writable: true, enumerable: true, configurable: true })
    }
    Object.defineProperty(prototype, key, { get: () => value, set, enumerable, configurable: true })
  }
}

const leave = process.exit
const limits = readExact(48)
const [memoryMax, outputMax] = [8, 40].map((at) => Number(limits.readBigUInt64BE(at)))
const files = Array.from({ length: readExact(4).readUInt32BE() }, () => [readSized().toString(), readSized()])
closeTheNetwork()
limitMemory(memoryMax)
// A file system of Emscripten reads these when it is loaded, though nothing mounts it.
process.binding = (name) => (name === 'constants' ? { fs: constants } : refused())
const { loadPyodide } = await import(folder + 'pyodide.mjs')
const python = await loadPyodide({ indexURL: folder, jsglobals: {}, env: { HOME: home }, stdin: () => null })

let room = 0
let isCut = false
function output(kind) {
  return {
    write(bytes) {
      const kept = bytes.subarray(0, room)
      room -= kept.length
      if (kept.length > 0) send(kind, Buffer.from(kept))
      if (kept.length < bytes.length && !isCut) {
        isCut = true
        send('C')
      }
      return bytes.length
    },
    isatty: false,
  }
}
python.setStdout(output('O'))
python.setStderr(output('E'))

const { FS } = python
FS.mkdirTree(home)
FS.chdir(home)
for (const [path, data] of files) {
  const parts = (home + '/' + path).split('/').slice(0, -1)
  FS.mkdirTree(parts.join('/'))
  FS.writeFile(home + '/' + path, data)
}

const own = python.toPy({})
python.runPython(blocks, { globals: own })
python.runPython(\`
import struct, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
sys.path.insert(0, "\${home}")

def block(source, count, room):
    ok, value, error = run_block(source.encode("utf-8", "surrogatepass"), "<block %d>" % count, main.__dict__)
    flags = (value is not None) + 2 * (len(value or b"") > room or len(error) > room)
    text, error = (value or b"")[:room], error[-room:]
    return struct.pack(">BBI", ok, flags, len(text)) + text + struct.pack(">I", len(error)) + error
\`, { globals: own })
const block = own.get('block')
python.runPython('import pyodide_js, js')
for (const name of ['pyodide_js', 'js']) python.unregisterJsModule(name)
python.runPython('import sys\\nfor name in [n for n in sys.modules if n.split(".")[0] in ("pyodide_js", "js")]: del sys.modules[name]')
refuse(process, PROCESS)
delete globalThis.process
freezeIntrinsics()

send('R')
for (let count = 1; ; count++) {
  readExact(16)
  const source = readSized().toString()
  room = outputMax
  isCut = false
  let end
  try {
    const result = block(source, count, outputMax)
    end = Buffer.from(result.toJs())
    result.destroy()
  } catch (error) {
    send('X', Buffer.from('it ended with ' + String(error).split('\\n')[0].slice(0, 200)))
    leave(1)
  }
  send('D', end)
}
`
