/** Judges rows: finds the adapter of each, reads what the rows of one file share, and says what became of it. */

import { readFileSync } from 'node:fs'
import { ADAPTERS } from './adapters.mjs'
import { membersOf, unknownMember } from './members.mjs'
import { members } from './raw-json.mjs'

/** The page with a line for each decision: `| decision | reason |`. */
const DIFFERENCES = new URL('../../docs/differences.md', import.meta.url)

/** The decisions that `docs/differences.md` names. */
export function namedDecisions(text = readFileSync(DIFFERENCES, 'utf8')) {
  return new Set([...text.matchAll(/^\| (.+?) \| .+ \|$/gm)].map(([, name]) => name))
}

/** Judges the rows of one file of `folder`. */
export class Judge {
  #folder
  #prepared = new Map()
  #named = namedDecisions()

  constructor(folder) {
    this.#folder = folder
  }

  /** The adapter of a row; `undefined` without one. */
  adapterOf(value) {
    return ADAPTERS.find((candidate) => candidate.matches(value))
  }

  /** The outcome of a row: undefined, a difference, a decision or a skip. `line` is its text, `value` replaces it in the judgement. */
  async judge(line, value = JSON.parse(line)) {
    try {
      const adapter = this.adapterOf(value)
      if (adapter === undefined) return `no adapter knows a row of ${Object.keys(value).join(', ')}`
      const strange = unknownMember(membersOf(adapter, value), value)
      if (strange !== undefined) return `${adapter.topic} must know what ${strange} means`
      let prepared = this.#prepared.get(adapter)
      if (prepared === undefined) {
        prepared = { shared: await adapter.prepare(this.#folder) }
        this.#prepared.set(adapter, prepared)
      }
      let texts
      const raw = (name) => {
        texts ??= members(line)
        return texts.get(name)
      }
      return this.#explained(await adapter.check({ value, raw }, prepared.shared))
    } catch (error) {
      return error instanceof Error ? (error.stack ?? error.message) : String(error)
    }
  }

  #explained(outcome) {
    const unnamed = outcome?.byDecision?.split('; ').find((name) => !this.#named.has(name))
    return unnamed === undefined ? outcome : `docs/differences.md must say why: ${unnamed}`
  }
}

/** The count to which an outcome adds. */
export function kindOf(outcome) {
  if (outcome === undefined) return 'passed'
  if (typeof outcome === 'string') return 'failed'
  return 'byDecision' in outcome ? 'byDecision' : 'skipped'
}
