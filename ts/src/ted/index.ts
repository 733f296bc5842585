/** Rings of steps as TorchRL keeps them on disk, and HDF5 files. */

export { Flat2TED, TED2Flat } from './flat.js'
export { readHdf5, writeHdf5 } from './hdf5.js'
export { H5Combine, type H5Options, H5Split } from './hdf5-split.js'
export type { RingPosition, TEDOptions } from './keys.js'
export { Nested2TED, TED2Nested } from './nested.js'
