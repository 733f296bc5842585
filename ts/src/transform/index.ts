/** Transforms of dictionaries: what a buffer does to items as they are written and to batches as they are read. */

export { Compose } from './compose.js'
export {
  CenterCrop,
  type CenterCropOptions,
  GrayScale,
  Resize,
  type ResizeOptions,
  ToTensorImage,
  type ToTensorImageOptions,
} from './images.js'
export {
  ExcludeTransform,
  type ExcludeTransformOptions,
  RenameTransform,
  type RenameTransformOptions,
  SelectTransform,
  type SelectTransformOptions,
} from './keys.js'
export { MultiStep, type MultiStepOptions, MultiStepTransform } from './multi-step.js'
export {
  CatTensors,
  type CatTensorsOptions,
  DoubleToFloat,
  type DoubleToFloatOptions,
  FlattenObservation,
  type FlattenObservationOptions,
  UnsqueezeTransform,
  type UnsqueezeTransformOptions,
} from './observations.js'
export { PolicyAgeFilter, type PolicyAgeFilterOptions } from './policy-age-filter.js'
export {
  BinarizeReward,
  DensifyReward,
  type DensifyRewardOptions,
  Reward2GoTransform,
  type Reward2GoTransformOptions,
  RewardClipping,
  type RewardClippingOptions,
  RewardScaling,
  type RewardScalingOptions,
  SignTransform,
} from './rewards.js'
export {
  type SplitTrajectoriesOptions,
  splitTrajectories,
  splitTrajectoriesRagged,
} from './split-trajectories.js'
export { type MappedKeys, Transform, type TransformKeys } from './transform.js'
export {
  ActionChunkTransform,
  type ActionChunkTransformOptions,
  BurnInTransform,
  type BurnInTransformOptions,
  CatFrames,
  type CatFramesOptions,
  NextStateReconstructor,
  type NextStateReconstructorOptions,
  RandomCropTensorDict,
  type RandomCropTensorDictOptions,
} from './windows.js'
