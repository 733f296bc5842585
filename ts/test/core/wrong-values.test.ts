/**
 * Gives everything that is exported and takes a tensor, a dictionary or numbers in an array a value of another kind. A new function is
 * walked too, without a word here.
 */

import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { MODULES } from './entries.js'
import { type ExportedCall, exportedCalls } from './exported-calls.js'
import { closeWorld, instanceOf, madeValue } from './made-arguments.js'

/** Types of which no value is a plain one: a tensor or an array of numbers of one width. */
const WANTED =
  /\b(Tensor|TensorDict|LazyStack|Ragged|NonTensorData|NonTensorStack|Uint8Array|Uint32Array|Float32Array|Float64Array|BigUint64Array)\b/

/** Types which a value here is of. */
const PLAIN: readonly (readonly [wrong: () => unknown, type: RegExp])[] = [
  [() => [1, 2], /\[\]|ArrayLike|Iterable|Json|unknown/],
  [() => 'x', /string|Json|unknown|ArrayLike|Iterable/],
  [() => null, /null|Json|unknown/],
  [() => Number.NaN, /number|Json|unknown/],
]

/** Words of internal errors that must not reach a caller. */
const INNER =
  /private member|Cannot read|is not a function|is not iterable|napi|reading '|of undefined|of null|recursion/

/** Reasons that calls may accept such a value, by id and parameter. */
const EXCEPTIONS: Readonly<Record<string, string>> = {}

async function outcomeOf(body: () => unknown): Promise<string | undefined> {
  try {
    const result = await Promise.race([body(), new Promise((resolve) => setTimeout(resolve, 500, 'late'))])
    return `gives ${result === null ? 'null' : typeof result}`
  } catch (error) {
    if (!(error instanceof FulmarError)) return `throws ${error}`
    return INNER.test(error.message) ? `says "${error.message}"` : undefined
  }
}

async function bodyOf({ entry, kind, owner, member }: ExportedCall) {
  const exported: unknown = Reflect.get(MODULES[entry] ?? {}, owner)
  if (kind === 'function')
    return (args: unknown[]) => Reflect.apply(exported as () => unknown, undefined, args)
  if (kind === 'constructor') return (args: unknown[]) => Reflect.construct(exported as () => unknown, args)
  const target = kind === 'static' ? exported : await instanceOf(owner)
  if (target === undefined) return undefined
  const method: unknown = Reflect.get(target as object, member)
  return (args: unknown[]) => Reflect.apply(method as () => unknown, target, args)
}

describe.skipIf(process.env.FULMAR_TEST_BACKEND === 'wasm')('a value of another kind', () => {
  it('is refused in a sentence wherever a tensor or an array of numbers is wanted', {
    timeout: 180_000,
  }, async () => {
    const problems: string[] = []
    let numTried = 0
    for (const call of exportedCalls()) {
      const body = await bodyOf(call)
      if (body === undefined) continue
      for (const [at, { name, type, isOptions }] of call.parameters.entries()) {
        if (isOptions || !WANTED.test(type)) continue
        for (const [wrong, accepted] of PLAIN) {
          if (accepted.test(type)) continue
          const args = call.parameters.map((one, index) =>
            index === at ? wrong() : one.isOptional ? undefined : madeValue(one.type, one.name),
          )
          numTried += 1
          const outcome = await outcomeOf(() => body(args))
          const id = `${call.id}(${name}: ${type})`
          if (outcome !== undefined && !(id in EXCEPTIONS))
            problems.push(`${id} of ${String(wrong())} ${outcome}`)
        }
      }
    }
    await closeWorld()
    expect(problems).toEqual([])
    expect(numTried).toBeGreaterThan(100)
  })
})
