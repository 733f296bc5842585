import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { placeDevice } from '../../src/core/device.js'
import { describeBuild } from '../../src/core/index.js'

describe('placeDevice', () => {
  it('takes the CPU where nothing else can be used, and refuses what is none', () => {
    expect([placeDevice('cpu'), placeDevice('auto')]).toEqual(['cpu', 'cpu'])
    expect(() => placeDevice('gpu' as 'cpu')).toThrow('device must be cpu, cuda or cuda:N: got "gpu"')
    expect(() => placeDevice('cuda')).toThrow(expect.objectContaining({ code: 'UNAVAILABLE' }))
  })
})

const canTry = describeBuild().backend === 'native' && process.platform === 'linux'

describe.runIf(canTry)('gpus, with a driver made for the test', () => {
  const folders: string[] = []
  afterAll(() => {
    for (const folder of folders) rmSync(folder, { recursive: true })
  })

  /** What a process says whose driver has this version, starts with this status, and shows so many GPUs. */
  function asked({ version = 13_000, init = 0, count = 0 }) {
    const folder = mkdtempSync(join(tmpdir(), 'fulmar-driver-'))
    folders.push(folder)
    const [source, library] = [join(folder, 'driver.c'), join(folder, 'libcuda.so')]
    writeFileSync(source, driverSource({ version, init, count }))
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, source])
    const program = fileURLToPath(new URL('device-process.mjs', import.meta.url))
    const env = { ...process.env, LD_LIBRARY_PATH: folder }
    return JSON.parse(execFileSync(process.execPath, [program], { env, encoding: 'utf8' }))
  }

  it('lists them, and refuses one that is not there and one without kernels', () => {
    const { gpus, placed } = asked({ count: 2 })
    expect(gpus).toEqual(
      [0, 1].map((ordinal) => ({
        ordinal,
        name: `GPU ${ordinal}`,
        memoryBytes: 1e9,
        computeCapability: '9.0',
      })),
    )
    expect(placed.message).toBe('device cuda:1 must have kernels: this release has none for GPU 1')
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
      message: "a GPU must be visible to NVIDIA's driver: got none",
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
}: Readonly<Record<'version' | 'init' | 'count', number>>): string {
  return `
#include <stdio.h>
int cuDriverGetVersion(int *version) { *version = ${version}; return 0; }
int cuInit(unsigned flags) { return ${init}; }
int cuDeviceGetCount(int *count) { *count = ${count}; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "GPU %d", device); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1000000000; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_UNKNOWN"; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "unknown"; return 0; }
`
}
