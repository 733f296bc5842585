/** The names that specs had up to version 0.6 of TorchRL, for code that still says them. */

export { Binary as BinaryDiscreteTensorSpec } from './binary.js'
export { Bounded as BoundedTensorSpec } from './bounded.js'
export { Categorical as DiscreteTensorSpec } from './categorical.js'
export { Composite as CompositeSpec } from './composite.js'
export { MultiCategorical as MultiDiscreteTensorSpec } from './multi-categorical.js'
export { MultiOneHot as MultiOneHotDiscreteTensorSpec } from './multi-one-hot.js'
export { NonTensor as NonTensorSpec } from './non-tensor.js'
export { OneHot as OneHotDiscreteTensorSpec } from './one-hot.js'
export { Stacked as LazyStackedTensorSpec, StackedComposite as LazyStackedCompositeSpec } from './stacked.js'
export {
  UnboundedContinuous as UnboundedContinuousTensorSpec,
  UnboundedDiscrete as UnboundedDiscreteTensorSpec,
} from './unbounded.js'
