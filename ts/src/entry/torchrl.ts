/** TorchRL names: containers, wrappers, environments and transforms over dictionaries. */

export * from '../torchrl/index.js'
