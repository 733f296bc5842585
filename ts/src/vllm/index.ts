/** Policies over vLLM servers, and what chooses among the servers. */

export {
  type FetchLike,
  fetchClient,
  type HttpClient,
  type HttpDownload,
  type HttpRequest,
  type HttpResponse,
  type HttpStream,
} from '../native/http-client.js'
export { AsyncVLLM, type AsyncVLLMOptions } from './async-vllm.js'
export { ChatEndpoint, type ChatEndpointOptions } from './chat-endpoint.js'
export { type Reservation, Router, type RouterOptions, type RoutingContext } from './router.js'
export type { LogProbsMode, ServedModel } from './vllm-protocol.js'
export type { ServerStats } from './vllm-servers.js'
export type { WeightPhase, WeightUpdate, WeightUpdateResult } from './vllm-weights.js'
