/** The names of specs up to version 0.6 of TorchRL, for code that still uses them. */

export { Binary as BinaryDiscreteTensorSpec } from '../../spec/binary.js'
export { Bounded as BoundedTensorSpec } from '../../spec/bounded.js'
export { Categorical as DiscreteTensorSpec } from '../../spec/categorical.js'
export { Composite as CompositeSpec } from '../../spec/composite.js'
export { MultiCategorical as MultiDiscreteTensorSpec } from '../../spec/multi-categorical.js'
export { MultiOneHot as MultiOneHotDiscreteTensorSpec } from '../../spec/multi-one-hot.js'
export { NonTensor as NonTensorSpec } from '../../spec/non-tensor.js'
export { OneHot as OneHotDiscreteTensorSpec } from '../../spec/one-hot.js'
export {
  Stacked as LazyStackedTensorSpec,
  StackedComposite as LazyStackedCompositeSpec,
} from '../../spec/stacked.js'
export {
  UnboundedContinuous as UnboundedContinuousTensorSpec,
  UnboundedDiscrete as UnboundedDiscreteTensorSpec,
} from '../../spec/unbounded.js'
