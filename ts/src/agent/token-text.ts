/** Tokens and their log-probabilities in OpenAI's form. */

import type { CompletionPart } from '../policy/index.js'
import type { Answer } from './answer.js'

/** Returns the text of one token; `null` if it is not known. */
export type TokenText = (id: number) => string | null

/** A missing log-probability, as OpenAI has it. */
const NO_LOG_PROB = -9999

const UTF8 = new TextEncoder()

/** Returns an entry a token: its log-probability under the model at temperature 1, and the alternatives. */
export function tokenEntries(
  { ids, logProbs }: Pick<CompletionPart, 'ids' | 'logProbs'>,
  top: Answer['top'],
  textOf: TokenText,
): object[] {
  return Array.from(ids, (id, at) => ({
    ...entry(id, logProbs[at] ?? Number.NaN, textOf),
    top_logprobs: (top?.[at] ?? []).map((token) => entry(token.id, token.logProb, textOf)),
  }))
}

function entry(id: number, logProb: number, textOf: TokenText) {
  const text = textOf(id)
  return {
    token: text ?? `token_id:${id}`,
    logprob: Number.isFinite(logProb) ? logProb : NO_LOG_PROB,
    bytes: text === null ? null : [...UTF8.encode(text)],
  }
}
