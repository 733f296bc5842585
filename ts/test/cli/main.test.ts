import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { backendOf, conditionsOf } from '../../src/cli/backend.js'
import { temporaryFolder } from '../telemetry/folder.js'

const main = join(import.meta.dirname, '../../../dist/cli/main.js')
const backend = process.env.FULMAR_TEST_BACKEND === 'wasm' ? 'wasm' : 'native'

/** Runs the built executable, as `npx fulmar` does. */
function run(
  options: { env?: NodeJS.ProcessEnv },
  ...args: string[]
): Promise<{ code: number | string | null | undefined; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [main, ...args], options, (error, stdout, stderr) => {
      resolve({ code: error ? error.code : 0, stdout, stderr })
    })
  })
}

describe('the fulmar executable', () => {
  it('runs on the build of the core that --backend names', async () => {
    const { code, stdout } = await run({}, 'doctor', '--json', '--backend', backend)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      loaded: backend,
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    })
  })

  it('refuses a --backend that NODE_OPTIONS rules out, in place of running on the other build', async () => {
    const env = { ...process.env, NODE_OPTIONS: '--conditions=fulmar-wasm' }
    const { code, stdout, stderr } = await run({ env }, 'doctor', '--backend', 'native')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toBe(
      'fulmar: --backend native cannot be loaded: conditions given to this runtime, as in NODE_OPTIONS, select wasm\n',
    )
  })

  it('names the remedy for a task that Node takes for CommonJS', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'package.json'), '{ "type": "commonjs" }')
    await writeFile(join(folder, 'task.js'), "import 'node:fs'\nexport default 7")
    const { code, stderr } = await run({}, 'train', '--task', join(folder, 'task.js'))
    expect(code).toBe(1)
    expect(stderr).toContain('end its name with .mjs, or write "type": "module" into package.json) (IO)')
  })

  it('says in doctor which builds NODE_OPTIONS rules out', async () => {
    const env = { ...process.env, NODE_OPTIONS: '--conditions=fulmar-wasm' }
    const { stdout } = await run({ env }, 'doctor', '--json')
    expect(JSON.parse(stdout)).toMatchObject({
      runtime: `Node ${process.versions.node}`,
      loaded: 'wasm',
      wasm: { isUsable: true },
      native: { isUsable: false, reason: expect.stringContaining('--backend native cannot be loaded') },
    })
  })

  it.each(['stdout', 'stderr'] as const)(
    'ends its work where the reader of its %s has left, as `head` does',
    async (name) => {
      const args = name === 'stdout' ? ['doctor'] : ['doctor', '--backend=cuda']
      const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
      child[name].destroy()
      let other = ''
      const rest = name === 'stdout' ? child.stderr : child.stdout
      rest.setEncoding('utf8').on('data', (text: string) => {
        other += text
      })
      const [code] = await once(child, 'close')
      expect({ code, other }).toEqual({ code: name === 'stdout' ? 0 : 2, other: '' })
    },
  )

  it('passes on the exit code of a command that fails', async () => {
    expect(await run({}, 'tokenize', 'naïve', '--backend', backend)).toMatchObject({ code: 1, stdout: '' })
    expect(await run({}, 'doctor', '--backend=cuda')).toMatchObject({ code: 2 })
  })
})

describe('backendOf', () => {
  it('reads --backend in both spellings and leaves everything else to the command', () => {
    expect(backendOf(['train', 'x', '--backend', 'wasm'])).toBe('wasm')
    expect(backendOf(['--backend=native', 'doctor'])).toBe('native')
    expect(backendOf(['doctor'])).toBeUndefined()
    expect(backendOf(['doctor', '--backend', 'cuda'])).toBeUndefined()
    expect(backendOf(['doctor', '--backend'])).toBeUndefined()
  })
})

describe('conditionsOf', () => {
  it('asks Node for the condition that package.json names', () => {
    expect(conditionsOf('wasm')).toEqual(['--conditions=fulmar-wasm'])
    expect(conditionsOf('native')).toEqual([])
  })
})
