/** Sampling rules of a request besides temperature, common cuts and penalties. */

import { describeValue, FulmarError } from '../core/index.js'
import type { DrawRule } from '../objective/index.js'

/** Sampling rules of a request, as in `drawToken`. A policy that does not support one rejects it by name. */
export type RequestRule = Pick<
  DrawRule,
  'sequenceBias' | 'noRepeatNgramSize' | 'badWordsIds' | 'topH' | 'typicalP' | 'epsilonCutoff' | 'etaCutoff'
>

/** The names of {@link RequestRule}. */
export const REQUEST_RULES = [
  'sequenceBias',
  'noRepeatNgramSize',
  'badWordsIds',
  'topH',
  'typicalP',
  'epsilonCutoff',
  'etaCutoff',
] as const satisfies readonly (keyof RequestRule)[]

/** The largest id that a token may have. */
const ID_MAX = 2 ** 32 - 1

/**
 * Rejects invalid rules.
 * @throws {FulmarError} `OUT_OF_RANGE`, naming the rule; `EMPTY` for a sequence without ids; `MALFORMED` for a value of another type.
 */
export function checkRequestRule(rule: RequestRule): void {
  const { noRepeatNgramSize: size = 0, topH = 1, typicalP = 1, epsilonCutoff = 0, etaCutoff = 0 } = rule
  check('noRepeatNgramSize', size, Number.isSafeInteger(size) && size >= 0, 'a non-negative integer')
  check('topH', topH, topH > 0 && topH <= 1, 'in (0, 1]')
  check('typicalP', typicalP, typicalP > 0 && typicalP <= 1, 'in (0, 1]')
  check('epsilonCutoff', epsilonCutoff, epsilonCutoff >= 0 && epsilonCutoff < 1, 'in [0, 1)')
  check('etaCutoff', etaCutoff, etaCutoff >= 0 && etaCutoff < 1, 'in [0, 1)')
  const { badWordsIds = [], sequenceBias = [] } = rule
  for (const [at, ids] of list('badWordsIds', badWordsIds).entries()) checkIds(`badWordsIds[${at}]`, ids)
  for (const [at, pair] of list('sequenceBias', sequenceBias).entries()) {
    const name = `sequenceBias[${at}]`
    const [ids, bias, ...more] = list(name, pair)
    if (more.length > 0) throw malformed(name, 'ids and their bias', pair)
    checkIds(`the ids of ${name}`, ids)
    check(`the bias of ${name}`, bias, Number.isFinite(bias), 'a finite number')
  }
}

/** Returns the given rules that differ from their defaults. */
export function givenRules(rule: RequestRule): (keyof RequestRule)[] {
  const { sequenceBias = [], badWordsIds = [], noRepeatNgramSize = 0, topH } = rule
  const { typicalP = 1, epsilonCutoff = 0, etaCutoff = 0 } = rule
  const isGiven = {
    sequenceBias: sequenceBias.length > 0,
    noRepeatNgramSize: noRepeatNgramSize !== 0,
    badWordsIds: badWordsIds.length > 0,
    topH: topH !== undefined,
    typicalP: typicalP !== 1,
    epsilonCutoff: epsilonCutoff !== 0,
    etaCutoff: etaCutoff !== 0,
  }
  return REQUEST_RULES.filter((name) => isGiven[name])
}

/** Returns the given rules among the keys of a larger object. */
export function rulesOf(options: RequestRule): RequestRule {
  return Object.fromEntries(
    REQUEST_RULES.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  )
}

function checkIds(name: string, ids: unknown): void {
  const known = list(name, ids)
  if (known.length === 0) throw new FulmarError('EMPTY', `${name} must hold at least one id: got []`)
  for (const [at, id] of known.entries()) {
    const isId = Number.isInteger(id) && Number(id) >= 0 && Number(id) <= ID_MAX
    check(`${name}[${at}]`, id, isId, 'a token id')
  }
}

function list(name: string, value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value
  throw malformed(name, 'a list', value)
}

function check(name: string, value: unknown, holds: boolean, rule: string): void {
  if (typeof value !== 'number') throw malformed(name, 'a number', value)
  if (!holds) throw new FulmarError('OUT_OF_RANGE', `${name} must be ${rule}: got ${value}`)
}

function malformed(name: string, rule: string, value: unknown): FulmarError {
  return new FulmarError('MALFORMED', `${name} must be ${rule}: got ${describeValue(value)}`)
}
