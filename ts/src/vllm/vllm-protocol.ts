/** Requests to a vLLM server and its answers, which are all validated. */

import { describeValue, FulmarError } from '../core/index.js'
import type { Completion, GenerateRequest, ScoreRequest } from '../policy/policy.js'
import { givenRules, type RequestRule } from '../policy/request-rule.js'

/** Kind of log-probs of a server: of the unmodified model, or of the sampling distribution. */
export type LogProbsMode = 'raw' | 'processed'

/** Properties of the server. */
export interface ServedModel {
  /** Model name in requests. */
  readonly model: string
  /** Vocabulary size, if known. */
  readonly vocabSize: number | undefined
  readonly logProbsMode: LogProbsMode
}

/** Tolerance by which a log-prob may exceed 0 through rounding. */
const LOG_PROB_SLACK = 1e-3
/** Value that a server writes for a probability of 0, which a drawn token cannot have. */
const LOG_PROB_OF_ZERO = -9999
/**
 * Maximum nesting of an answer: a completion has five levels, and a parser takes 60 bytes for each bracket.
 */
export const ANSWER_DEPTH_MAX = 64

/** Largest bias of a token that vLLM applies; it clips larger ones silently. */
const LOGIT_BIAS_MAX = 100

/**
 * Returns the rules of a request as vLLM's `logit_bias`, by id; empty without rules. Of the rules without a
 * vLLM field, only biases of single ids are supported: vLLM's `bad_words` are texts, which it also bans after
 * a space.
 * @throws {FulmarError} `UNAVAILABLE` for a rule that vLLM cannot draw by, naming it.
 */
export function logitBiasOf(rule: RequestRule): Readonly<Record<string, number>> {
  const other = givenRules(rule).find((name) => name !== 'sequenceBias')
  if (other !== undefined) {
    const detail = `${other} must not be given to vLLM, which does not support it: got ${describeValue(rule[other])}`
    throw new FulmarError('UNAVAILABLE', detail)
  }
  const biases: Record<string, number> = {}
  for (const [at, [[id, ...more], bias]] of (rule.sequenceBias ?? []).entries()) {
    const name = `sequenceBias[${at}]`
    if (more.length > 0) {
      const detail = `${name} must have one id for vLLM, which does not support biases of sequences: got ${more.length + 1} ids`
      throw new FulmarError('UNAVAILABLE', detail)
    }
    const sum = (biases[String(id)] ?? 0) + bias
    if (Math.abs(sum) > LOGIT_BIAS_MAX) {
      const range = `from -${LOGIT_BIAS_MAX} to ${LOGIT_BIAS_MAX}`
      throw new FulmarError('UNAVAILABLE', `the bias of ${name} must be ${range} for vLLM: got ${sum}`)
    }
    biases[String(id)] = sum
  }
  return biases
}

/**
 * Builds the body of a request for a completion: token ids in and out, with every sampling field set, so that
 * no default of the server applies. `wireId` identifies the attempt, and comes back with the answer.
 */
export function completionBody(
  wireId: string,
  request: GenerateRequest,
  { model }: ServedModel,
  { streams = false }: { readonly streams?: boolean } = {},
): string {
  const { promptIds, maxTokens, seed, stopIds, temperature = 1, topK = 0, topP = 1, minP = 0 } = request
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0, stopStrings = [] } = request
  return JSON.stringify({
    model,
    prompt: Array.from(promptIds),
    request_id: wireId,
    max_tokens: maxTokens,
    n: 1,
    seed,
    temperature,
    top_k: topK,
    top_p: topP,
    min_p: minP,
    repetition_penalty: repetitionPenalty,
    frequency_penalty: frequencyPenalty,
    presence_penalty: presencePenalty,
    logit_bias: logitBiasOf(request),
    stop_token_ids: stopIds,
    stop: stopStrings,
    // Text and ids stay consistent, without detokenization rules.
    include_stop_str_in_output: true,
    // Only stop ids of the request end the completion, not the model's own end of sequence.
    ignore_eos: true,
    logprobs: 0,
    return_token_ids: true,
    skip_special_tokens: false,
    add_special_tokens: false,
    ...(streams && { stream: true }),
  })
}

/**
 * Builds the body of a request for the log-probs of a sequence; the one drawn token, which is required, is
 * ignored.
 */
export function scoreBody(wireId: string, { ids }: ScoreRequest, { model }: ServedModel): string {
  return JSON.stringify({
    model,
    prompt: Array.from(ids),
    request_id: wireId,
    max_tokens: 1,
    n: 1,
    temperature: 0,
    prompt_logprobs: 0,
    return_token_ids: true,
    add_special_tokens: false,
  })
}

/** A completion without its policy versions. */
export type ServedCompletion = Omit<Completion, 'minPolicyVersion' | 'maxPolicyVersion'>

/**
 * Reads a completion from an answer.
 * @throws {FulmarError} `MALFORMED` for an answer that is cut off, belongs to another request, or is
 * inconsistent: invalid ids, another number of log-probs, log-probs that are missing, above 0 or of
 * probability 0, or an end without a reason.
 */
export function readCompletion(
  text: string,
  wireId: string,
  request: GenerateRequest,
  served: ServedModel,
): ServedCompletion {
  const choice = readChoice(text, wireId, request.promptIds)
  const ids = readIds(choice.token_ids, 'token_ids', served.vocabSize)
  const values = readLogProbs(choice, ids.length)
  const end = readEnd(choice, ids, request)
  return {
    requestId: request.requestId,
    ids,
    ...bothKinds(values, request, served.logProbsMode),
    ...end,
  }
}

/**
 * Reads the log-probs of a sequence's tokens; NaN for the first and where the server returned none. Shape
 * `[T]`.
 * @throws {FulmarError} `MALFORMED` as {@link readCompletion}.
 */
export function readScores(text: string, wireId: string, { ids }: ScoreRequest): Float32Array {
  const told = readChoice(text, wireId, ids).prompt_logprobs
  if (!Array.isArray(told) || told.length !== ids.length)
    throw lie(`prompt_logprobs must have one entry per token (${ids.length})`, told)
  return Float32Array.from(told, (entry, at) => {
    if (at === 0 || entry === null) return Number.NaN
    const own = field(entry, `prompt_logprobs[${at}]`)[String(ids[at])]
    return own === undefined ? Number.NaN : readLogProb(field(own, 'an entry').logprob)
  })
}

/**
 * Parses a text as an object.
 * @throws {FulmarError} `MALFORMED` if it is not one; `LIMIT_EXCEEDED` if it is nested deeper than 64.
 */
export function readObject(text: string): Readonly<Record<string, unknown>> {
  checkDepth(text)
  try {
    return field(JSON.parse(text), 'an answer')
  } catch (error) {
    if (error instanceof FulmarError) throw error
    throw new FulmarError('MALFORMED', 'an answer must be complete JSON: it could not be parsed', {
      cause: error,
    })
  }
}

/** Counts brackets outside of strings, before the text is parsed. */
function checkDepth(text: string): void {
  let depth = 0
  let isString = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (isString) {
      if (code === BACKSLASH) at += 1
      else if (code === QUOTE) isString = false
    } else if (code === QUOTE) isString = true
    else if (code === OPEN_LIST || code === OPEN_OBJECT) depth += 1
    else if (code === CLOSE_LIST || code === CLOSE_OBJECT) depth -= 1
    if (depth <= ANSWER_DEPTH_MAX) continue
    const detail = `an answer must be nested at most ${ANSWER_DEPTH_MAX} deep, got deeper lists or objects at character ${at}`
    throw new FulmarError('LIMIT_EXCEEDED', detail)
  }
}

const [QUOTE, BACKSLASH] = ['"', '\\'].map((letter) => letter.charCodeAt(0))
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = ['[', ']', '{', '}'].map((letter) =>
  letter.charCodeAt(0),
)

function readChoice(text: string, wireId: string, promptIds: Uint32Array): Readonly<Record<string, unknown>> {
  const { id, choices } = readObject(text)
  checkId(id, wireId)
  if (!Array.isArray(choices) || choices.length !== 1) throw lie('choices must be one', choices)
  const choice = field(choices[0], 'choices[0]')
  checkEcho(choice, promptIds)
  return choice
}

/**
 * A server that keeps the request's id adds a prefix; for one that replaces it, only the prompt's ids
 * identify the answer.
 */
export function checkId(id: unknown, wireId: string): void {
  if (typeof id === 'string' && id.startsWith(ID_PREFIX) && isOurs(id) && id !== ID_PREFIX + wireId)
    throw lie(`id must be that of the request (${wireId})`, id)
}

/** Rejects the answer to another prompt. */
export function checkEcho(
  { prompt_token_ids: echoed }: Readonly<Record<string, unknown>>,
  promptIds: Uint32Array,
): void {
  const isOther =
    !Array.isArray(echoed) ||
    echoed.length !== promptIds.length ||
    echoed.some((one, at) => one !== promptIds[at])
  if (isOther) throw lie('prompt_token_ids must be the ids that were sent', echoed)
}

const ID_PREFIX = 'cmpl-'

/** Returns true unless the server generated the id: 32 digits of a UUID. */
function isOurs(id: string): boolean {
  return !/^cmpl-[0-9a-f]{32}$/.test(id)
}

/** Reads ids of the model. */
export function readIds(value: unknown, name: string, vocabSize: number = 2 ** 32): Uint32Array {
  if (!Array.isArray(value)) throw lie(`${name} must be a list`, value)
  const wrong = value.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabSize))
  if (wrong !== undefined) throw lie(`${name} must be ids below ${vocabSize}`, wrong)
  return Uint32Array.from(value)
}

/** Reads the log-probs of `count` tokens. */
export function readLogProbs(choice: Readonly<Record<string, unknown>>, count: number): Float32Array {
  const told = field(choice.logprobs, 'logprobs').token_logprobs
  if (!Array.isArray(told) || told.length !== count)
    throw lie(`token_logprobs must have one entry per token (${count})`, told)
  return Float32Array.from(told, (value) => {
    const logProb = readLogProb(value)
    if (logProb > LOG_PROB_OF_ZERO) return logProb
    throw lie('log-probs of drawn tokens must be finite and above -9999', value)
  })
}

function readLogProb(value: unknown): number {
  // A server writes null for a missing number, which is not a probability of 1.
  if (value === null) return Number.NaN
  if (typeof value === 'number' && value <= LOG_PROB_SLACK) return Math.min(value, 0)
  throw lie('log-probs must not be above 0', value)
}

/** Reads the end of a completion and checks it against its tokens, except for stop strings. */
export function readEnd(
  { finish_reason: reason, stop_reason: cause }: Readonly<Record<string, unknown>>,
  ids: Uint32Array,
  { maxTokens, stopIds, stopStrings = [] }: GenerateRequest,
): Pick<Completion, 'finishReason' | 'stoppedBy'> {
  if (ids.length > maxTokens) throw lie(`token_ids must be at most ${maxTokens}`, ids.length)
  if (reason === 'abort') return { finishReason: 'abort', stoppedBy: null }
  const early = ids.subarray(0, -1).find((id) => stopIds.includes(id))
  if (early !== undefined) throw lie('token_ids must end with the first stop id', early)
  const stopString = stopStrings.find((text) => text === cause)
  const stopId = stopIds.find((id) => id === ids.at(-1))
  const stoppedBy = stopString ?? stopId ?? null
  const isFull = reason === 'length' && ids.length === maxTokens
  if (stoppedBy !== null && ids.length > 0 && (reason === 'stop' || isFull))
    return { finishReason: 'stop', stoppedBy }
  if (isFull) return { finishReason: 'length', stoppedBy }
  throw lie(`finish_reason must be what ${ids.length} tokens of ${maxTokens} show`, reason)
}

/** Returns both kinds of log-probs if they are the same, else NaN for the other kind. */
export function bothKinds(
  told: Float32Array,
  request: GenerateRequest,
  mode: LogProbsMode,
): Pick<Completion, 'logProbs' | 'sampledLogProbs'> {
  if (isPlain(request)) return { logProbs: told, sampledLogProbs: told.slice() }
  const unknown = new Float32Array(told.length).fill(Number.NaN)
  if (mode === 'processed') return { logProbs: unknown, sampledLogProbs: told }
  // At temperature 0 the token has probability 1.
  return {
    logProbs: told,
    sampledLogProbs: request.temperature === 0 ? new Float32Array(told.length) : unknown,
  }
}

/** Returns true if the sampling distribution is the unmodified one. */
function isPlain(request: GenerateRequest): boolean {
  const { temperature = 1, topK = 0, topP = 1, minP = 0 } = request
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0 } = request
  const isCut = topK !== 0 || topP !== 1 || minP !== 0
  return (
    temperature === 1 &&
    !isCut &&
    repetitionPenalty === 1 &&
    frequencyPenalty === 0 &&
    presencePenalty === 0 &&
    givenRules(request).length === 0
  )
}

/** Returns `value` as an object; `name` is for messages. */
export function field(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>
  throw lie(`${name} must be an object`, value)
}

/** Error of an inconsistent answer. */
export function lie(rule: string, got: unknown): FulmarError {
  return new FulmarError('MALFORMED', `the answer's ${rule}: got ${describeValue(got)}`)
}
