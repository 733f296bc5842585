/** The raw interface of losses, advantages, KL estimates, token drawing and value estimates. */

import type { RawOwner, RawTensor, RawTensorDict } from './raw.js'

export interface RawLossOutput {
  readonly loss: number
  /** JSON array of `{name, value, denominator}`. */
  readonly metricsJson: string
  readonly gradLogProb: Float32Array
  readonly gradEntropy?: Float32Array
  readonly sequenceLoss?: Float64Array
}

export interface RawRewardLossOutput {
  readonly loss: number
  readonly metricsJson: string
  readonly gradChosen: Float32Array
  readonly gradRejected: Float32Array
}

/** The columns of a batch, by the names that they have in TypeScript. */
export interface RawLossColumns extends RawOwner {
  set(name: string, values: Float32Array): void
  label(desirable: Uint8Array): void
  grpo(optionsJson: string): RawLossOutput
  sft(optionsJson: string): RawLossOutput
  distillation(optionsJson: string): RawLossOutput
  dpo(optionsJson: string): RawLossOutput
  kto(optionsJson: string): RawLossOutput
  bradleyTerry(optionsJson: string): RawRewardLossOutput
}

export interface RawGroupAdvantage {
  readonly advantage: Float32Array
  readonly mean: Float64Array
  readonly std: Float64Array
  readonly degenerate: Uint8Array
}

export interface RawKlEstimate {
  readonly mean: number
  readonly numTokens: number
  readonly kl: Float32Array
  readonly gradLogProb: Float32Array
}

export interface RawDraw {
  readonly id: number
  readonly logProb: number
  readonly sampledLogProb: number
}

/** Recorded steps. A factor that is undefined is a column. */
export interface RawSteps extends RawOwner {
  gae(gamma: number | undefined, lambda: number | undefined): RawTensorDict
  vtrace(gamma: number | undefined, optionsJson: string): RawTensorDict
  td0Return(gamma: number | undefined): RawTensor
  td0Advantage(gamma: number | undefined): RawTensor
  td1Return(gamma: number | undefined, rolling: boolean | undefined): RawTensor
  td1Advantage(gamma: number | undefined, rolling: boolean | undefined): RawTensor
  tdLambdaReturn(
    gamma: number | undefined,
    lambda: number | undefined,
    rolling: boolean | undefined,
  ): RawTensor
  tdLambdaAdvantage(
    gamma: number | undefined,
    lambda: number | undefined,
    rolling: boolean | undefined,
  ): RawTensor
  rewardToGo(gamma: number): RawTensor
}

/** Waiting and complete groups, exchanged as JSON. */
export interface RawGroupQueues extends RawOwner {
  push(group: string, rewards: Float64Array): string
  enqueue(group: string, rewards: Float64Array): number
  candidates(group: string): string
  settle(group: string, chosenJson: string): string
  stats(): string
  resetStats(): void
  clearQueues(): string
  evictOldest(): string
  state(): string
  loadState(state: string): void
}

export interface RawTopKQueues extends RawOwner {
  push(prompt: string, reward: number): string
}

export interface RawKlController extends RawOwner {
  coefficient(): number
  update(kl: Float64Array): number
}

export interface RawObjective {
  readonly GroupQueues: { create(optionsJson: string): RawGroupQueues }
  readonly TopKQueues: { create(optionsJson: string): RawTopKQueues }
  readonly KlController: { create(coefficient: number, target: number, horizon: number): RawKlController }
  selectRollouts(optionsJson: string, returns: Float64Array, groupSize: number, boundsJson: string): string
  multiRewardAdvantage(
    optionsJson: string,
    aggregationJson: string,
    reward: Float64Array,
    scored: Uint8Array | undefined,
    weights: Float64Array,
    groupSize: number | undefined,
    groupOffsets: Uint32Array | undefined,
  ): RawGroupAdvantage
  /** `[2 T]`: KL estimates, then rewards. */
  klReward(
    optionsJson: string,
    logProb: Float32Array,
    refLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
    reward: Float32Array,
  ): Float32Array
  importanceWeights(
    optionsJson: string,
    oldLogProb: Float32Array,
    samplerLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
    device: string,
  ): Float64Array
  /** `[2 N]` or `[3 N]`: log-probabilities, entropies, and logarithms of sums of squared probabilities. */
  tokenLogProbs(
    logits: Float32Array,
    ids: Uint32Array,
    temperature: number,
    device: string,
    withSquares: boolean,
  ): Float32Array
  tokenLogProbsBackward(
    logits: Float32Array,
    ids: Uint32Array,
    temperature: number,
    gradients: Float32Array,
    device: string,
  ): Float32Array
  /** The same behind a head. */
  headLogProbs(
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | undefined,
    width: number,
    ids: Uint32Array,
    temperature: number,
    device: string,
    withSquares: boolean,
  ): Float32Array
  /** Gradients by hidden states, then weights, then bias. */
  headBackward(
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | undefined,
    width: number,
    ids: Uint32Array,
    temperature: number,
    gradients: Float32Array,
    device: string,
  ): Float32Array
  readonly Steps: { create(columns: RawTensorDict, timeDim: number | undefined): RawSteps }
  readonly LossColumns: { create(mask: Uint8Array, offsets: Uint32Array): RawLossColumns }
  checkLossOptions(loss: string, optionsJson: string): void
  groupAdvantage(
    optionsJson: string,
    reward: Float64Array,
    scored: Uint8Array | undefined,
    groupSize: number | undefined,
    groupOffsets: Uint32Array | undefined,
  ): RawGroupAdvantage
  klEstimate(
    estimatorJson: string | undefined,
    logProb: Float32Array,
    refLogProb: Float32Array,
    mask: Uint8Array,
    device: string,
  ): RawKlEstimate
  drawToken(
    optionsJson: string,
    logits: Float32Array,
    promptIds: Uint32Array | undefined,
    outputIds: Uint32Array | undefined,
    allowed: Uint32Array | undefined,
    seed: number,
    drawIndex: number,
  ): RawDraw
  drawProbabilities(
    optionsJson: string,
    logits: Float32Array,
    promptIds: Uint32Array | undefined,
    outputIds: Uint32Array | undefined,
    allowed: Uint32Array | undefined,
  ): Float64Array
  tokenMask(vocabSize: number, ids: Uint32Array): Uint32Array
}
