/** Patterns of file names, as `allow_patterns` of the hub's client. */

/**
 * Returns true if the whole `name` matches `pattern`: `*` matches any characters, slashes included, and `?`
 * for one. Costs at most `O(|pattern| * |name|)`.
 */
export function matchesPattern(name: string, pattern: string): boolean {
  let [at, next, star, resumed] = [0, 0, -1, 0]
  while (at < name.length) {
    const wanted = pattern.charAt(next)
    if (wanted === '*') {
      star = next++
      resumed = at
    } else if (wanted === name.charAt(at) || wanted === '?') {
      at++
      next++
    } else if (star >= 0) {
      next = star + 1
      at = ++resumed
    } else return false
  }
  while (pattern.charAt(next) === '*') next++
  return next === pattern.length
}
