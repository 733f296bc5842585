import { existsSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { d4rlOptions, golden, isNative } from '../dataset/golden-rows.js'
import { goldenHub } from '../dataset/lerobot-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'

const HOPPER = 'd4rl:hopper-medium-v2'

/** A folder of data sets and the arguments that fetch into it. */
async function here() {
  const { asked, options } = await d4rlOptions()
  const { root, mirror } = options
  const fetch = (...more: string[]) =>
    fulmar(['dataset', 'fetch', HOPPER, '--root', root, '--mirror', mirror, ...more])
  const run = (...args: string[]) => fulmar(['dataset', ...args, '--root', root])
  return { asked, root, fetch, run, dataPath: join(root, 'hopper-medium-v2') }
}

describe.runIf(isNative)('fulmar dataset', () => {
  it('fetches a data set once, shows the progress, and prints its folder', async () => {
    const { asked, fetch, dataPath } = await here()
    const first = await fetch()
    expect(first).toMatchObject({ code: 0, stdout: `${dataPath}\n` })
    expect(first.stderr).toContain('hopper_medium-v2.hdf5')
    const numAsked = asked.length
    expect(await fetch('--json')).toMatchObject({ code: 0, stderr: '' })
    expect(asked).toHaveLength(numAsked)
    expect(await fetch('--force')).toMatchObject({ code: 0, stdout: `${dataPath}\n` })
    expect(asked.length).toBeGreaterThan(numAsked)
  })

  it('lists what is here, and of a source with a table all of it', async () => {
    const { fetch, run } = await here()
    expect(await run('list')).toMatchObject({ code: 0, stdout: '' })
    await fetch()
    expect((await run('list', 'minari')).stdout).not.toContain('here')
    const lines = (await run('list', 'd4rl')).stdout.trim().split('\n')
    expect([lines.length, lines[0]]).toEqual([179, `${HOPPER}  here`])
    expect((await run('list', 'openml')).stdout).toContain('openml:adult_onehot\n')
    expect((await run('list', 'roboset')).stdout).toContain('roboset:DAPG(expert)/door_v2d-v1\n')
    const rows = JSON.parse((await run('list', 'd4rl', '--json')).stdout) as { isHere: boolean }[]
    expect(rows.filter(({ isHere }) => isHere)).toEqual([{ name: HOPPER, isHere: true }])
  })

  it('shows rows and leaves', async () => {
    const { fetch, run, dataPath } = await here()
    await fetch('--split-trajs')
    const { stdout } = await run('info', HOPPER)
    expect(stdout).toContain('next.observation')
    const info = JSON.parse((await run('info', HOPPER, '--json')).stdout) as { leaves: object; path: string }
    expect(info.path).toBe(dataPath)
    expect(info.leaves).toMatchObject({ mask: expect.stringMatching(/^bool \[\d+, \d+\]$/) })
  })

  it('verifies each file, and names one that changed', async () => {
    const { fetch, run, dataPath } = await here()
    await fetch()
    expect(await run('verify', HOPPER)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/hopper-medium-v2: \d+ files have their SHA-256\n$/),
    })
    const leaf = (await readdir(dataPath)).find((name) => name.endsWith('.memmap')) ?? ''
    await writeFile(join(dataPath, leaf), 'other bytes')
    const changed = await run('verify', HOPPER)
    expect(changed.code).toBe(1)
    expect(changed.stderr).toMatch(new RegExp(`${leaf} must have SHA-256 \\w+: got .*CORRUPT`))
  })

  it('says of a folder without checksums that it opens', async () => {
    const { fetch, run, dataPath } = await here()
    await fetch()
    await writeFile(join(dataPath, 'checksums.json'), '{')
    expect((await run('verify', HOPPER)).stderr).toMatch(/checksums\.json must be an object of JSON.*CORRUPT/)
    const { rm } = await import('node:fs/promises')
    await rm(join(dataPath, 'checksums.json'))
    expect((await run('verify', HOPPER)).stdout).toContain('opened; it has no checksums')
  })

  it('deletes both folders of a data set, and nothing that is not one', async () => {
    const { fetch, run, dataPath, root } = await here()
    await fetch()
    await mkdir(join(root, 'letters'))
    expect(await run('delete', HOPPER)).toMatchObject({ code: 0, stdout: `${dataPath}\n` })
    expect(existsSync(dataPath)).toBe(false)
    for (const name of [HOPPER, 'd4rl:letters']) {
      const again = await run('delete', name)
      expect(again).toMatchObject({ code: 1, stdout: '' })
      expect(again.stderr).toMatch(/it is not there \(UNAVAILABLE\)/)
    }
    expect(existsSync(join(root, 'letters'))).toBe(true)
  })

  it('goes on with 1 and a sentence where a data set is unknown, and stops with 130', async () => {
    const { fetch, run, root } = await here()
    expect((await fulmar(['dataset', 'fetch', 'd4rl:hoper-medium-v2', '--root', root])).stderr).toMatch(
      /did you mean hopper-medium-v2\? \(UNKNOWN_NAME\)/,
    )
    expect((await run('info', 'd4lr:x')).stderr).toMatch(/did you mean d4rl\? \(UNKNOWN_NAME\)/)
    expect((await run('delete', 'd4rl:../x')).stderr).toMatch(/MALFORMED/)
    expect((await run('delete', 'hopper')).stderr).toMatch(/name must be a source and an id.*MALFORMED/)
    expect(await fetch('--revision', 'x')).toMatchObject({ code: 1, stdout: '' })
    const stopped = await fulmar(['dataset', 'fetch', HOPPER, '--root', root], {
      signal: AbortSignal.abort(),
    })
    expect(stopped).toMatchObject({ code: 130, stdout: '' })
  })

  it('fetches videos of LeRobot without a decoder, and finds them by their id', async () => {
    const id = 'lerobot/aloha_tiny'
    const { options } = await goldenHub(id)
    const { endpoint, cache, root } = options
    const flags = ['--endpoint', endpoint, '--cache', cache, '--root', root]
    const dataPath = join(root, 'lerobot_aloha_tiny')
    const fetched = await fulmar(['dataset', 'fetch', `lerobot:${id}`, ...flags])
    expect(fetched).toMatchObject({ code: 0, stdout: `${dataPath}\n` })
    const run = (...args: string[]) => fulmar(['dataset', ...args, '--root', root])
    expect((await run('list', 'lerobot')).stdout).toBe(`lerobot:${id}\n`)
    expect((await run('info', `lerobot:${id}`)).stdout).toContain('observation.state')
    expect((await run('verify', `lerobot:${id}`)).stdout).toMatch(/\d+ files have their SHA-256/)
    expect(await run('delete', `lerobot:${id}`)).toMatchObject({ code: 0, stdout: `${dataPath}\n` })
    expect(existsSync(dataPath)).toBe(false)
  })

  it('fetches as many splits of Atari DQN replay as are asked for', async () => {
    const root = await temporaryFolder()
    const fetch = (...more: string[]) =>
      fulmar([
        'dataset',
        'fetch',
        'atari:Pong/1',
        '--root',
        root,
        '--folder',
        golden('raw/gs/atari-replay-datasets'),
        ...more,
      ])
    const { code, stdout } = await fetch('--num-splits', '1', '--json')
    expect(code).toBe(0)
    // Both splits have 34.
    expect(JSON.parse(stdout).rows).toBeLessThan(34)
    const wrong = await fetch('--num-splits', 'two')
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringMatching(/numSplits.*OUT_OF_RANGE/)])
  })

  it('lists data sets in namespaces', async () => {
    const root = await temporaryFolder()
    for (const id of ['mujoco/hopper/expert-v0', 'mujoco/hopper/expert-v0_split', 'half-v0.incomplete']) {
      await mkdir(join(root, id), { recursive: true })
      await writeFile(join(root, id, 'meta.json'), '{}')
    }
    const { stdout } = await fulmar(['dataset', 'list', 'minari', '--root', root])
    expect(stdout).toBe('minari:mujoco/hopper/expert-v0\n')
  })
})
