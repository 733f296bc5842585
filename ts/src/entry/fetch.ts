/** Fetching: files of the Hugging Face hub, of web servers and of buckets. */

export {
  type Checksum,
  type FetchBucketOptions,
  type FetchFileOptions,
  type FetchModelOptions,
  type FetchOptions,
  fetchBucket,
  fetchFile,
  fetchHubFile,
  fetchModel,
  fetchSnapshot,
  type HubFileOptions,
  type HubOptions,
  type ParallelOptions,
  type RepoKind,
  type SnapshotOptions,
  type WebOptions,
} from '../fetch/index.js'
export type { FetchEvent } from '../telemetry/index.js'
