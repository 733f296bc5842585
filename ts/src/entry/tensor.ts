/** Tensors: dense, ragged and lazy, in dictionaries and files. */

export * from '../tensor/index.js'
