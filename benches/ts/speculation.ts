/**
 * Tokens of SmolLM2-135M-Instruct drawn at temperature 1 with speculative tokens, in f32 on 2 threads, against the same engine without them.
 *
 * Both draw the same tokens with the same log-probs, which is compared first. Only the tokens after the first count: the time of 65 less
 * that of one.
 */

import { isDeepStrictEqual } from 'node:util'
import { createRenderer, Decoder, describeBuild, Engine, HfTokenizer } from 'fulmar'
import { alternate, type Figure, type Goal, hand, type Report, readOptions, say } from './measure.js'
import { readModel } from './smollm2-step.js'

const SPECULATIVE_TOKENS = 8
const DRAWN = 64
const WARMUP = 1
const WORKS: readonly (readonly [rows: number, goal: Goal])[] = [
  [1, { atLeast: 2 }],
  [8, { atLeast: 0.97 }],
  [32, { atLeast: 0.97 }],
]

const options = readOptions({ rounds: 7 })
const file = await readModel()
using tokenizer = HfTokenizer.fromGguf(file)
using renderer = createRenderer(tokenizer, { name: 'chatml' })
using decoder = await Decoder.fromGguf(file)
using drafting = new Engine(decoder, { speculativeTokens: SPECULATIVE_TOKENS })
using plain = new Engine(decoder)
hand(await measure())

async function measure(): Promise<Report> {
  await compare()
  const [figures, notes]: [Figure[], string[]] = [[], []]
  for (const [rows, goal] of WORKS) {
    const work = `decode ${DRAWN} tokens, batch ${rows}`
    say(work)
    const before = drafting.speculation
    const limits = { ...options, patienceMs: options.patienceMs / WORKS.length, warmup: WARMUP }
    const sides = { ours: () => sample(drafting, rows), plain: () => sample(plain, rows) }
    const { of, disturbance } = await alternate(sides, limits)
    const [ours, rival] = [of('ours').warm, { name: 'without drafts', samples: of('plain').warm }]
    figures.push({ work, unit: 'ms', ours, rival, goal })
    notes.push(`${work}: ${accepted(before)}; ${disturbance}`)
  }
  const { lanes, threads } = describeBuild()
  const setting = { threads, lanes, speculativeTokens: SPECULATIVE_TOKENS, temperature: 1 }
  const checks = ['tokens and log-probs with drafts and without: equal']
  return { setting, checks, figures, notes, versions: {} }
}

async function compare(): Promise<void> {
  const [drafted, drawn] = [await draw(drafting, 4, DRAWN), await draw(plain, 4, DRAWN)]
  if (!isDeepStrictEqual(drafted, drawn))
    throw new Error('tokens with drafts and without must be equal: got different ones')
}

/** Tells how many of the drafts since `before` were kept. */
function accepted(before: Engine['speculation']): string {
  const drafts = drafting.speculation.numDraftTokens - before.numDraftTokens
  const kept = drafting.speculation.numAcceptedTokens - before.numAcceptedTokens
  return drafts === 0 ? 'no drafts' : `${((100 * kept) / drafts).toFixed(0)} % of ${drafts} drafts kept`
}

async function sample(engine: Engine, rows: number) {
  const startMs = performance.now()
  await draw(engine, rows, 1)
  const firstMs = performance.now() - startMs
  await draw(engine, rows, DRAWN + 1)
  return { value: performance.now() - startMs - 2 * firstMs }
}

async function draw(engine: Engine, rows: number, maxTokens: number) {
  const one = (_: unknown, row: number) =>
    engine.generate({ ids: promptIds(row), seed: row }, { maxTokens, drawMethod: 'gumbelMax', stopIds: [] })
  return await Promise.all(Array.from({ length: rows }, one))
}

function promptIds(row: number): Uint32Array {
  const content = `Write a story about room ${4821 + 7 * row}.`
  return renderer.render([{ role: 'user', content }], { addGenerationPrompt: true }).ids
}
