/** Public data sets of offline reinforcement learning. */

export { ActionTokenizerBase } from './action-tokenizer.js'
export {
  AtariDQNExperienceReplay,
  type AtariDQNOptions,
  type AtariSplit,
} from './atari-dqn-experience-replay.js'
export { D4RLExperienceReplay, type D4RLOptions } from './d4rl-experience-replay.js'
export { BaseDatasetExperienceReplay } from './dataset-experience-replay.js'
export type { DatasetOptions, HubDatasetOptions } from './dataset-options.js'
export { GenDGRLExperienceReplay, type GenDGRLOptions } from './gen-dgrl-experience-replay.js'
export {
  type LeRobotColumn,
  type LeRobotKeyMap,
  lerobotColumnsToTensorDict,
} from './lerobot-columns.js'
export {
  type LeRobotColumnsOptions,
  LeRobotExperienceReplay,
  type LeRobotOptions,
  type LeRobotRowsOptions,
} from './lerobot-experience-replay.js'
export { type DatasetFactory, datasetSources, loadDataset, registerDataset } from './load-dataset.js'
export {
  MinariExperienceReplay,
  type MinariIdsOptions,
  type MinariOptions,
} from './minari-experience-replay.js'
export type { EncodedFrame } from './mp4-file.js'
export { OpenMLExperienceReplay, type OpenMLOptions } from './openml-experience-replay.js'
export { OpenXExperienceReplay } from './openx-experience-replay.js'
export type { OpenXOptions } from './openx-options.js'
export { OpenXStream, type OpenXStreamState } from './openx-stream.js'
export type { PreprocessOptions, RowsFn } from './preprocess.js'
export { type ReadD4RLOptions, readD4RL, readMinari, readNpz } from './read-dataset.js'
export { RobosetExperienceReplay, type RobosetOptions } from './roboset-experience-replay.js'
export {
  type GripperMode,
  type RobotActionSpace,
  RobotDatasetMetadata,
  type RobotDatasetMetadataOptions,
} from './robot-dataset-metadata.js'
export { UniformActionTokenizer, type UniformActionTokenizerOptions } from './uniform-action-tokenizer.js'
export { type ValidateVlaOptions, validateVlaTensordict } from './validate-vla-tensordict.js'
export { VD4RLExperienceReplay, type VD4RLOptions } from './vd4rl-experience-replay.js'
export {
  type DecodeVideoOptions,
  type VideoBinOptions,
  VideoClipRef,
  type VideoClipRefOptions,
} from './video-clip-ref.js'
export {
  clearVideoDecoderCache,
  setVideoDecoderCacheSize,
  type VideoDecode,
  type VideoPicture,
} from './video-decoder.js'
export type { VideoTrack } from './video-track.js'
export {
  type NormStats,
  VocabTailActionTokenizer,
  type VocabTailActionTokenizerOptions,
} from './vocab-tail-action-tokenizer.js'
export { type WriteMinariOptions, writeMinari } from './write-minari.js'
