/** Public data sets of offline reinforcement learning, as buffers. */

export {
  BaseDatasetExperienceReplay,
  D4RLExperienceReplay,
  type D4RLOptions,
  type DatasetFactory,
  type DatasetOptions,
  datasetSources,
  loadDataset,
  MinariExperienceReplay,
  type MinariOptions,
  type PreprocessOptions,
  type ReadD4RLOptions,
  type RowsFn,
  readD4RL,
  readMinari,
  registerDataset,
  type WriteMinariOptions,
  writeMinari,
} from '../dataset/index.js'
export type { FetchEvent } from '../telemetry/index.js'
