/** The only door to the compiled core. */

export { backend, lastPanic, raw } from '#backend'
export type * from './raw.js'
