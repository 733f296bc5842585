/** Types of `fulmar/replay/files`: folders of buffers, rings of steps, HDF5. */

import { expectTypeOf, test } from 'vitest'
import {
  type Flat2TED,
  type FlatStorageCheckpointer,
  H5StorageCheckpointer,
  type ListStorageCheckpointer,
  type RingPosition,
  readHdf5,
  type StepKeysOptions,
  type StorageCheckpointerBase,
  StorageEnsembleCheckpointer,
  TED2Flat,
  writeHdf5,
} from '../../../src/entry/replay/files.js'
import type { ReplayBuffer, ReplayBufferEnsemble } from '../../../src/replay/index.js'
import type { TensorDict, TensorKey } from '../../../src/tensor/index.js'

test('a checkpointer is for buffers, that of ensembles for ensembles', () => {
  expectTypeOf<FlatStorageCheckpointer>().toExtend<StorageCheckpointerBase>()
  expectTypeOf<ListStorageCheckpointer>().toExtend<StorageCheckpointerBase>()
  expectTypeOf<StorageEnsembleCheckpointer['member']>().toEqualTypeOf<StorageCheckpointerBase>()
  expectTypeOf<ReplayBuffer['dumps']>().parameters.toEqualTypeOf<
    [path: string, checkpointer: StorageCheckpointerBase]
  >()
  expectTypeOf<ReplayBufferEnsemble['loads']>().parameter(1).toEqualTypeOf<StorageEnsembleCheckpointer>()
})

test('conversions take and return dictionaries', () => {
  expectTypeOf<TED2Flat['forward']>().parameters.toEqualTypeOf<
    [steps: TensorDict, ring?: RingPosition | undefined]
  >()
  expectTypeOf<Flat2TED['forward']>().returns.toEqualTypeOf<TensorDict>()
  expectTypeOf(readHdf5).returns.toEqualTypeOf<TensorDict>()
  expectTypeOf(writeHdf5).returns.toEqualTypeOf<Uint8Array>()
  expectTypeOf<StepKeysOptions['doneKeys']>().toEqualTypeOf<readonly TensorKey[] | undefined>()
  expectTypeOf<RingPosition>().toEqualTypeOf<{ readonly shift?: number; readonly isFull?: boolean }>()
})

test('unknown options and other arguments are refused', () => {
  const wrong = (buffer: ReplayBuffer, flat: TED2Flat, steps: TensorDict) => {
    // @ts-expect-error no such option
    new TED2Flat({ done_key: 'done' })
    // @ts-expect-error the option is called `checkpointFile`
    new H5StorageCheckpointer({ file: 'a.h5' })
    // @ts-expect-error the option is called `isFull`
    flat.forward(steps, { full: true })
    // @ts-expect-error a form is no text
    buffer.dumps('folder', 'flat')
    // @ts-expect-error an ensemble needs the form of its members
    new StorageEnsembleCheckpointer()
    // @ts-expect-error a path is no file's bytes
    readHdf5('steps.h5')
  }
  expectTypeOf(wrong).toBeFunction()
})
