/**
 * One rollout of a model that is known by its messages alone.
 *
 * ```text
 * messages = env.init()
 * until done: message = policy.reply(messages) -> length? abort? -> env.step(message) -> turn -> done? max turns?
 * ```
 *
 * As the loop over tokens, without ids: nothing is rendered, parsed or recorded in the ledger.
 */

import { type BoundedResult, bounded, type CallContext, type DeadlineResult } from '../async/index.js'
import { Ledger, type Message, type ToolSpec } from '../chat/index.js'
import { checkInitOutput, checkStepOutput, type EnvContext, type RolloutStatus } from '../env/index.js'
import type { MessagePolicy, MessageReply, MessageRequest } from '../policy/index.js'
import { causeOf, formatTurnId, type RolloutCause, type RolloutTurn } from './rollout.js'
import type { UnscoredRollout } from './rollout-loop.js'
import type { Play } from './sibling-runner.js'
import { checkAnswer } from './token-env.js'

/** Options of one rollout, besides those of its attempt. */
export interface MessageLoopOptions {
  readonly policy: MessagePolicy
  readonly sampling: Pick<MessageRequest, 'maxTokens' | 'temperature'>
  readonly maxTurns: number
  readonly continuesTruncated: boolean
  readonly stepTimeoutMs: number | null
  readonly generateTimeoutMs: number | null
}

/** Runs one rollout; `undefined` if the signal fired. */
export async function runMessageRollout(
  options: MessageLoopOptions,
  play: Play,
): Promise<UnscoredRollout | undefined> {
  const { groupId, rolloutId, attempt, env, pacer } = play
  const turns: RolloutTurn[] = []
  const end = (status: RolloutStatus, cause: RolloutCause | null = null): UnscoredRollout => {
    return { groupId, rolloutId, attempt, status, cause, turns, ledger: new Ledger() }
  }
  const stop = () => {
    if (!play.hasExpired()) return undefined
    const message = 'rollout must end in time: it did not'
    return end('error_timeout', { stage: 'rollout', kind: 'deadline', message })
  }
  const begun = await ask(options, play, (context) => env.init(context))
  if (begun.kind === 'aborted') return stop()
  const first = checkAnswer('init', begun, checkInitOutput)
  if (!first.ok) return end(first.status, first.cause)
  const tools = first.value.tools as readonly ToolSpec[]
  let messages: readonly Message[] = first.value.initPromptMessages
  for (;;) {
    const drawn = await draw(options, play, turns.length, messages, tools)
    if (drawn.kind === 'aborted') return stop()
    const reply = readReply(drawn)
    if (!reply.ok) return end(reply.status, reply.cause)
    const { message, finishReason } = reply.value
    const said = { promptMessages: messages, reply: reply.value }
    const isCut = finishReason === 'length' && !options.continuesTruncated
    if (isCut || finishReason === 'abort') {
      turns.push(turnOf(play, turns.length, said))
      if (isCut) return end('truncated_length')
      const why = 'completion must not be cut off: got an abort'
      return end('error_abort', { stage: 'generate', kind: 'abort', message: why })
    }
    const pause = pacer.pass()
    if (pause) await pause
    const stepped = await ask(options, play, (context) => env.step(message, context))
    if (stepped.kind === 'aborted') return stop()
    const answer = checkAnswer('step', stepped, checkStepOutput)
    if (!answer.ok) {
      turns.push(turnOf(play, turns.length, said))
      return end(answer.status, answer.cause)
    }
    turns.push(turnOf(play, turns.length, said, answer.value))
    messages = [...messages, message, ...answer.value.envMessages]
    if (answer.value.done) return end('completed')
    if (turns.length >= options.maxTurns) return end('truncated_max_turns')
  }
}

function ask<T>(
  { stepTimeoutMs: timeoutMs }: MessageLoopOptions,
  { clock, signal }: Play,
  run: (context: EnvContext) => T | Promise<T>,
): BoundedResult<T> | Promise<BoundedResult<T>> {
  return bounded({ clock, timeoutMs, signal, run })
}

function draw(
  { policy, sampling, generateTimeoutMs: timeoutMs }: MessageLoopOptions,
  { groupId, rolloutId, attempt, seedOf, temperature, clock, signal }: Play,
  turnId: number,
  messages: readonly Message[],
  tools: readonly ToolSpec[],
): BoundedResult<MessageReply> | Promise<BoundedResult<MessageReply>> {
  const suffix = attempt === 0 ? '' : `/attempt=${attempt}`
  const id = { groupId, rolloutId, turnId }
  const run = (context: CallContext) =>
    policy.reply({
      requestId: `${formatTurnId(id)}${suffix}`,
      sessionId: `${formatTurnId(id, { includeTurn: false })}${suffix}`,
      ...{ messages, tools, seed: seedOf(turnId), ...sampling },
      ...(temperature !== undefined && { temperature }),
      signal: context.signal,
    })
  return bounded({ clock, timeoutMs, signal, run })
}

type Reply =
  | { readonly ok: true; readonly value: MessageReply }
  | { readonly ok: false; readonly status: RolloutStatus; readonly cause: RolloutCause }

function readReply(result: DeadlineResult<MessageReply | null | undefined>): Reply {
  if (result.kind === 'timeout') {
    const message = 'reply must end in time: it did not'
    return { ok: false, status: 'error_timeout', cause: { stage: 'generate', kind: 'deadline', message } }
  }
  if (result.kind === 'thrown')
    return { ok: false, status: 'error', cause: causeOf('generate', result.error) }
  if (result.value?.message?.role === 'assistant') return { ok: true, value: result.value }
  const message = 'policy must reply with a message of the assistant: got another value'
  return { ok: false, status: 'error', cause: { stage: 'generate', kind: 'no_completion', message } }
}

const NO_IDS = new Uint32Array(0)
const NO_LOG_PROBS = new Float32Array(0)

function turnOf(
  { groupId, rolloutId }: Play,
  turnId: number,
  { promptMessages, reply }: { readonly promptMessages: readonly Message[]; readonly reply: MessageReply },
  { envMessages, envRewards }: Pick<RolloutTurn, 'envMessages' | 'envRewards'> = {
    envMessages: [],
    envRewards: {},
  },
): RolloutTurn {
  const { message, finishReason, numPromptTokens, numCompletionTokens } = reply
  return {
    id: { groupId, rolloutId, turnId },
    ...{ promptIds: NO_IDS, completionIds: NO_IDS, completionLogProbs: NO_LOG_PROBS },
    usage: { numPromptTokens, numCompletionTokens },
    ...{ finishReason, minPolicyVersion: 0, maxPolicyVersion: 0, bridgeRefusal: null },
    ...{ promptMessages, completionMessage: message, envMessages, envRewards },
  }
}
