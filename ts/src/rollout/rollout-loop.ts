/**
 * One rollout, from the first prompt to a terminal status.
 *
 * ```text
 * output = env.init()
 * while output is ongoing: completion = policy.generate(prompt) -> output = env.step(completion), with the ledger -> turn
 * ```
 *
 * Sampled tokens are kept even if the environment fails.
 */

import { type BoundedResult, bounded, type CallContext, type DeadlineResult } from '../async/index.js'
import type { BranchReason, BridgeRefusal, Ledger } from '../chat/index.js'
import { messageOf } from '../core/index.js'
import type { RolloutStatus } from '../env/index.js'
import type { Completion, GenerateRequest, Policy } from '../policy/index.js'
import type { Clock } from '../telemetry/index.js'
import type { Pacer } from './pacer.js'
import {
  causeOf,
  formatTurnId,
  type Rollout,
  type RolloutCause,
  type RolloutTurn,
  type RolloutTurnId,
} from './rollout.js'
import {
  recordStep,
  type TokenEnv,
  type TokenEnvOutput,
  type TokenPrompt,
  takeRecorded,
} from './token-env.js'

/** Options of sampling. */
export interface SamplingOptions {
  /** Maximum number of tokens of a completion, including the stop token. */
  readonly maxTokens: number
  /**
   * Divisor of the logits before sampling; 0 takes the most likely token.
   * @default 1
   */
  readonly temperature?: number
  /**
   * Number of most likely tokens to sample from; 0 means all.
   * @default 0
   */
  readonly topK?: number
  /**
   * Probability mass of the most likely tokens to sample from.
   * @default 1
   */
  readonly topP?: number
  /**
   * Texts that end a completion at the token that completes one, in addition to the renderer's stop ids; the
   * policy must support them. They stay in the completion.
   * @default []
   */
  readonly stopStrings?: readonly string[]
}

/** A rollout before its scoring. */
export type UnscoredRollout = Pick<
  Rollout,
  'groupId' | 'rolloutId' | 'attempt' | 'status' | 'cause' | 'turns' | 'ledger' | 'program'
>

/** Options of one rollout. */
export interface RolloutLoopOptions {
  readonly policy: Policy
  readonly env: TokenEnv
  readonly groupId: number
  readonly rolloutId: number
  /** Number of the attempt; part of the request ids, except for the first. */
  readonly attempt: number
  /** Returns a turn's seed, which does not depend on earlier events. */
  readonly seedOf: (turnId: number) => number
  readonly sampling: SamplingOptions
  readonly stopIds: readonly number[]
  /** Maximum length of prompt and completion together. */
  readonly maxRolloutTokens: number
  /** Maximum number of tokens of all completions together. */
  readonly maxTotalTokens: number
  readonly generateTimeoutMs: number | null
  readonly clock: Clock
  /** Shared by all rollouts of the process. */
  readonly pacer: Pacer
  readonly signal: AbortSignal | undefined
  /**
   * Returns true if `signal` fired because of the rollout's deadline, which is a status; any other reason is
   * an abort.
   */
  readonly hasExpired: () => boolean
}

/**
 * Runs one rollout. Returns `undefined` if the signal fired, as thousands of exceptions would dominate the
 * time to stop. The caller closes the environment, and disposes the ledger of the result.
 */
export async function runRollout(options: RolloutLoopOptions): Promise<UnscoredRollout | undefined> {
  const { env, groupId, rolloutId, attempt, maxTotalTokens, signal, hasExpired, pacer } = options
  const turns: RolloutTurn[] = []
  const end = (status: RolloutStatus, cause: RolloutCause | null): UnscoredRollout => {
    return { groupId, rolloutId, attempt, status, cause, turns, ledger: env[takeRecorded]() }
  }
  const stop = () => {
    if (hasExpired()) {
      const message = 'rollout must end in time: it did not'
      return end('error_timeout', { stage: 'rollout', kind: 'deadline', message })
    }
    return undefined
  }
  let numLeft = maxTotalTokens
  try {
    let output = await env.init()
    while (output.status === 'ongoing' && output.nextPrompt) {
      const prompt = output.nextPrompt
      const id = { groupId, rolloutId, turnId: turns.length }
      if (numLeft <= 0) return end('truncated_total_tokens', null)
      const request = requestFor(options, id, prompt, numLeft)
      const result = await generate(options, request)
      if (result.kind === 'aborted') return stop()
      const drawn = readDrawn(result, request.requestId)
      if (!drawn.ok) return end(drawn.status, drawn.cause)
      const { completion } = drawn
      const pause = pacer.pass()
      if (pause) await pause
      const stepped = await env[recordStep](completion)
      if ('unrecorded' in stepped) return end('error', stepped.unrecorded)
      output = stepped
      numLeft -= completion.ids.length
      turns.push(toTurn(id, prompt, completion, output))
    }
    const isSpent = output.status === 'truncated_length' && numLeft <= 0
    return end(isSpent ? 'truncated_total_tokens' : output.status, output.cause)
  } catch (error) {
    if (signal?.aborted) return stop()
    throw error
  } finally {
    env[Symbol.dispose]()
  }
}

type Drawn =
  | { readonly ok: true; readonly completion: Completion }
  | { readonly ok: false; readonly status: RolloutStatus; readonly cause: RolloutCause }

function generate(
  { policy, clock, generateTimeoutMs: timeoutMs, signal }: RolloutLoopOptions,
  request: GenerateRequest,
): BoundedResult<Completion> | Promise<BoundedResult<Completion>> {
  // Without a deadline the caller's own signal is used: a new one for each completion costs more than the
  // rest here.
  const run = (context: CallContext) =>
    policy.generate(timeoutMs === null ? request : { ...request, signal: context.signal })
  return bounded({ clock, timeoutMs, signal, run })
}

function readDrawn(result: DeadlineResult<Completion | null | undefined>, requestId: string): Drawn {
  if (result.kind === 'timeout')
    return undrawn('error_timeout', 'deadline', 'generate must end in time: it did not')
  if (result.kind === 'thrown')
    return { ok: false, status: 'error', cause: causeOf('generate', result.error) }
  if (!result.value) return undrawn('error', 'no_completion', `policy must answer ${requestId}: got nothing`)
  return { ok: true, completion: result.value }
}

function undrawn(status: RolloutStatus, kind: RolloutCause['kind'], message: string): Drawn {
  return { ok: false, status, cause: { stage: 'generate', kind, message } }
}

function requestFor(
  options: RolloutLoopOptions,
  id: RolloutTurnId,
  { ids: promptIds }: TokenPrompt,
  numLeft: number,
): GenerateRequest {
  const { seedOf, sampling, stopIds, maxRolloutTokens, attempt, signal } = options
  const maxTokens = Math.min(sampling.maxTokens, maxRolloutTokens - promptIds.length, numLeft)
  const seed = seedOf(id.turnId)
  const suffix = attempt === 0 ? '' : `/attempt=${attempt}`
  const requestId = `${formatTurnId(id)}${suffix}`
  const sessionId = `${formatTurnId(id, { includeTurn: false })}${suffix}`
  const { temperature = 1, topK = 0, topP = 1, stopStrings = [] } = sampling
  const request = {
    requestId,
    sessionId,
    promptIds,
    seed,
    maxTokens,
    temperature,
    topK,
    topP,
    stopIds,
    stopStrings,
  }
  return signal ? { ...request, signal } : request
}

/** @internal Appends the sampled tokens; a completion that cannot be recorded is an error of the policy. */
export function record(
  ledger: Ledger,
  { ids: promptIds, rendered, messageOffset }: Omit<TokenPrompt, 'messages'>,
  completion: Completion,
  bridgeRefusal: BridgeRefusal | null,
  branchReason?: BranchReason,
): RolloutCause | null {
  try {
    const { ids, logProbs, sampledLogProbs, minPolicyVersion: min, maxPolicyVersion: max } = completion
    const { policyVersions = { min, max } } = completion
    if (ids.length === 0) return null
    const turn = {
      promptIds,
      completionIds: ids,
      logProbs,
      sampledLogProbs,
      policyVersion: policyVersions,
      origins: rendered.origins,
      messageIndices: rendered.messageIndices,
      messageOffset,
    }
    ledger.recordTurn({
      ...turn,
      ...(bridgeRefusal !== null && { bridgeRefusal }),
      ...(branchReason && { branchReason }),
    })
    return null
  } catch (error) {
    return { stage: 'generate', kind: 'invalid_output', message: messageOf(error) }
  }
}

function toTurn(
  id: RolloutTurnId,
  prompt: TokenPrompt,
  completion: Completion,
  output: TokenEnvOutput,
): RolloutTurn {
  return {
    id,
    promptIds: prompt.ids,
    completionIds: completion.ids,
    completionLogProbs: completion.logProbs,
    finishReason: completion.finishReason,
    minPolicyVersion: completion.minPolicyVersion,
    maxPolicyVersion: completion.maxPolicyVersion,
    promptMessages: prompt.messages,
    completionMessage: output.completionMessage,
    envMessages: output.envMessages,
    envRewards: output.envRewards,
    bridgeRefusal: output.bridgeRefusal,
  }
}
