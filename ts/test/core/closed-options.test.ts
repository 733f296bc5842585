/**
 * Walks over everything that is exported and takes options, and gives each an unknown key. A new function or class is walked too,
 * without a word here; what cannot be called so is listed in `EXCEPTIONS` with its reason, and a listing that is not needed fails.
 */

import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { MODULES } from './entries.js'
import { type ExportedCall, exportedCalls, type Parameter } from './exported-calls.js'
import { closeWorld, instanceOf, madeValue } from './made-arguments.js'

const BOGUS = 'zzUnknownKey'
/** Reasons that calls need not refuse an unknown key, by id and parameter. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  'loadDataset(options)': 'the source that the name gives checks them',
}

/** Functions that may throw another error without arguments, with the reason. */
const BARE: Readonly<Record<string, string>> = {
  'systemClock.startTimer': 'a timer of the runtime, which says itself what it wants',
}

/** Returns the error of a call, sync or async; `undefined` without one. */
async function failureOf(body: () => unknown): Promise<unknown> {
  try {
    const result = body()
    if (typeof result !== 'object' || result === null) return undefined
    if (
      Symbol.asyncIterator in result &&
      'next' in Reflect.apply(result[Symbol.asyncIterator] as () => object, result, [])
    )
      return await failureOf(() => (result as AsyncIterable<unknown>)[Symbol.asyncIterator]().next())
    if (!('then' in result)) return undefined
    let timer: NodeJS.Timeout | undefined
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, 2_000, undefined)
    })
    return await Promise.race([late, (result as Promise<unknown>).then(() => undefined)]).finally(() =>
      clearTimeout(timer),
    )
  } catch (error) {
    return error
  }
}

/** The call as a function of its arguments. `instance` is asked for only where there is a method. */
async function bodyOf({ entry, kind, owner, member }: ExportedCall): Promise<(args: unknown[]) => unknown> {
  const exported: unknown = Reflect.get(MODULES[entry] ?? {}, owner)
  if (kind === 'function') return (args) => Reflect.apply(exported as () => unknown, undefined, args)
  if (kind === 'constructor') return (args) => Reflect.construct(exported as () => unknown, args)
  const target =
    kind === 'static'
      ? exported
      : ((await instanceOf(owner)) ?? Object.create(Reflect.get(exported as object, 'prototype')))
  const method: unknown = Reflect.get(target as object, member)
  return (args) => Reflect.apply(method as () => unknown, target, args)
}

const without = (keys: readonly string[]) => Object.fromEntries(keys.map((key) => [key, undefined]))

function optionsOf({ keys, required }: Pick<Parameter, 'keys' | 'required'>): object {
  return {
    ...without(keys),
    ...Object.fromEntries(required.map(([name, type]) => [name, madeValue(type, name)])),
  }
}

const refusesBogus = (error: unknown) =>
  error instanceof FulmarError && error.code === 'UNKNOWN_NAME' && error.message.includes(BOGUS)

/** Tries a call with all declared keys of a form and one more: alone, with what must be given, with all other arguments. */
async function refusal(call: ExportedCall, at: number, form: Parameter['forms'][number]): Promise<unknown> {
  const body = await bodyOf(call)
  const { parameters } = call
  const others = () =>
    parameters.map((one) => {
      if (one.isOptional) return undefined
      return one.isOptions ? optionsOf(one) : madeValue(one.type, one.name)
    })
  const withOptions = (args: unknown[], options: object) => args.with(at, { ...options, [BOGUS]: 1 })
  const nothing = parameters.map(() => undefined)
  const tries = [
    () => withOptions(nothing, without(form.keys)),
    () => withOptions(nothing, optionsOf(form)),
    () => withOptions(others(), optionsOf(form)),
  ]
  let error: unknown
  for (const args of tries) {
    error = await failureOf(() => body(args()))
    if (refusesBogus(error)) return error
  }
  return error
}

describe.skipIf(process.env.FULMAR_TEST_BACKEND === 'wasm')('options of everything that is exported', () => {
  const calls = exportedCalls()

  it('are closed: an unknown key is refused by name, and no declared one', { timeout: 180_000 }, async () => {
    const problems: string[] = []
    const needed = new Set<string>()
    for (const call of calls) {
      const tries = call.parameters.flatMap(({ isOptions, name, forms }, at) =>
        isOptions ? forms.map((form) => ({ name, at, form })) : [],
      )
      for (const { name, at, form } of tries) {
        const id = `${call.id}(${name})`
        const error = await refusal(call, at, form)
        if (refusesBogus(error)) continue
        needed.add(id)
        if (!(id in EXCEPTIONS))
          problems.push(`${id}: ${error instanceof Error ? `${error.name} ${error.message}` : String(error)}`)
      }
    }
    await closeWorld()
    const stale = Object.keys(EXCEPTIONS).filter((id) => !needed.has(id))
    expect(problems).toEqual([])
    expect(stale).toEqual([])
  })

  it('and all arguments are looked at: a call without any gives an error of ours', {
    timeout: 180_000,
  }, async () => {
    const problems: string[] = []
    const tried = new Set<string>()
    for (const call of calls) {
      if (call.kind === 'method' || tried.has(call.id)) continue
      tried.add(call.id)
      const body = await bodyOf(call)
      const error = await failureOf(() => body([]))
      if (error === undefined || error instanceof FulmarError || call.id in BARE) continue
      problems.push(
        `${call.id}: ${error instanceof Error ? `${error.name} ${error.message}` : String(error)}`,
      )
    }
    expect(problems).toEqual([])
  })
})
