/**
 * A filter of system calls, as the kernel's bytecode (classic BPF).
 *
 * ```text
 * another instruction set -> refused; a call of the list -> refused with EPERM; else allowed
 * ```
 *
 * It refuses what namespaces do not keep apart: keyrings, which outlive a sandbox, and interfaces of the kernel that
 * programs of a model do not need.
 */

/** Refused calls by instruction set: its name for `seccomp`, and the numbers of its calls. */
const REFUSED = {
  x64: {
    audit: 0xc000003e,
    calls: [
      ...[248, 249, 250], // add_key, request_key, keyctl
      ...[298, 303, 304, 321, 323], // perf_event_open, name_to_handle_at, open_by_handle_at, bpf, userfaultfd
      ...[425, 426, 427], // io_uring
    ],
  },
  arm64: {
    audit: 0xc00000b7,
    calls: [217, 218, 219, 241, 264, 265, 280, 282, 425, 426, 427],
  },
} as const

/** From this number on, calls of x86-64 are of its second set, x32. */
const X32 = 0x40000000

const LOAD = 0x20
const JUMP_EQUAL = 0x15
const JUMP_AT_LEAST = 0x35
const RETURN = 0x06
const ALLOW = 0x7fff0000
/** Refuses with EPERM. */
const REFUSE = 0x00050001

/** Returns the filter for the processor of this process; `undefined` for another than x86-64 and ARM. */
export function seccompFilter(arch: string = process.arch): Uint8Array | undefined {
  if (arch !== 'x64' && arch !== 'arm64') return undefined
  const { audit, calls } = REFUSED[arch]
  // The last two instructions allow and refuse; jumps count what they leap over.
  const checks = calls.map((call, index) => [JUMP_EQUAL, calls.length - index, 0, call] as const)
  const program = [
    [LOAD, 0, 0, 4],
    [JUMP_EQUAL, 0, calls.length + 3, audit],
    [LOAD, 0, 0, 0],
    [JUMP_AT_LEAST, calls.length + 1, 0, X32],
    ...checks,
    [RETURN, 0, 0, ALLOW],
    [RETURN, 0, 0, REFUSE],
  ] as const
  const bytes = new DataView(new ArrayBuffer(8 * program.length))
  program.forEach(([code, whenTrue, whenFalse, value], index) => {
    bytes.setUint16(8 * index, code, true)
    bytes.setUint8(8 * index + 2, whenTrue)
    bytes.setUint8(8 * index + 3, whenFalse)
    bytes.setUint32(8 * index + 4, value, true)
  })
  return new Uint8Array(bytes.buffer)
}
