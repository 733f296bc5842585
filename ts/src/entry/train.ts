/** Training: recipes, schedules, checkpoints, runs and their records. */

export {
  type EvalEvent,
  type JsonLinesFile,
  type Metric,
  metric,
  type Phase,
  ProgressLine,
  type ProgressLineOptions,
  type ProgressStep,
  type ProgressStream,
  type ReducedMetrics,
  type Reducer,
  type ResultEvent,
  type RunEvent,
  RunLog,
  type RunLogOptions,
  type RunRecord,
  readRun,
  reduceMetrics,
  renderReport,
  type StepEvent,
  writeReport,
} from '../telemetry/index.js'
export * from '../train/index.js'
