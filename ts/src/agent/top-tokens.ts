/** Likeliest tokens at each position of a completion, from the model's own distribution. */

import type { Completion, DistributionPolicy, Policy } from '../policy/index.js'
import type { Answer, TopToken } from './answer.js'

/** Returns true if the policy can tell more than the sampled token. */
export function hasDistribution(policy: Policy): policy is DistributionPolicy {
  return 'distribution' in policy && typeof policy.distribution === 'function'
}

/** Returns the `count` likeliest tokens of each position, the likeliest first; `null` if none were asked for. */
export async function topTokens(
  policy: Policy,
  promptIds: Uint32Array,
  { ids: completionIds }: Completion,
  count: number | null,
): Promise<Answer['top']> {
  if (count === null || count === 0 || completionIds.length === 0 || !hasDistribution(policy)) return null
  const ids = new Uint32Array(promptIds.length + completionIds.length)
  ids.set(promptIds)
  ids.set(completionIds, promptIds.length)
  const mask = new Uint8Array(ids.length).fill(1, promptIds.length)
  const distribution = await policy.distribution({ ids, mask, offsets: Uint32Array.of(0, ids.length) })
  return Array.from(completionIds, (_, at) => largest(distribution.logProbsAt(promptIds.length + at), count))
}

function largest(logProbs: Float32Array, count: number): TopToken[] {
  const top: TopToken[] = []
  for (const [id, logProb] of logProbs.entries()) {
    if (top.length === count && logProb <= (top.at(-1)?.logProb ?? 0)) continue
    const place = top.findIndex((token) => token.logProb < logProb)
    top.splice(place < 0 ? top.length : place, 0, { id, logProb })
    top.length = Math.min(top.length, count)
  }
  return top
}
