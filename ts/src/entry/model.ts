/** Models: decoders, the sampling engine, optimizers, packing. */

export * from '../model/index.js'
