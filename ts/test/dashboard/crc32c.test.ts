import { describe, expect, it } from 'vitest'
import { crc32c, maskedCrc32c } from '../../src/dashboard/crc32c.js'

describe('crc32c', () => {
  it('agrees with the rows of RFC 3720, section B.4', () => {
    const ascending = Uint8Array.from({ length: 32 }, (_, index) => index)
    expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa)
    expect(crc32c(new Uint8Array(32).fill(255))).toBe(0x62a8ab43)
    expect(crc32c(ascending)).toBe(0x46dd794e)
    expect(crc32c(ascending.toReversed())).toBe(0x113fdb5c)
    expect(crc32c(new TextEncoder().encode('123456789'))).toBe(0xe3069283)
    expect(crc32c(new Uint8Array(0))).toBe(0)
  })

  it('masks by a turn of 15 bits and a constant', () => {
    expect(maskedCrc32c(new Uint8Array(0))).toBe(0xa282ead8)
    const naive = (BigInt(0xe3069283 >>> 15) | (BigInt(0xe3069283) << 17n)) + 0xa282ead8n
    expect(maskedCrc32c(new TextEncoder().encode('123456789'))).toBe(Number(naive & 0xffffffffn))
  })
})
