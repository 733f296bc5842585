/** Specs: which shape, dtype and values an observation, an action or a reward may have. */

export { Binary, type BinaryOptions } from './binary.js'
export { Bounded, BoundedContinuous, BoundedDiscrete, type BoundedOptions } from './bounded.js'
export { Categorical } from './categorical.js'
export { type CheckEnvSpecsOptions, checkEnvSpecs, type SpecEnv } from './check-env-specs.js'
export { Choice, type ChosenValue } from './choice.js'
export { Composite, type CompositeOptions, type LockOptions, type ReshapedEntries } from './composite.js'
export { type DiscreteOptions, DiscreteSpec } from './discrete-spec.js'
export type { FloatDtype, WholeDtype } from './domain.js'
export {
  checkNoExclusiveKeys,
  consolidateSpec,
  containsLazySpec,
  type MakeCompositeOptions,
  makeCompositeFromTd,
} from './lazy.js'
export { MultiCategorical } from './multi-categorical.js'
export { MultiOneHot } from './multi-one-hot.js'
export { NonTensor, type NonTensorOptions } from './non-tensor.js'
export { OneHot } from './one-hot.js'
export { Stacked, StackedComposite } from './stacked.js'
export { type EnumerateOptions, type RESHAPED, TensorSpec } from './tensor-spec.js'
export type {
  AnySpec,
  DictOf,
  NestedAny,
  NestedPlain,
  PlainDict,
  PlainElement,
  PlainOf,
  SpecCheckOptions,
  SpecEntries,
  SpecJson,
  SpecPlace,
  SpecShape,
  SpecTable,
  SpecViolation,
  ValueOf,
  WithoutLast,
} from './types.js'
export { Unbounded, UnboundedContinuous, UnboundedDiscrete, type UnboundedOptions } from './unbounded.js'
