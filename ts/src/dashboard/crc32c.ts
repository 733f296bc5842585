/** CRC-32C (Castagnoli), as records of TensorFlow have it; Node's own `crc32` has another polynomial. */

/** The polynomial 0x1EDC6F41, its bits in reverse. */
const POLYNOMIAL = 0x82f63b78

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1
  return value >>> 0
})

/** Returns the checksum of `bytes` as an unsigned integer. */
export function crc32c(bytes: Uint8Array): number {
  let value = 0xffffffff
  for (const byte of bytes) value = (value >>> 8) ^ (TABLE[(value ^ byte) & 0xff] ?? 0)
  return ~value >>> 0
}

/** The checksum turned and shifted, so that data which holds checksums has no weak ones. */
export function maskedCrc32c(bytes: Uint8Array): number {
  const value = crc32c(bytes)
  return (((value >>> 15) | (value << 17)) + 0xa282ead8) >>> 0
}
