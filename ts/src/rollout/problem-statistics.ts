/**
 * Estimates from several answers to each of several problems, with intervals that are clustered by problem.
 *
 * ```text
 * value of a problem: v_i, a function of its answers; estimate: m = mean_i v_i over G problems
 * standard error:     s = sqrt(sum_i (v_i - m)^2 / (G - 1) / G)
 * ```
 *
 * Answers to one problem resemble each other, so the problem is the unit that varies, not the answer
 * (E. Miller, Adding Error Bars to Evals, https://arxiv.org/abs/2411.00640).
 */

/** A 95 % interval. */
export type Interval = readonly [low: number, high: number]

/** The 97.5 % quantile of the normal distribution. */
const Z = 1.959964

/**
 * Probability that one of `k` answers, drawn from `count` of which `solved` pass, passes: `1 - C(count -
 * solved, k) / C(count, k)` (M. Chen et al., https://arxiv.org/abs/2107.03374).
 */
export function passChance(count: number, solved: number, k: number): number {
  if (count - solved < k) return 1
  let missing = 1
  for (let index = count - solved + 1; index <= count; index++) missing *= 1 - k / index
  return 1 - missing
}

/** Mean of the values; NaN without one. */
export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

/** Interval of the mean of the problems' values by Student's t; `null` for fewer than two problems. */
export function meanInterval(values: readonly number[]): Interval | null {
  if (values.length < 2) return null
  const middle = mean(values)
  const half = studentQuantile(values.length - 1) * standardError(values)
  return [middle - half, middle + half]
}

/**
 * Interval of the mean of values in [0, 1] by Wilson's score (https://doi.org/10.1080/01621459.1927.10502953),
 * for as many independent trials as have the same standard error: at least one a problem, at most one an answer.
 * Unlike a normal interval it is not empty where all values are equal. [0, 1] without a value.
 */
export function shareInterval(values: readonly number[], numAnswers: number): Interval {
  if (values.length === 0) return [0, 1]
  const share = Math.min(1, mean(values))
  const variance = values.length < 2 ? 0 : standardError(values) ** 2
  const numTrials = variance > 0 ? (share * (1 - share)) / variance : values.length
  return wilsonInterval(share, Math.min(Math.max(numTrials, values.length), numAnswers))
}

function standardError(values: readonly number[]): number {
  const middle = mean(values)
  const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0)
  return Math.sqrt(squares / (values.length - 1) / values.length)
}

function wilsonInterval(share: number, count: number): Interval {
  const scale = 1 + Z ** 2 / count
  const middle = (share + Z ** 2 / (2 * count)) / scale
  const half = (Z * Math.sqrt((share * (1 - share)) / count + Z ** 2 / (4 * count ** 2))) / scale
  return [Math.max(0, middle - half), Math.min(1, middle + half)]
}

/** Degrees of freedom from which the series of {@link studentQuantile} is exact to nine digits. */
const SERIES_FROM = 100

/**
 * 97.5 % quantile of Student's t: by bisection of the exact distribution, and for many degrees of freedom by
 * the series around the normal quantile (Abramowitz and Stegun, 26.7.3 to 26.7.5).
 */
export function studentQuantile(degrees: number): number {
  const z = 1.959963984540054
  if (degrees >= SERIES_FROM) {
    const terms = [z, (z ** 3 + z) / 4, (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96]
    const third = (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384
    return [...terms, third].reduce((sum, term, power) => sum + term / degrees ** power, 0)
  }
  let [low, high] = [0, 13]
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2
    if (centralMass(middle, degrees) < 0.95) low = middle
    else high = middle
  }
  return high
}

/** Probability of a value between `-t` and `t`. */
function centralMass(t: number, degrees: number): number {
  const angle = Math.atan(t / Math.sqrt(degrees))
  const isOdd = degrees % 2 === 1
  let [term, sum] = isOdd ? [Math.cos(angle), 0] : [1, 0]
  for (let power = isOdd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term
    term *= ((power + 1) / (power + 2)) * Math.cos(angle) ** 2
  }
  return isOdd ? (2 / Math.PI) * (angle + Math.sin(angle) * sum) : Math.sin(angle) * sum
}
