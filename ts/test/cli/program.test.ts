import { describe, expect, it } from 'vitest'
import { fulmar } from './fake-io.js'

const backend = process.env.FULMAR_TEST_BACKEND

describe('fulmar', () => {
  it('helps with every command and knows its version', async () => {
    const help = await fulmar(['--help'])
    expect(help.code).toBe(0)
    for (const name of [
      'train',
      'sft',
      'dpo',
      'fetch',
      'dataset',
      'chat',
      'eval',
      'render',
      'tokenize',
      'parse',
      'report',
      'dashboard',
      'export',
      'inspect',
      'doctor',
      '--backend',
    ]) {
      expect(help.stdout).toContain(name)
    }
    expect(await fulmar(['--version'])).toEqual({ code: 0, stdout: '1.2.3\n', stderr: '' })
  })

  it('ends with 2 for what it does not understand, and names the nearest command', async () => {
    expect((await fulmar([])).code).toBe(2)
    const misspelt = await fulmar(['trian', 'x.json'])
    expect(misspelt.code).toBe(2)
    expect(misspelt.stderr).toContain('Did you mean train?')
    expect(await fulmar(['tokenize', 'a', '--jsno'])).toMatchObject({ code: 2 })
    expect(await fulmar(['doctor', '--backend', 'cuda'])).toMatchObject({ code: 2 })
  })

  it('prints the JSON Schema of a configuration, and needs one to train', async () => {
    const { code, stdout } = await fulmar(['train', '--schema'])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ type: 'object', additionalProperties: false })
    expect(JSON.parse(stdout).properties.grpo.properties.groupSize).toMatchObject({
      type: 'integer',
      default: 8,
    })
    const without = await fulmar(['train'])
    expect(without).toMatchObject({ code: 2, stdout: '' })
    expect(without.stderr).toContain("missing required argument 'config'")
  })

  it('ends with 1 and one sentence with a code for what fails', async () => {
    const result = await fulmar(['tokenize', 'naïve'])
    expect(result).toMatchObject({ code: 1, stdout: '' })
    expect(result.stderr).toMatch(/^fulmar: .+ \(UNKNOWN_TEXT\)\n$/)
    const missing = await fulmar(['report', '/no/such/run'])
    expect(missing).toMatchObject({ code: 1 })
    expect(missing.stderr).toMatch(/^fulmar: path must be a readable file: got .* \(IO\)\n$/)
  })
})

describe('fulmar doctor', () => {
  it('says what is built, which lanes there are, and why no GPU is used', async () => {
    const { code, stdout } = await fulmar(['doctor', '--json'])
    const report = JSON.parse(stdout)
    expect(code).toBe(0)
    expect(report).toMatchObject({ version: '1.2.3', loaded: backend, gpu: { isUsable: false } })
    expect(report[backend ?? '']).toMatchObject({ isUsable: true, lanes: expect.arrayContaining(['scalar']) })
    expect(report[backend === 'wasm' ? 'native' : 'wasm']).toEqual({
      isUsable: false,
      reason: 'Error: no such build',
    })
    const sandboxes = [{ isUsable: true }, { isUsable: false, reason: expect.stringMatching(/./) }]
    for (const backend of ['bubblewrap', 'pyodide']) expect(sandboxes).toContainEqual(report.sandbox[backend])
    // Which of these it is depends on the machine.
    expect(report.gpu.reason).toMatch(/CUDA must be built in|NVIDIA's driver|no operation on/)
  })

  it('asks another process about the other build', async () => {
    const asked: string[] = []
    const probe = async (name: string) => {
      asked.push(name)
      return { code: 0, stdout: (await fulmar(['doctor', '--json', '--only-loaded'])).stdout, stderr: '' }
    }
    const { stdout } = await fulmar(['doctor'], { probe })
    expect(asked).toEqual([backend === 'wasm' ? 'native' : 'wasm'])
    expect(stdout.match(/ core +usable, version/g)).toHaveLength(2)
    expect(stdout).toMatch(/gpu +not usable: /)
    expect(stdout).toMatch(
      /sandbox bubblewrap +(usable|not usable: .+)\nsandbox pyodide +(usable|not usable: .+)\n/,
    )
  })
})
