/** Files of the Hugging Face hub, of web servers and of buckets, in folders of their own. */

export type { Checksum } from './checksum.js'
export type { FetchOptions, ParallelOptions } from './fetch-options.js'
export type { RepoKind } from './hub.js'
export {
  fetchHubFile,
  fetchSnapshot,
  type HubFileOptions,
  type HubOptions,
  type SnapshotOptions,
} from './hub-files.js'
export { cachedModel, type FetchModelOptions, fetchModel, isModelName } from './model-files.js'
export {
  type FetchBucketOptions,
  type FetchFileOptions,
  fetchBucket,
  fetchFile,
  type WebOptions,
} from './web-files.js'
