/** Tensors, ragged tensors, tensor dictionaries, safetensors files. */

export type { BatchIndex, IndexRange } from './batch-index.js'
export type { DictIn, EntryAt, Excluded, KnownShape, RowsOf, Selected, TensorOf } from './dict-shape.js'
export type { Dtype, DtypeOf, ElementOf, SumOf, TensorData, TypedArrays } from './dtype.js'
export { type NestedKey, unravelKey } from './key.js'
export { type LazyGetOptions, LazyStack, lazyStack, maybeDenseStack } from './lazy-stack.js'
export { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
export { fromPytree, type Pytree, toPytree } from './pytree.js'
export { type PadOptions, Ragged } from './ragged.js'
export { readSafetensors, type SafetensorsFile, writeSafetensors } from './safetensors.js'
export { type SliceOptions, Tensor, type TensorOptions } from './tensor.js'
export {
  type FieldClass,
  type FieldKind,
  type FieldOf,
  type FieldsOf,
  type TensorClass,
  type TensorClassInstance,
  type TensorClassMembers,
  type TensorClassOptions,
  type TensorFields,
  tensorClass,
} from './tensor-class.js'
export { TensorDict, type TensorDictEntry, type TensorKey } from './tensor-dict.js'
export type {
  ApplyOptions,
  PadSequenceOptions,
  RenameOptions,
  SelectOptions,
  TensorDictOptions,
} from './tensor-dict-options.js'
export {
  loadMemmap,
  readArchive,
  readConsolidated,
  saveMemmap,
  writeArchive,
  writeConsolidated,
} from './torch-files.js'
