/** Tensors, ragged tensors, tensor dictionaries, safetensors files. */

export type { Dtype, TensorData, TypedArrays } from './dtype.js'
export { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
export { type PadOptions, Ragged } from './ragged.js'
export { readSafetensors, type SafetensorsFile, writeSafetensors } from './safetensors.js'
export { type DtypeOf, type SliceOptions, Tensor, type TensorOptions } from './tensor.js'
export { TensorDict, type TensorDictEntry, type TensorDictOptions, type TensorKey } from './tensor-dict.js'
