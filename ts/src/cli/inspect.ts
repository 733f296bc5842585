/** `fulmar inspect PATH`: what a path holds, in a few facts. */

import { type InspectedFacts, type InspectedValue, inspect } from '../dashboard/index.js'
import { printable } from '../dashboard/printable.js'
import { type CliIo, printJson, printTable } from './io.js'

/** Flags of the command. */
export interface InspectFlags {
  readonly json?: boolean
}

/** Prints the facts about a path. Names and texts from files cannot move the cursor. */
export async function inspectPath(path: string, { json = false }: InspectFlags, io: CliIo): Promise<void> {
  const found = await inspect(path)
  if (json) return printJson(found, io)
  const rows = [['kind', found.kind], ['path', found.path], ...rowsOf('', found.facts)] as [string, string][]
  printTable(
    rows.map(([name, value]) => [printable(name), printable(value)] as const),
    io,
  )
}

/** One row a fact; facts about a part have its name before theirs. */
function rowsOf(prefix: string, facts: InspectedFacts): [string, string][] {
  return Object.entries(facts).flatMap(([name, value]) => {
    const whole = prefix === '' ? name : `${prefix}.${name}`
    if (Array.isArray(value)) return value.map((one): [string, string] => [whole, one])
    return isFacts(value) ? rowsOf(whole, value) : [[whole, textOf(value)] as [string, string]]
  })
}

function isFacts(value: InspectedValue): value is InspectedFacts {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textOf(value: InspectedValue): string {
  if (typeof value === 'number') return String(Number(value.toPrecision(6)))
  return value === null ? 'none' : String(value)
}
