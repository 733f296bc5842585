import { describe, expect, it } from 'vitest'
import { seccompFilter } from '../../src/tools/seccomp.js'

const ALLOW = 0x7fff0000
const REFUSE = 0x00050001
const X64 = 0xc000003e
const ARM64 = 0xc00000b7

/** The kernel's machine, for the four instructions that a filter uses. */
function verdict(filter: Uint8Array, call: number, audit: number): number {
  const view = new DataView(filter.buffer)
  let value = 0
  for (let at = 0; at < filter.length / 8; at++) {
    const k = view.getUint32(8 * at + 4, true)
    const [whenTrue, whenFalse] = [view.getUint8(8 * at + 2), view.getUint8(8 * at + 3)]
    const code = view.getUint16(8 * at, true)
    if (code === 0x06) return k
    if (code === 0x20) value = k === 4 ? audit : call
    else at += (code === 0x15 ? value === k : value >= k) ? whenTrue : whenFalse
  }
  throw new Error('a filter must end with a verdict')
}

describe('seccompFilter', () => {
  it.each([
    [
      'x64',
      X64,
      [0, 1, 59, 101, 247, 251, 424, 428],
      [248, 249, 250, 298, 321, 323, 425, 427, 0x40000000 + 1],
    ],
    ['arm64', ARM64, [0, 56, 216, 220, 424, 428], [217, 218, 219, 241, 280, 282, 425, 427]],
  ] as const)(
    'of %s refuses its calls, those of other sets, and nothing else',
    (arch, audit, allowed, refused) => {
      const filter = seccompFilter(arch) ?? new Uint8Array(0)
      expect(allowed.map((call) => verdict(filter, call, audit))).toEqual(allowed.map(() => ALLOW))
      expect(refused.map((call) => verdict(filter, call, audit))).toEqual(refused.map(() => REFUSE))
      expect(verdict(filter, 1, 0x40000003)).toBe(REFUSE)
    },
  )

  it('is none for other processors', () => {
    expect(seccompFilter('riscv64')).toBe(undefined)
  })
})
