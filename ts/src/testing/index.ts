/** Suites that parts of your own must pass, as ours do. `import from 'fulmar/testing'`. */

export { checkSampler } from './check-sampler.js'
export { checkStorage } from './check-storage.js'
