/** Waiting: deadlines, abort signals, and bounds on how much runs at once. */

export {
  aborted,
  type BoundedResult,
  bounded,
  type CallContext,
  type DeadlineResult,
  onAbort,
  unlessAborted,
  withDeadline,
} from './deadline.js'
export { Deadlines } from './deadlines.js'
export { Slots } from './slots.js'
