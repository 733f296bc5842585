/**
 * The kind of each member of a row: an input, an expected value, an error, or a member that is not compared, with the reason.
 *
 * A path names members with points, `*` for each element of a list: `ops.*.ok`. Everything below a named path belongs to it; a member
 * that no path names is one that the adapter does not know, and the row fails.
 *
 * @typedef {object} Members
 * @property {string} [input] Paths of what goes in, with spaces between them.
 * @property {string} [expected] Paths of what must come out.
 * @property {string} [refusal] `error:ok`: a row with the member `error` must fail, and one with `ok` must succeed.
 * @property {Record<string, string>} [aside] Paths of what is not compared, each with the reason; parts of expected values, too.
 */

/** The members of a row: an adapter's own, or those that it has for the kind of the row. */
export const membersOf = ({ members }, row) => (typeof members === 'function' ? members(row) : members)

const words = (text = '') => text.split(/\s+/).filter(Boolean)

/** The paths of a kind, as lists. */
export function pathsOf({ input, expected, refusal, aside = {} }) {
  const refusals = words(refusal).map((pair) => pair.split(':'))
  return { input: words(input), expected: words(expected), refusals, aside: Object.keys(aside) }
}

/** The first member of a row that no path names. */
export function unknownMember(members, row) {
  if (members === undefined) return undefined
  const { input, expected, refusals, aside } = pathsOf(members)
  const tree = {}
  const successes = refusals.map(([error, ok]) => [...error.split('.').slice(0, -1), ok].join('.'))
  for (const path of [...input, ...expected, ...refusals.map(([error]) => error), ...successes, ...aside]) {
    let node = tree
    for (const name of path.split('.')) node = node[name] ??= {}
    node.$whole = true
  }
  return strange(tree, row, [])
}

function strange(node, value, path) {
  if (node.$whole || typeof value !== 'object' || value === null) return undefined
  for (const [name, inner] of Object.entries(value)) {
    const next = Object.hasOwn(node, name) ? node[name] : node['*']
    if (next === undefined) return [...path, name].join('.')
    const below = strange(next, inner, [...path, name])
    if (below !== undefined) return below
  }
  return undefined
}
