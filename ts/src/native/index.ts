/** The only door to the compiled core. */

export { backend, lastPanic, raw } from '#backend'
export { renderInSandbox } from '#sandbox'
export type * from './raw.js'
