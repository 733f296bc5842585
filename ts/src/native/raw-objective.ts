/** The raw interface of losses, advantages, KL estimates, token drawing and value estimates. */

import type { RawOwner, RawTensor, RawTensorDict } from './raw.js'

/** The metrics of a loss. */
export interface RawMetrics {
  /** The names, joined by commas. */
  readonly metricNames: string
  /** The value and the denominator of each. */
  readonly metrics: Float64Array
}

export interface RawLossOutput extends RawMetrics {
  readonly loss: number
  readonly gradLogProb: Float32Array
  readonly gradEntropy?: Float32Array | undefined
  readonly sequenceLoss?: Float64Array | undefined
}

export interface RawRewardLossOutput extends RawMetrics {
  readonly loss: number
  readonly gradChosen: Float32Array
  readonly gradRejected: Float32Array
}

export interface RawGrpoLoss extends RawOwner {
  forward(
    logProb: Float32Array,
    oldLogProb: Float32Array,
    refLogProb: Float32Array | undefined,
    samplerLogProb: Float32Array | undefined,
    entropy: Float32Array | undefined,
    advantage: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

export interface RawSftLoss extends RawOwner {
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

export interface RawDistillationLoss extends RawOwner {
  forward(
    logProb: Float32Array,
    teacherLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

export interface RawDpoLoss extends RawOwner {
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array,
    logSumSqProb: Float32Array | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

export interface RawKtoLoss extends RawOwner {
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array,
    desirable: Uint8Array,
    klLogRatio: Float32Array | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

export interface RawBradleyTerryLoss extends RawOwner {
  forward(
    chosen: Float32Array,
    rejected: Float32Array,
    margin: Float32Array | undefined,
    offsets: Uint32Array | undefined,
  ): RawRewardLossOutput
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
  readonly GrpoLoss: { create(optionsJson: string): RawGrpoLoss }
  readonly SftLoss: { create(optionsJson: string): RawSftLoss }
  readonly DistillationLoss: { create(optionsJson: string): RawDistillationLoss }
  readonly DpoLoss: { create(optionsJson: string): RawDpoLoss }
  readonly KtoLoss: { create(optionsJson: string): RawKtoLoss }
  readonly BradleyTerryLoss: { create(optionsJson: string): RawBradleyTerryLoss }
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
