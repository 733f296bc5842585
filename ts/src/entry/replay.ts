/** Replay: buffers with their storages, samplers and writers. */

export * from '../replay/index.js'
