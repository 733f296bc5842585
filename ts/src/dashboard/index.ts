/** Looking at runs: a page on this machine, other programs' formats, facts about files. */

export { Dashboard, type DashboardOptions } from './dashboard.js'
export {
  type InspectedFacts,
  type InspectedKind,
  type InspectedValue,
  type Inspection,
  inspect,
} from './inspect.js'
export { prometheusText } from './prometheus.js'
export { type WriteTensorBoardOptions, writeTensorBoard } from './tensor-board.js'
