/** Masks of trained tokens. */

import { call, checkGiven, checkKnownKeys, checkTypedArray } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Rendered } from './renderer.js'

/** Options of a mask. */
export interface MaskOptions {
  /**
   * Initial selection. `torchrl`: the assistant's text in all turns, without the token that ends a turn; for
   * a template with `generation` blocks exactly their content. `trl`: that token too. `generated`: the tokens
   * drawn by a policy, with that token; in a conversation without drawn tokens the last turn.
   * @default 'torchrl'
   */
  readonly preset?: 'torchrl' | 'trl' | 'generated'
  /** Exceptions from the preset. */
  readonly include?: MaskParts
  /**
   * Treatment of a token that belongs to the assistant only in part.
   * @default 'include'
   */
  readonly straddling?: 'include' | 'exclude' | 'error'
  /**
   * If true, an empty mask is accepted, on which training would learn nothing.
   * @default false
   */
  readonly allowEmpty?: boolean
}

/** Parts of an assistant's turns that a mask includes; absent keys are those of the preset. */
export interface MaskParts {
  /** The token that ends a turn. */
  readonly endOfTurn?: boolean
  /** Reasoning. */
  readonly reasoning?: boolean
  /** Tool calls. */
  readonly toolCalls?: boolean
  /** Included turns: all, or the last one. */
  readonly turns?: 'all' | 'last'
}

/** Masks over the tokens of one sequence: 1 or 0, each `[T]`. */
export interface TokenMasks {
  /** The tokens that count as the assistant's. */
  readonly assistant: Uint8Array
  /** The tokens that a policy drew. */
  readonly sampled: Uint8Array
  /** The tokens that end an assistant's turn, counted or not. */
  readonly endOfTurn: Uint8Array
}

/**
 * Returns the masks of tokens with origins, from a renderer or a ledger. `stopIds` are the ids that end a turn.
 *
 * @throws {FulmarError} `EMPTY` if no token counts and `allowEmpty` is not set; `INCOMPATIBLE` for parts that origins do
 * not tell apart (`reasoning`, `toolCalls`); `SHAPE_MISMATCH` if columns differ in length.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, tokenMasks } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const rendered = renderer.render([
 *   { role: 'user', content: '1+1?' },
 *   { role: 'assistant', content: '2' },
 * ])
 * const { assistant } = tokenMasks(rendered, renderer.stopIds, { preset: 'trl' })
 * const trained = rendered.ids.filter((_, t) => assistant[t] === 1)
 * assert.equal(tokenizer.decode(trained), '2<|im_end|>')
 * ```
 */
export function tokenMasks(
  rendered: Rendered,
  stopIds: readonly number[],
  options: MaskOptions = {},
): TokenMasks {
  checkGiven('rendered', rendered)
  const text = JSON.stringify(maskJson(options))
  checkTypedArray('rendered.ids', rendered.ids, Uint32Array)
  return call(() => {
    const { assistant, sampled, endOfTurn } = raw.tokenMasks(rendered, Uint32Array.from(stopIds), text)
    return { assistant, sampled, endOfTurn }
  })
}

/** The options as the core reads them. */
export function maskJson(options: MaskOptions): Readonly<Record<string, unknown>> {
  checkKnownKeys('mask', options, ['preset', 'include', 'straddling', 'allowEmpty'])
  const { include = {}, ...rest } = options
  checkKnownKeys('mask.include', include, ['endOfTurn', 'reasoning', 'toolCalls', 'turns'])
  return { ...rest, ...include }
}
