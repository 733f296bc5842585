/** First requests to a server: its model and its features. */

import { FulmarError } from '../core/index.js'
import type { GenerateRequest } from '../policy/policy.js'
import type { AsyncVLLMOptions } from './async-vllm.js'
import {
  completionBody,
  type LogProbsMode,
  readCompletion,
  readObject,
  type ServedModel,
} from './vllm-protocol.js'
import type { Servers } from './vllm-servers.js'

/** Model of a server, and the maximum number of tokens of a sequence. */
export type ProbedModel = ServedModel & { readonly contextLength: number | undefined }

/**
 * Lists the models, and draws a token to check its id and log-prob. It is drawn among the single most likely
 * token: a server with processed log-probs then returns 0, one with raw log-probs does not, unless the model
 * is certain.
 * @throws {FulmarError} `INCOMPATIBLE` or `UNKNOWN_NAME` for a missing feature; `UNAVAILABLE` if it does not answer.
 */
export async function probeServer(
  servers: Servers,
  target: number,
  { model: wanted, vocabSize, logProbsMode }: AsyncVLLMOptions,
): Promise<ProbedModel> {
  const { model, contextLength } = readModels(await servers.control(target, 'GET', '/v1/models'), wanted)
  const request: GenerateRequest = {
    ...{
      requestId: `probe-${target}`,
      promptIds: Uint32Array.of(0),
      seed: 0,
      maxTokens: 1,
      stopIds: [],
      topK: 1,
    },
  }
  const served = { model, vocabSize, logProbsMode: 'raw' as const }
  const wireId = servers.wireId(request.requestId)
  const body = JSON.parse(completionBody(wireId, request, served)) as object
  const { logProbs } = readProbe(
    await servers.control(target, 'POST', '/v1/completions', { body }),
    wireId,
    request,
    served,
  )
  return { model, vocabSize, contextLength, logProbsMode: logProbsMode ?? modeOf(logProbs[0]) }
}

function readModels(
  text: string,
  wanted: string | undefined,
): { readonly model: string; readonly contextLength: number | undefined } {
  const { data } = readObject(text)
  const models = (Array.isArray(data) ? data : []).filter(
    (one): one is { id: string; max_model_len?: unknown } => typeof one?.id === 'string',
  )
  const found = wanted === undefined ? models[0] : models.find(({ id }) => id === wanted)
  if (found === undefined) {
    const names = models.map(({ id }) => id).join(', ')
    throw new FulmarError(
      'UNKNOWN_NAME',
      `model must be one of those served (${names || 'none'}): got ${wanted}`,
    )
  }
  const { id, max_model_len: length } = found
  return { model: id, contextLength: typeof length === 'number' && length > 0 ? length : undefined }
}

function readProbe(text: string, wireId: string, request: GenerateRequest, served: ServedModel) {
  try {
    return readCompletion(text, wireId, request, served)
  } catch (error) {
    const rule = 'the server must return token ids and log-probs (vLLM 0.10.2 or later, return_token_ids)'
    throw new FulmarError('INCOMPATIBLE', `${rule}: got ${error instanceof Error ? error.message : error}`, {
      cause: error,
    })
  }
}

function modeOf(logProb: number | undefined): LogProbsMode {
  return logProb === 0 ? 'processed' : 'raw'
}
