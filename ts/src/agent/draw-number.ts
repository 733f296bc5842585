/** A number for each draw of a rollout, which no other request changes. */

/** Bits of a hash that are kept: the number stays a safe integer with up to 2^21 draws. */
const HASH_BITS = 2 ** 32

/** Returns a safe integer for the `times`-th draw from a prompt. Costs O(prompt). */
export function drawNumber(promptIds: Uint32Array, seed: number | undefined, times: number): number {
  let hash = mixed(0x811c9dc5, seed === undefined ? 0 : 1)
  for (const id of promptIds) hash = mixed(hash, id)
  if (seed !== undefined) hash = mixed(mixed(hash, seed % HASH_BITS), Math.floor(seed / HASH_BITS))
  return (times % 2 ** 21) * HASH_BITS + hash
}

/** One step of FNV-1a over 32 bits at once, with the halves folded. */
function mixed(hash: number, value: number): number {
  const next = Math.imul(hash ^ value, 0x01000193)
  return (next ^ (next >>> 15)) >>> 0
}
