/** The only door to the compiled core. */

export { backend, init, lastPanic, raw } from '#backend'
export { defaultHttpClient } from '#http'
export { renderInSandbox } from '#sandbox'
export {
  fetchClient,
  type HttpClient,
  type HttpDownload,
  type HttpRequest,
  type HttpResponse,
} from './http-client.js'
export type * from './raw.js'
export type * from './raw-owner.js'
