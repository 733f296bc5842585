/**
 * CPython's `random.Random(seed)`: the Mersenne Twister (M. Matsumoto, T. Nishimura, <https://doi.org/10.1145/272991.272995>), for rows whose
 * program drew with it. Fulmar's own draws come from Philox.
 */

const N = 624
const M = 397

export class PythonRandom {
  #state = new Uint32Array(N)
  #at = N

  /** @param {number} seed A non-negative integer below 2^32. */
  constructor(seed) {
    const mt = this.#state
    mt[0] = 19650218
    for (let i = 1; i < N; i++) mt[i] = Math.imul(1812433253, mt[i - 1] ^ (mt[i - 1] >>> 30)) + i
    let i = 1
    for (let k = N; k > 0; k--) {
      mt[i] = (mt[i] ^ Math.imul(mt[i - 1] ^ (mt[i - 1] >>> 30), 1664525)) + seed
      i += 1
      if (i >= N) {
        mt[0] = mt[N - 1]
        i = 1
      }
    }
    for (let k = N - 1; k > 0; k--) {
      mt[i] = (mt[i] ^ Math.imul(mt[i - 1] ^ (mt[i - 1] >>> 30), 1566083941)) - i
      i += 1
      if (i >= N) {
        mt[0] = mt[N - 1]
        i = 1
      }
    }
    mt[0] = 0x80000000
  }

  /** `_randbelow`: draws of as many bits as `bound` has, until one is below it. */
  below(bound) {
    const bits = 32 - Math.clz32(bound)
    for (;;) {
      const drawn = this.#word() >>> (32 - bits)
      if (drawn < bound) return drawn
    }
  }

  #word() {
    const mt = this.#state
    if (this.#at >= N) {
      for (let k = 0; k < N; k++) {
        const y = (mt[k] & 0x80000000) | (mt[(k + 1) % N] & 0x7fffffff)
        mt[k] = mt[(k + M) % N] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0)
      }
      this.#at = 0
    }
    let y = mt[this.#at++]
    y ^= y >>> 11
    y ^= (y << 7) & 0x9d2c5680
    y ^= (y << 15) & 0xefc60000
    return (y ^ (y >>> 18)) >>> 0
  }
}
