/** Files of replay buffers: checkpointers, TED conversions, HDF5. */

export {
  CompressedListStorageCheckpointer,
  FlatStorageCheckpointer,
  H5StorageCheckpointer,
  ListStorageCheckpointer,
  NestedStorageCheckpointer,
  type StepKeysOptions,
  StorageCheckpointerBase,
  StorageEnsembleCheckpointer,
  TensorStorageCheckpointer,
} from '../../replay/checkpointer.js'
export * from '../../ted/index.js'
