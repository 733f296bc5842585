/** Time, metrics, the run log and what is drawn from it. */

export { writeFileAtomic } from './atomic-file.js'
export { type Clock, ManualClock, systemClock, TIMER_DELAY_MS_MAX } from './clock.js'
export {
  CHART_POINTS_MAX,
  type ChartPoint,
  escapeHtml,
  lineChart,
} from './line-chart.js'
export { type Metric, metric, type ReducedMetrics, type Reducer, reduceMetrics } from './metric.js'
export {
  type FetchEvent,
  formatDuration,
  ProgressLine,
  type ProgressLineOptions,
  type ProgressStep,
  type ProgressStream,
} from './progress-line.js'
export { REPORT_SAMPLES_MAX, renderReport, writeReport } from './report.js'
export {
  type EvalEvent,
  isRunEvent,
  type Phase,
  type ResultEvent,
  type RunEvent,
  type StepEvent,
} from './run-event.js'
export {
  JSON_LINE_BYTES_MAX,
  JSON_LINES_BYTES_MAX,
  JsonLinesFile,
  LINES_BUFFER_LENGTH_MAX,
  RUN_CONFIG_BYTES_MAX,
  RunLog,
  type RunLogOptions,
  type RunRecord,
  readJsonLines,
  readRun,
} from './run-log.js'
