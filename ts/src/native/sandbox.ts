/** Renders an untrusted template in a WebAssembly instance of its own, which is thrown away afterwards. */

/** Input of one rendering. */
export interface SandboxRequest {
  readonly source: string
  /** The JSON text of the input. */
  readonly input: string
  readonly steps: number
  readonly outputBytes: number
  readonly memoryBytes: number
  readonly timeoutMs: number
}

/** Result of one rendering: a text with its spans, or a code with a message. */
export type SandboxReply =
  | { readonly text: string; readonly spans?: Uint32Array }
  | { readonly code: string; readonly message: string }

/** Export of `#sandbox`; package.json selects its file by condition. */
export declare const renderInSandbox: (request: SandboxRequest) => Promise<SandboxReply>

/**
 * Renders in a new instance of `module`, a `WebAssembly.Module`, which not every user's type libraries name. It uses
 * nothing outside itself, because the Node backend sends its text to a worker thread.
 */
export function renderOnce(module: object, request: SandboxRequest): SandboxReply {
  const PAGE_BYTES = 65536
  const NO_MEMORY = `a template must stay within ${request.memoryBytes} bytes of memory: got one that does not`
  const NO_ROOM = { code: 'LIMIT_EXCEEDED', message: NO_MEMORY }
  const encoder = new TextEncoder()
  const source = encoder.encode(request.source)
  const input = encoder.encode(request.input)
  if (source.length + input.length > request.memoryBytes / 2) return NO_ROOM
  try {
    const memory = new WebAssembly.Memory({ initial: 64, maximum: request.memoryBytes / PAGE_BYTES })
    const { exports } = new WebAssembly.Instance(module as WebAssembly.Module, { env: { memory } })
    const call = (name: string, ...args: number[]): number =>
      // Addresses and lengths are unsigned; WebAssembly hands them over as signed numbers.
      (exports[name] as (...args: number[]) => number)(...args) >>> 0
    const at = call('reserve', source.length + input.length)
    new Uint8Array(memory.buffer).set(source, at)
    new Uint8Array(memory.buffer).set(input, at + source.length)
    const outcome = call('render', source.length, request.steps, request.outputBytes)
    const bytes = new Uint8Array(memory.buffer, call('text_address'), call('text_length'))
    // By default a decoder drops a byte order mark.
    const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
    if (outcome === 2) return { text }
    if (outcome === 0) {
      return {
        text,
        spans: new Uint32Array(memory.buffer, call('spans_address'), call('spans_length')).slice(),
      }
    }
    const end = text.indexOf('\n')
    return { code: text.slice(0, end), message: text.slice(end + 1) }
  } catch {
    // A trap: the allocator found no memory, or the stack of the instance came to its end.
    return NO_ROOM
  }
}
