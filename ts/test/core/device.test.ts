import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { type DeviceName, placeDevice } from '../../src/core/device.js'
import { describeBuild } from '../../src/core/index.js'
import {
  BradleyTerryLoss,
  DistillationLoss,
  DPOLoss,
  drawProbabilities,
  drawToken,
  GRPOLoss,
  groupAdvantage,
  headBackward,
  headLogProbs,
  importanceWeights,
  KTOLoss,
  klEstimate,
  klReward,
  MCAdvantage,
  SFTLoss,
  tokenLogProbs,
  tokenLogProbsBackward,
} from '../../src/objective/index.js'
import {
  CompressedListStorage,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

describe('placeDevice', () => {
  it('takes the CPU where nothing else can be used, and refuses what is none', () => {
    expect(placeDevice('cpu')).toBe('cpu')
    expect(placeDevice('auto')).toBe(usableGpu() ?? 'cpu')
    expect(() => placeDevice('gpu' as 'cpu')).toThrow('device must be cpu, cuda or cuda:N: got "gpu"')
    expect(() => placeDevice('cuda:9999')).toThrow(expect.objectContaining({ code: 'UNAVAILABLE' }))
  })
})

/** Returns the first GPU that this build and machine can use. */
function usableGpu(): string | undefined {
  const canUse = (name: string) => {
    try {
      return placeDevice(name as DeviceName) === name
    } catch {
      return false
    }
  }
  return Array.from({ length: 16 }, (_, ordinal) => `cuda:${ordinal}`).find(canUse)
}

describe('device as an option', () => {
  const device = 'cuda:9999' // no machine has so many
  const unavailable = expect.objectContaining({ code: 'UNAVAILABLE' })
  const [one, mask, offsets] = [Float32Array.of(-1), Uint8Array.of(1), Uint32Array.of(0, 1)]
  const logits = { logits: new Float32Array(2), ids: Uint32Array.of(1) }
  const head = { hidden: one, weight: Float32Array.of(1, 2), width: 1, ids: Uint32Array.of(0) }
  const scored = { logProb: one, refLogProb: one, mask }
  const uses: Readonly<Record<string, (device: DeviceName) => unknown>> = {
    GRPOLoss: (device) => new GRPOLoss({ device }),
    SFTLoss: (device) => new SFTLoss({ device }),
    DPOLoss: (device) => new DPOLoss({ device }),
    KTOLoss: (device) => new KTOLoss({ device }),
    DistillationLoss: (device) => new DistillationLoss({ device }),
    BradleyTerryLoss: (device) => new BradleyTerryLoss({ device }),
    MCAdvantage: (device) => new MCAdvantage({ grpoSize: 2, device }),
    groupAdvantage: (device) => groupAdvantage({ rewards: Float64Array.of(0, 1), groupSize: 2, device }),
    klEstimate: (device) => klEstimate({ ...scored, device }),
    klReward: (device) => klReward({ ...scored, offsets, reward: one, device }),
    importanceWeights: (device) =>
      importanceWeights({ oldLogProb: one, samplerLogProb: one, mask, offsets, device }),
    drawToken: (device) => drawToken({ logits: logits.logits, seed: 1, drawIndex: 0, device }),
    drawProbabilities: (device) => drawProbabilities({ logits: logits.logits, device }),
    tokenLogProbs: (device) => tokenLogProbs({ ...logits, device }),
    tokenLogProbsBackward: (device) => tokenLogProbsBackward({ ...logits, gradLogProb: one, device }),
    headLogProbs: (device) => headLogProbs({ ...head, device }),
    headBackward: (device) => headBackward({ ...head, gradLogProb: one, device }),
    LazyTensorStorage: (device) => new LazyTensorStorage(4, { device }),
    ListStorage: (device) => new ListStorage(4, { device }),
    LazyStackStorage: (device) => new LazyStackStorage(4, { device }),
    CompressedListStorage: (device) => new CompressedListStorage(4, { device }),
  }

  it.each(Object.entries(uses))('is taken by %s, which refuses one that is not there', (_, use) => {
    use('cpu')
    use('auto')
    expect(() => use(device)).toThrow(unavailable)
    expect(() => use('gpu' as 'cpu')).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
  })

  it('is where tensors and dictionaries go', () => {
    const tensor = Tensor.from([1, 2])
    const dict = TensorDict.from({ id: tensor }, { batchSize: [2] })
    expect([tensor.device, tensor.to('cpu').device, dict.to('cpu').device]).toEqual(['cpu', 'cpu', 'cpu'])
    expect(TensorDict.from({}, { batchSize: [2] }).device).toBeUndefined()
    for (const lies of [tensor, dict]) expect(() => lies.to(device)).toThrow(unavailable)
    expect(() => placeDevice(device)).toThrow(unavailable)
  })
})

const canTry = describeBuild().backend === 'native' && process.platform === 'linux'

describe.runIf(canTry)('gpus, with a driver made for the test', () => {
  const folders: string[] = []
  afterAll(() => {
    for (const folder of folders) rmSync(folder, { recursive: true })
  })

  /** Runs a process whose driver has this version, starts with this status, and reports this many GPUs of a capability. */
  function asked({ version = 13_000, init = 0, count = 0, major = 9 }) {
    const folder = mkdtempSync(join(tmpdir(), 'fulmar-driver-'))
    folders.push(folder)
    const [source, library] = [join(folder, 'driver.c'), join(folder, 'libcuda.so')]
    writeFileSync(source, driverSource({ version, init, count, major }))
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, source])
    const program = fileURLToPath(new URL('device-process.mjs', import.meta.url))
    const env = { ...process.env, LD_LIBRARY_PATH: folder }
    return JSON.parse(execFileSync(process.execPath, [program], { env, encoding: 'utf8' }))
  }

  it('lists them, and refuses one that is not there and one without operations', () => {
    const { gpus, placed } = asked({ count: 2 })
    expect(gpus).toEqual(
      [0, 1].map((ordinal) => ({
        ordinal,
        name: `GPU ${ordinal}`,
        memoryBytes: 1e9,
        freeMemoryBytes: null,
        usedMemoryBytes: null,
        computeCapability: '9.0',
        driverVersion: '13.0',
        code: 'sm_90a',
      })),
    )
    // A build has kernels where `cargo xtask kernels` ran before it.
    expect(placed.message).toMatch(
      /^this build has no kernels: cargo xtask kernels makes them$|^NVIDIA's driver must have the function /,
    )
    expect(asked({ count: 2, major: 7 })).toMatchObject({
      gpus: [{ code: null }, { code: null }],
      placed: { message: 'cuda:1 must have a compute capability of 8.0 or later: got 7.0' },
    })
    expect(asked({ count: 1 }).placed.message).toBe(
      'device cuda:1 must be one of 1 GPUs, counted from 0: got 1',
    )
  })

  it('says what is lacking', () => {
    const said = (driver: object) => asked(driver).gpus
    const code = 'UNAVAILABLE'
    expect(said({ version: 12_040 })).toEqual({
      code,
      message: "NVIDIA's driver must run CUDA 13.0 or later: got one for 12.4",
    })
    expect(said({ count: 0 })).toEqual({
      code,
      message: "a GPU must be visible to NVIDIA's driver: it shows 0",
    })
    expect(said({ init: 999 })).toMatchObject({
      code,
      message: expect.stringMatching(/^NVIDIA's driver must answer: got /),
    })
  })
})

function driverSource({
  version,
  init,
  count,
  major,
}: Readonly<Record<'version' | 'init' | 'count' | 'major', number>>): string {
  return `
#include <stdio.h>
int cuDriverGetVersion(int *version) { *version = ${version}; return 0; }
int cuInit(unsigned flags) { return ${init}; }
int cuDeviceGetCount(int *count) { *count = ${count}; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "GPU %d", device); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1000000000; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? ${major} : 0; return 0; }
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_UNKNOWN"; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "unknown"; return 0; }
`
}
