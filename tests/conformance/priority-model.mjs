/** State of TorchRL's prioritized sampler: a leaf per row, `(priority + eps) ** alpha` in single precision, and the largest priority. */

const range = (count) => Array.from({ length: count }, (_, at) => at)

export class PriorityModel {
  #alpha

  constructor(capacity, { alpha, eps = 1e-8, max_priority_within_buffer: within = false }) {
    this.capacity = capacity
    this.#alpha = alpha
    this.eps = eps
    this.within = within
    this.clear()
  }

  clear() {
    this.leaves = range(this.capacity).map(() => 0)
    this.largest = null
  }

  clone() {
    const copy = new PriorityModel(this.capacity, {
      alpha: this.#alpha,
      eps: this.eps,
      max_priority_within_buffer: this.within,
    })
    copy.leaves = [...this.leaves]
    copy.largest = this.largest
    return copy
  }

  /** The priority of what has none yet. */
  get preset() {
    return this.largest?.[0] ?? 1
  }

  get alpha() {
    return this.#alpha
  }

  /** Another exponent: leaves are made anew from the priorities that they hold. */
  set alpha(alpha) {
    if (this.#alpha !== 0)
      this.leaves = this.leaves.map((leaf) =>
        leaf > 0 ? Math.fround((this.raw(leaf) + this.eps) ** alpha) : leaf,
      )
    this.#alpha = alpha
  }

  /** The priority of a leaf. */
  raw(leaf) {
    return Math.max(leaf ** (1 / this.#alpha) - this.eps, 0)
  }

  /** Sets priorities, one for all or one each; rows below 0 are ignored. */
  set(rows, given) {
    const pairs = rows.map((row, at) => [row, typeof given === 'number' ? given : given[at]])
    const held = pairs.filter(([row]) => row >= 0)
    if (held.length === 0) return
    const [row, value] = held.reduce((best, one) => (one[1] > best[1] ? one : best))
    if (this.largest === null || value > this.largest[0]) this.largest = [value, row]
    for (const [place, priority] of held)
      this.leaves[place] = Math.fround((priority + this.eps) ** this.#alpha)
    if (this.within && this.#alpha !== 0 && held.some(([place]) => place === this.largest[1])) {
      const most = Math.max(...this.leaves)
      this.largest = [this.raw(most), this.leaves.indexOf(most)]
    }
  }

  /** The largest is forgotten with the row that had it. */
  overwritten(rows) {
    if (this.within && this.largest !== null && rows.includes(this.largest[1])) this.largest = null
  }

  state(length) {
    const held = this.leaves.slice(0, length)
    return {
      sum_leaves: this.leaves,
      max_priority: this.largest,
      p_sum: held.reduce((sum, leaf) => sum + leaf, 0),
      p_min: Math.min(...held),
    }
  }
}
