/** Scores the rollouts of one prompt, token by token. Nothing here depends on the machine or the backend. */

import { CharTokenizer, createRenderer, GRPOLoss, groupAdvantage, Ledger, type Message } from 'fulmar'

/** One answer as an engine reports it: token ids and their log-probabilities, never text. */
export interface ScoreRollout {
  readonly ids: readonly number[]
  /** Under the weights that drew the ids. Shape of `ids`. */
  readonly sampledLogProbs: readonly number[]
  /** Under the weights in training. Shape of `ids`. */
  readonly logProbs: readonly number[]
}

/** A question, its answers, and the number that is right. */
export interface ScoreRequest {
  readonly messages: readonly Message[]
  readonly rollouts: readonly ScoreRollout[]
  readonly target: number
}

/** Columns of the answers for training; `mask` and `gradLogProb` cover prompt and answer of each. */
export interface ScoreResponse {
  readonly prompt: string
  readonly rewards: readonly number[]
  readonly advantages: readonly number[]
  readonly loss: number
  readonly metrics: Readonly<Record<string, number>>
  readonly rollouts: readonly { readonly mask: string; readonly gradLogProb: readonly number[] }[]
}

/** Renders the question, masks what was sampled, compares the answers and takes the gradient of the GRPO loss. */
export function scoreRollouts({ messages, rollouts, target }: ScoreRequest): ScoreResponse {
  using tokenizer = new CharTokenizer()
  using renderer = createRenderer(tokenizer, { name: 'chatml' })
  const prompt = renderer.render(messages, { addGenerationPrompt: true })
  const completions = rollouts.map(({ ids }) => Uint32Array.from(ids))
  const rewards = completions.map((ids) => reward(renderer.parse(ids).content, target))
  const { advantage } = groupAdvantage({ rewards, groupSize: rewards.length })

  const samples = rollouts.map(({ sampledLogProbs, logProbs }, index) => {
    using ledger = new Ledger()
    ledger.recordTurn({
      promptIds: prompt.ids,
      completionIds: completions[index] ?? new Uint32Array(),
      logProbs: Float32Array.from(sampledLogProbs),
      sampledLogProbs: Float32Array.from(sampledLogProbs),
      policyVersion: 0,
      origins: prompt.origins,
      messageIndices: prompt.messageIndices,
    })
    const [sample] = ledger.samples()
    if (sample === undefined)
      throw new TypeError(`rollouts[${index}].ids must hold a token: got an empty array`)
    return { ...sample, logProb: [...Array(prompt.ids.length).fill(0), ...logProbs] }
  })
  const offsets = [0]
  for (const { ids } of samples) offsets.push((offsets.at(-1) ?? 0) + ids.length)
  const { loss, metrics, gradLogProb } = new GRPOLoss({ clipEpsilon: [0.2, 0.28] }).forward({
    logProb: Float32Array.from(samples.flatMap(({ logProb }) => logProb)),
    oldLogProb: Float32Array.from(samples.flatMap(({ sampledLogProbs }) => [...sampledLogProbs])),
    advantage,
    mask: Uint8Array.from(samples.flatMap(({ mask }) => [...mask])),
    offsets: Uint32Array.from(offsets),
  })
  return {
    prompt: tokenizer.decode(prompt.ids),
    rewards,
    advantages: [...advantage],
    loss,
    metrics,
    rollouts: samples.map(({ mask }, index) => ({
      mask: mask.join(''),
      gradLogProb: [...gradLogProb.subarray(offsets[index], offsets[index + 1])],
    })),
  }
}

/** 1 for the right number after `[ANSWER]`, and 0.3 more for the form. */
function reward(content: string, target: number): number {
  const match = [...content.matchAll(/\[ANSWER\]\s*(-?\d+)/g)].at(-1)
  if (match === undefined) return 0
  return 0.3 + Number(Number(match[1]) === target)
}
