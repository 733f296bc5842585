/** Tensors, ragged tensors, tensor dictionaries, safetensors files. */

export type { BatchIndex, IndexRange } from './batch-index.js'
export type { Dtype, TensorData, TypedArrays } from './dtype.js'
export { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
export { type PadOptions, Ragged } from './ragged.js'
export { readSafetensors, type SafetensorsFile, writeSafetensors } from './safetensors.js'
export { type DtypeOf, type SliceOptions, Tensor, type TensorOptions } from './tensor.js'
export {
  type PadSequenceOptions,
  type RenameOptions,
  TensorDict,
  type TensorDictEntry,
  type TensorDictOptions,
  type TensorKey,
} from './tensor-dict.js'
export {
  loadMemmap,
  readArchive,
  readConsolidated,
  saveMemmap,
  writeArchive,
  writeConsolidated,
} from './torch-files.js'
