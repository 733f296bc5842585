/** Failures of a request in OpenAI's form: `{ error: { message, type, param, code } }` with an HTTP status. */

import { type ErrorCode, FulmarError, messageOf } from '../core/index.js'

/** `type` of an error, as OpenAI names the kinds. */
export type ProviderErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'insufficient_quota'
  | 'server_error'

/** Parts of a {@link ProviderError} that have a default. */
export interface ProviderErrorParts {
  /** Field of the request, such as `messages[2].role`. @default null */
  readonly param?: string | null
  /** If true, clients may send the request again. @default false */
  readonly canRetry?: boolean
  readonly cause?: unknown
}

/** A failure of one request. Answered to the client, never thrown at the caller of the library. */
export class ProviderError extends Error {
  readonly status: number
  readonly type: ProviderErrorType
  readonly code: string
  readonly param: string | null
  readonly canRetry: boolean

  constructor(
    status: number,
    type: ProviderErrorType,
    code: string,
    message: string,
    { param = null, canRetry = false, cause }: ProviderErrorParts = {},
  ) {
    super(message, { cause })
    this.status = status
    this.type = type
    this.code = code
    this.param = param
    this.canRetry = canRetry
  }

  /** The JSON of the answer. */
  toJSON(): { readonly error: object } {
    const { message, type, param, code } = this
    return { error: { message, type, param, code } }
  }
}

/** A field of a request that is wrong. */
export function invalid(param: string, rule: string, code = 'invalid_value'): ProviderError {
  return new ProviderError(400, 'invalid_request_error', code, `${param} ${rule}`, { param })
}

/** A field that the engine cannot honour: refused, as to ignore it would change the answer silently. */
export function unsupported(param: string, rule: string): ProviderError {
  return invalid(param, rule, 'unsupported_parameter')
}

/** A limit of the rollout. Clients do not retry it. */
export function overLimit(message: string): ProviderError {
  return new ProviderError(429, 'insufficient_quota', 'insufficient_quota', message)
}

/** A prompt that leaves no room for an answer. */
export function tooLong(message: string): ProviderError {
  return new ProviderError(400, 'invalid_request_error', 'context_length_exceeded', message, {
    param: 'messages',
  })
}

/** Codes of errors that the request causes, whoever sends it again. */
const OF_THE_REQUEST: readonly ErrorCode[] = [
  'OUT_OF_RANGE',
  'EMPTY',
  'MALFORMED',
  'UNKNOWN_NAME',
  'UNKNOWN_TEXT',
  'INCOMPATIBLE',
  'TEMPLATE_RAISED',
]

/** Returns the answer to a failure of a renderer, with the field that it is about. */
export function renderFailure(error: unknown): ProviderError {
  const { code, message } = codeOf(error)
  if (code === undefined || !OF_THE_REQUEST.includes(code)) return generateFailure(error)
  const place = /^(messages|tools)\b\S*/.exec(message)?.[0] ?? 'messages'
  const detail = `messages must be what the model's chat template can write: ${message}`
  return new ProviderError(400, 'invalid_request_error', 'invalid_prompt', detail, {
    param: place,
    cause: error,
  })
}

/** Returns the answer to a failure of a policy. */
export function generateFailure(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error
  const { code, message } = codeOf(error)
  if (code === 'LIMIT_EXCEEDED') return tooLong(message)
  if (code !== undefined && OF_THE_REQUEST.includes(code))
    return new ProviderError(400, 'invalid_request_error', 'invalid_request', message, { cause: error })
  const status = code === 'UNAVAILABLE' || code === 'ABORTED' || code === 'TIMEOUT' ? 503 : 500
  const parts = { canRetry: status === 503, cause: error }
  return new ProviderError(status, 'server_error', 'server_error', message, parts)
}

function codeOf(error: unknown): { readonly code?: ErrorCode; readonly message: string } {
  return error instanceof FulmarError
    ? { code: error.code, message: error.message }
    : { message: messageOf(error) }
}
