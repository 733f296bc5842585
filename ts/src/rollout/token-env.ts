/**
 * Conversations as tokens: renders messages of an environment, parses completions of a policy, and never
 * re-encodes a sampled token.
 *
 * ```text
 * init:             env.init -> render with generation prompt -> too long? -> ongoing
 * step(completion): parse -> assistant message -> length? abort? -> env.step under a deadline
 *                   -> done? max turns? -> bridge, or render anew if it refuses -> too long? -> ongoing
 * ```
 *
 * The order of the checks is part of the contract: a rollout that is both done and too long has completed.
 * Failures of the environment, the renderer or the parser are statuses with a cause, never exceptions.
 */

import { type BoundedResult, bounded, type DeadlineResult, unlessAborted } from '../async/index.js'
import { assistantMessage } from '../chat/assistant-message.js'
import { answerSoon, extendSoon, takeLedger } from '../chat/conversation.js'
import {
  type BridgeRefusal,
  Conversation,
  Ledger,
  type Message,
  type Rendered,
  type Renderer,
  type ToolSpec,
} from '../chat/index.js'
import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import {
  checkInitOutput,
  checkStepOutput,
  type EnvContext,
  type MessageEnv,
  type RolloutStatus,
} from '../env/index.js'
import type { Completion } from '../policy/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import { causeOf, type RolloutCause, type RolloutStage } from './rollout.js'

/** Limits of a rollout; see {@link TokenEnv}. */
export interface TokenEnvLimits {
  /**
   * Maximum length of prompt and completion together: a prompt that leaves fewer than `minCompletionTokens`
   * ends the rollout.
   * @default no limit
   */
  readonly maxRolloutTokens?: number
  /**
   * Number of tokens that a prompt must leave below `maxRolloutTokens`.
   * @default 1
   */
  readonly minCompletionTokens?: number
  /**
   * Maximum number of turns; the environment still answers the last one.
   * @default no limit
   */
  readonly maxTurns?: number
  /**
   * Deadline of the environment's `init` and of each `step`, in milliseconds; `null` for none.
   * @default 1_800_000
   */
  readonly stepTimeoutMs?: number | null
  /**
   * Treatment of a completion that reached its token limit: `end` ends the rollout, `continue` passes it to
   * the environment. Its missing closing token is then part of the next prompt, and never trained.
   * @default 'end'
   */
  readonly onTruncation?: 'end' | 'continue'
}

/** Options of {@link TokenEnv}. */
export interface TokenEnvOptions extends TokenEnvLimits {
  /** Environment of the rollout, closed by {@link TokenEnv.close}. */
  readonly messageEnv: MessageEnv
  /** Renderer, shared with other environments; not disposed here. */
  readonly renderer: Renderer
  /** Clock of deadlines. @default systemClock */
  readonly clock?: Clock
  /** Stops `init` and `step` with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Result of an `init` or a `step`. */
export interface TokenEnvOutput {
  /** `ongoing` if there is a next prompt. */
  readonly status: RolloutStatus
  /** Reason of an error status; else `null`. */
  readonly cause: RolloutCause | null
  /**
   * Next prompt with the origin of its tokens. `null` once the rollout has ended, except for a first prompt
   * that is too long, which is kept for inspection.
   */
  readonly nextPrompt: TokenPrompt | null
  /** Message of the policy; `null` at init and if its tokens could not be parsed. */
  readonly completionMessage: Message | null
  /** Answer of the environment; empty if it was not called. */
  readonly envMessages: readonly Message[]
  /** Signals of the environment; empty if it was not called. */
  readonly envRewards: Readonly<Record<string, number>>
  /**
   * Reason why the next prompt was rendered from scratch; `null` if it extends the last one or does not
   * exist.
   */
  readonly bridgeRefusal: BridgeRefusal | null
}

/** @internal The step of a rollout: records the completion, too, together with those of other rollouts. */
export const recordStep: unique symbol = Symbol('recordStep')

/** @internal Returns the ledger of the recorded completions. */
export const takeRecorded: unique symbol = Symbol('takeRecorded')

/** A prompt as messages and as tokens. */
export interface TokenPrompt {
  /** Whole conversation so far. Immutable. */
  readonly messages: readonly Message[]
  /** Tokens of the conversation. */
  readonly ids: Uint32Array
  /** Origin of the last tokens: of all, or after a bridge of those that it added. */
  readonly rendered: Rendered
  /** Number of `messages` before those that a bridge rendered; add it to `rendered.messageIndices`. */
  readonly messageOffset: number
}

const STEP_TIMEOUT_MS_DEFAULT = 1_800_000

/**
 * Combines a {@link MessageEnv} and a {@link Renderer}, for one rollout.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, sumDigits } from 'fulmar'
 * import { TokenEnv } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const messageEnv = sumDigits({ prompt: 'short' }).makeEnv({ numbers: [24, 13], target: 10 })
 * const env = new TokenEnv({ messageEnv, renderer })
 * const { status, nextPrompt } = await env.init()
 * assert.equal(status, 'ongoing')
 * assert.match(tokenizer.decode(nextPrompt?.ids ?? new Uint32Array(0)), /Sum of digits: \[24, 13\]/)
 * await env.close()
 * ```
 */
export class TokenEnv {
  readonly #env: MessageEnv
  readonly #renderer: Renderer
  readonly #clock: Clock
  readonly #signal: AbortSignal | undefined
  readonly #maxRolloutTokens: number
  readonly #minCompletionTokens: number
  readonly #maxTurns: number
  readonly #stepTimeoutMs: number | null
  readonly #continues: boolean
  #messages: readonly Message[] = []
  #conversation: Conversation | undefined
  #hasPrompt = false
  #numTurns = 0

  /** @throws {FulmarError} `OUT_OF_RANGE` if a limit is not at least 1. */
  constructor(options: TokenEnvOptions) {
    checkKnownKeys(
      'options',
      options,
      [
        'messageEnv',
        'renderer',
        'clock',
        'signal',
        'maxRolloutTokens',
        'minCompletionTokens',
        'maxTurns',
        'stepTimeoutMs',
        'onTruncation',
      ],
      ['messageEnv', 'renderer'],
    )
    const {
      messageEnv,
      renderer,
      clock = systemClock,
      signal,
      stepTimeoutMs = STEP_TIMEOUT_MS_DEFAULT,
    } = options
    const { maxRolloutTokens = Number.POSITIVE_INFINITY, maxTurns = Number.POSITIVE_INFINITY } = options
    const { minCompletionTokens = 1 } = options
    for (const [name, value] of Object.entries({
      maxRolloutTokens,
      minCompletionTokens,
      maxTurns,
      stepTimeoutMs: stepTimeoutMs ?? 1,
    })) {
      if (!(value >= 1)) throw new FulmarError('OUT_OF_RANGE', `${name} must be >= 1: got ${value}`)
    }
    this.#env = messageEnv
    this.#renderer = renderer
    this.#clock = clock
    this.#signal = signal
    this.#maxRolloutTokens = maxRolloutTokens
    this.#minCompletionTokens = minCompletionTokens
    this.#maxTurns = maxTurns
    this.#stepTimeoutMs = stepTimeoutMs
    this.#continues = options.onTruncation === 'continue'
  }

  /**
   * Gets the first prompt from the environment. Call it once.
   * @throws {FulmarError} `ABORTED` if the signal fires.
   */
  async init(): Promise<TokenEnvOutput> {
    const result = unlessAborted(await this.#ask((context) => this.#env.init(context)), this.#signal)
    const opened = checkAnswer('init', result, checkInitOutput)
    if (!opened.ok) return ended(opened.status, opened.cause)
    const { initPromptMessages, tools } = opened.value
    this.#messages = initPromptMessages
    const opening = attempt('render', () => {
      this.#conversation = new Conversation(this.#renderer, { tools: tools as readonly ToolSpec[] })
      return this.#render(this.#conversation)
    })
    if (!opening.ok) return ended('error', opening.cause)
    return this.#offer(opening.value, {}, null, { keepTooLong: true })
  }

  /**
   * Processes a completion of the last prompt.
   * @throws {FulmarError} `ABORTED` if the signal fires; `CLOSED` if there is no prompt to complete.
   */
  async step(completion: Pick<Completion, 'ids' | 'finishReason'>): Promise<TokenEnvOutput> {
    const conversation = this.#ongoing()
    this.#numTurns += 1
    const parsed = attempt('parse', () => assistantMessage(conversation.parse(completion.ids)))
    return await this.#answer(conversation, completion, parsed)
  }

  /** @internal A completion that cannot be recorded has not been stepped: it is an error of the policy. */
  async [recordStep](completion: Completion): Promise<TokenEnvOutput | UnrecordedStep> {
    const conversation = this.#ongoing()
    const { ids, logProbs, sampledLogProbs, minPolicyVersion: min, maxPolicyVersion: max } = completion
    const { policyVersions: policyVersion = { min, max } } = completion
    const sampled = { completionIds: ids, logProbs, sampledLogProbs, policyVersion }
    const answered = await conversation[answerSoon](sampled)
    if (!answered.ok && answered.part === 'record')
      return { unrecorded: { stage: 'generate', kind: 'invalid_output', message: messageOf(answered.error) } }
    this.#numTurns += 1
    const parsed = attempt('parse', () => {
      if (!answered.ok) throw answered.error
      return assistantMessage(answered.parsed)
    })
    return await this.#answer(conversation, completion, parsed)
  }

  /** @internal Call it once. */
  [takeRecorded](): Ledger {
    return this.#conversation?.[takeLedger]() ?? new Ledger()
  }

  #ongoing(): Conversation {
    if (this.#conversation && this.#hasPrompt) return this.#conversation
    throw new FulmarError('CLOSED', 'step must follow an ongoing init: there is no prompt to complete')
  }

  async #answer(
    conversation: Conversation,
    { ids, finishReason }: Pick<Completion, 'ids' | 'finishReason'>,
    parsed: Attempt<Message>,
  ): Promise<TokenEnvOutput> {
    if (!parsed.ok) return ended('error_parse', parsed.cause)
    const completionMessage = parsed.value
    if (finishReason === 'length' && !this.#continues)
      return ended('truncated_length', null, { completionMessage })
    if (finishReason === 'abort') {
      const message = 'completion must not be cut off: got an abort'
      return ended('error_abort', { stage: 'generate', kind: 'abort', message }, { completionMessage })
    }
    const asked = await this.#ask((context) => this.#env.step(completionMessage, context))
    const result = unlessAborted(asked, this.#signal)
    const answer = checkAnswer('step', result, checkStepOutput)
    if (!answer.ok) return ended(answer.status, answer.cause, { completionMessage })
    return await this.#advance(conversation, completionMessage, ids, answer.value)
  }

  /** Closes the environment and frees the tokens. Repeated calls are harmless. The caller may ignore its errors. */
  async close(): Promise<void> {
    this[Symbol.dispose]()
    await this.#env.close()
  }

  /** Frees the native memory of the tokens; arrays that were given out stay. Does not close the environment. */
  [Symbol.dispose](): void {
    this.#hasPrompt = false
    this.#conversation?.[Symbol.dispose]()
  }

  async #advance(
    conversation: Conversation,
    completionMessage: Message,
    completionIds: Uint32Array,
    { envMessages, envRewards, done }: ReturnType<typeof checkStepOutput>,
  ): Promise<TokenEnvOutput> {
    const said = { completionMessage, envMessages, envRewards }
    this.#messages = [...this.#messages, completionMessage, ...envMessages]
    if (done) return ended('completed', null, said)
    if (this.#numTurns >= this.#maxTurns) return ended('truncated_max_turns', null, said)
    const next = await this.#extend(conversation, completionIds, envMessages)
    if (!next.ok) return ended('error', next.cause, said)
    const { prompt, bridgeRefusal } = next.value
    return this.#offer(prompt, said, bridgeRefusal, { keepTooLong: false })
  }

  async #extend(
    conversation: Conversation,
    completionIds: Uint32Array,
    envMessages: readonly Message[],
  ): Promise<Attempt<Extension>> {
    try {
      const bridge = await conversation[extendSoon](completionIds, envMessages)
      if (!bridge.ok)
        return { ok: true, value: { prompt: this.#render(conversation), bridgeRefusal: bridge.reason } }
      const messageOffset = this.#messages.length - envMessages.length
      const prompt = new ExtendedPrompt(this.#messages, conversation.ids, messageOffset, bridge.rendered)
      return { ok: true, value: { prompt, bridgeRefusal: null } }
    } catch (error) {
      return failed('render', error)
    }
  }

  #render(conversation: Conversation): TokenPrompt {
    const rendered = conversation.start(this.#messages)
    return { messages: this.#messages, ids: conversation.ids, rendered, messageOffset: 0 }
  }

  #offer(
    prompt: TokenPrompt,
    said: Said,
    bridgeRefusal: BridgeRefusal | null,
    { keepTooLong }: { readonly keepTooLong: boolean },
  ): TokenEnvOutput {
    const isTooLong = prompt.ids.length + this.#minCompletionTokens > this.#maxRolloutTokens
    if (!isTooLong) this.#hasPrompt = true
    const nextPrompt = isTooLong && !keepTooLong ? null : prompt
    return outputOf(
      isTooLong ? 'truncated_prompt_too_long' : 'ongoing',
      null,
      nextPrompt,
      said,
      bridgeRefusal,
    )
  }

  #ask<T>(run: (context: EnvContext) => T | Promise<T>): BoundedResult<T> | Promise<BoundedResult<T>> {
    return bounded({ clock: this.#clock, timeoutMs: this.#stepTimeoutMs, signal: this.#signal, run })
  }
}

/** @internal A step whose completion cannot be recorded. */
export interface UnrecordedStep {
  readonly unrecorded: RolloutCause
}

/** A prompt whose origins are made into columns on request: few read them, and the ledger has them. */
class ExtendedPrompt implements TokenPrompt {
  readonly messages: readonly Message[]
  readonly ids: Uint32Array
  readonly messageOffset: number
  readonly #makeRendered: () => Rendered
  #rendered: Rendered | undefined

  constructor(
    messages: readonly Message[],
    ids: Uint32Array,
    messageOffset: number,
    makeRendered: () => Rendered,
  ) {
    this.messages = messages
    this.ids = ids
    this.messageOffset = messageOffset
    this.#makeRendered = makeRendered
  }

  get rendered(): Rendered {
    this.#rendered ??= this.#makeRendered()
    return this.#rendered
  }
}

interface Extension {
  readonly prompt: TokenPrompt
  readonly bridgeRefusal: BridgeRefusal | null
}

type Attempt<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly cause: RolloutCause }

/** Runs `body` and returns a renderer's exception as data. */
function attempt<T>(stage: RolloutStage, body: () => T): Attempt<T> {
  try {
    return { ok: true, value: body() }
  } catch (error) {
    return failed(stage, error)
  }
}

function failed(stage: RolloutStage, error: unknown): Extract<Attempt<never>, { ok: false }> {
  return { ok: false, cause: { stage, kind: 'renderer', message: `${messageOf(error)}${remedyOf(error)}` } }
}

/** Returns what to do about tools that the template does not show. */
function remedyOf(error: unknown): string {
  const isOfTools =
    error instanceof FulmarError && error.code === 'INCOMPATIBLE' && error.argument === 'tools'
  return isOfTools ? '; give defineTask a toolParser, such as new XMLBlockParser() of fulmar/tools' : ''
}

/** A checked answer of an environment, or its failure. */
export type Answer<T> = { readonly ok: true; readonly value: T } | (Failure & { readonly ok: false })

interface Failure {
  readonly status: RolloutStatus
  readonly cause: RolloutCause
}

/** Returns the checked answer of an environment, or the status of its failure. */
export function checkAnswer<Raw, T>(
  stage: RolloutStage,
  result: DeadlineResult<Raw>,
  check: (raw: Raw) => T,
): Answer<T> {
  if (result.kind === 'timeout') {
    const cause: RolloutCause = {
      stage,
      kind: 'deadline',
      message: `${stage} must end in time: it did not`,
    }
    return { ok: false, status: 'error_timeout', cause }
  }
  if (result.kind === 'thrown') return { ok: false, status: 'error', cause: causeOf(stage, result.error) }
  try {
    return { ok: true, value: check(result.value) }
  } catch (error) {
    return { ok: false, status: 'error', cause: { stage, kind: 'invalid_output', message: messageOf(error) } }
  }
}

/** Messages and signals of a turn so far. */
type Said = Partial<Pick<TokenEnvOutput, 'completionMessage' | 'envMessages' | 'envRewards'>>

function ended(status: RolloutStatus, cause: RolloutCause | null, said: Said = {}): TokenEnvOutput {
  return outputOf(status, cause, null, said, null)
}

function outputOf(
  status: RolloutStatus,
  cause: RolloutCause | null,
  nextPrompt: TokenPrompt | null,
  { completionMessage = null, envMessages = [], envRewards = {} }: Said,
  bridgeRefusal: BridgeRefusal | null,
): TokenEnvOutput {
  return { status, cause, nextPrompt, completionMessage, envMessages, envRewards, bridgeRefusal }
}
