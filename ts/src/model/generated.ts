/** Generated tokens and sequences. */

import type { RawEngineOutputs } from '../native/index.js'

/** One id of those that were likeliest in a token's place. */
export interface TopLogProb {
  /** The id. */
  readonly id: number
  /** Its log-prob under the model itself. */
  readonly logProb: number
}

/** A drawn token. */
export interface SampledToken {
  /** The token. */
  readonly id: number
  /** The model's own log-prob (temperature 1): the bits that `Decoder.forward` gives. */
  readonly logProb: number
  /** Log-prob under the distribution that the id was drawn from. */
  readonly sampledLogProb: number
  /** `Decoder.version` of the weights that it was drawn under. */
  readonly policyVersion: number
  /** The likeliest ids in its place, as many as `topLogProbs` asks for, the likeliest first. */
  readonly topLogProbs: readonly TopLogProb[]
}

/** Generated tokens of one prompt. The arrays are new and have one entry per token. */
export interface Generated {
  /** Drawn ids, the stop id included. */
  readonly ids: Uint32Array
  /** As {@link SampledToken.logProb}. */
  readonly logProbs: Float32Array
  /** As {@link SampledToken.sampledLogProb}. */
  readonly sampledLogProbs: Float32Array
  /** As {@link SampledToken.policyVersion}. */
  readonly policyVersions: Float64Array
  /** As {@link SampledToken.topLogProbs}; without entries unless asked for. */
  readonly topLogProbs: readonly (readonly TopLogProb[])[]
  /** A stop id or string, `maxTokens`, or the signal. */
  readonly finishReason: 'stop' | 'length' | 'abort'
  /** The stop id or stop string that ended it, else `null`. */
  readonly stoppedBy: number | string | null
}

/** The tokens of a turn. All flat arrays are copied by then, so objects may hold on to nothing else. */
export function tokensOf(outputs: RawEngineOutputs, firstVersion: number): SampledToken[] {
  const { ids, logProb, sampledLogProb, versions, topOffsets, topIds, topLogProb } = outputs
  return Array.from(ids, (id, index) => {
    const [first, end] = [topOffsets[index] ?? 0, topOffsets[index + 1] ?? 0]
    const likeliest = Array.from(topIds.subarray(first, end), (topId, place) => ({
      id: topId,
      logProb: topLogProb[first + place] ?? 0,
    }))
    return {
      id,
      logProb: logProb[index] ?? 0,
      sampledLogProb: sampledLogProb[index] ?? 0,
      policyVersion: firstVersion + (versions[index] ?? 0),
      topLogProbs: likeliest,
    }
  })
}

/** The whole sequence of these tokens. */
export function generatedOf(
  tokens: readonly SampledToken[],
  finishReason: Generated['finishReason'],
  stopString: string | null,
): Generated {
  const stopId = finishReason === 'stop' ? (tokens.at(-1)?.id ?? null) : null
  const told = tokens.some(({ topLogProbs }) => topLogProbs.length > 0)
  return {
    ids: Uint32Array.from(tokens, ({ id }) => id),
    logProbs: Float32Array.from(tokens, ({ logProb }) => logProb),
    sampledLogProbs: Float32Array.from(tokens, ({ sampledLogProb }) => sampledLogProb),
    policyVersions: Float64Array.from(tokens, ({ policyVersion }) => policyVersion),
    topLogProbs: told ? tokens.map(({ topLogProbs }) => topLogProbs) : [],
    finishReason,
    stoppedBy: stopString ?? stopId,
  }
}
