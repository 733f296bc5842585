/** Types of `fulmar/fetch`: paths come back, options are closed, events fit the progress line. */

import { expectTypeOf, test } from 'vitest'
import {
  type Checksum,
  type FetchBucketOptions,
  type FetchEvent,
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
} from '../../src/entry/fetch.js'
import type { HttpClient } from '../../src/native/index.js'
import type { ProgressLine } from '../../src/telemetry/index.js'

test('each fetch returns a path', () => {
  expectTypeOf(fetchBucket).returns.toEqualTypeOf<Promise<string>>()
  expectTypeOf(fetchFile).returns.toEqualTypeOf<Promise<string>>()
  expectTypeOf(fetchModel).returns.toEqualTypeOf<Promise<string>>()
  expectTypeOf(fetchSnapshot).returns.toEqualTypeOf<Promise<string>>()
  expectTypeOf(fetchHubFile).parameter(2).toEqualTypeOf<HubFileOptions | undefined>()
})

test('options build on each other, and only fetches of several files are parallel', () => {
  expectTypeOf<HubOptions>().toExtend<FetchOptions>()
  expectTypeOf<WebOptions>().toExtend<FetchOptions>()
  expectTypeOf<SnapshotOptions>().toExtend<HubFileOptions & ParallelOptions>()
  expectTypeOf<FetchModelOptions>().toExtend<HubOptions & ParallelOptions>()
  expectTypeOf<FetchFileOptions>().not.toHaveProperty('parallel')
  expectTypeOf<FetchBucketOptions['include']>().toEqualTypeOf<readonly string[] | undefined>()
  expectTypeOf<FetchOptions['client']>().toEqualTypeOf<HttpClient | undefined>()
  expectTypeOf<RepoKind>().toEqualTypeOf<'model' | 'dataset'>()
  expectTypeOf<Checksum['algorithm']>().toEqualTypeOf<'sha256' | 'git' | 'md5'>()
})

test('the progress line takes the events', () => {
  expectTypeOf<FetchEvent>().toExtend<Parameters<ProgressLine['update']>[0]>()
  expectTypeOf<NonNullable<FetchOptions['onProgress']>>().parameter(0).toEqualTypeOf<FetchEvent>()
})

test('unknown options and wrong kinds are refused', () => {
  const wrong = () => {
    // @ts-expect-error there is no such option
    fetchModel('owner/name', { proxy: 'x' })
    // @ts-expect-error spaces are programs
    fetchSnapshot('owner/name', { kind: 'space' })
    // @ts-expect-error a checksum has an algorithm
    fetchFile('https://example.org/a', { checksum: 'abc' })
  }
  expectTypeOf(wrong).toBeFunction()
})
