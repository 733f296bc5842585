import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'

const backend = process.env.FULMAR_TEST_BACKEND

describe('fulmar', () => {
  it('helps with every command and knows its version', async () => {
    const help = await fulmar(['--help'])
    expect(help.code).toBe(0)
    for (const name of ['train', 'eval', 'render', 'tokenize', 'report', 'doctor', '--backend']) {
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

  it('ends with 1 and one sentence with a code for what fails', async () => {
    const result = await fulmar(['tokenize', 'naïve'])
    expect(result).toMatchObject({ code: 1, stdout: '' })
    expect(result.stderr).toMatch(/^fulmar: .+ \(UNKNOWN_TEXT\)\n$/)
    const missing = await fulmar(['report', '/no/such/run'])
    expect(missing).toMatchObject({ code: 1 })
    expect(missing.stderr).toMatch(/^fulmar: path must be a readable file: got .* \(IO\)\n$/)
  })
})

describe('fulmar tokenize', () => {
  it('goes from text to ids and back', async () => {
    const { stdout } = await fulmar(['tokenize', '[ANSWER] 10'])
    expect(stdout).toMatch(/^\d+( \d+){10}\n$/)
    expect(await fulmar(['tokenize', '--decode', stdout.trim()])).toMatchObject({
      code: 0,
      stdout: '[ANSWER] 10\n',
    })
  })

  it('reads standard input for -', async () => {
    const { stdout } = await fulmar(['tokenize', '-', '--json'], { stdin: 'a\nb' })
    const { ids } = JSON.parse(stdout)
    expect(ids).toHaveLength(3)
    const back = await fulmar(['tokenize', '-', '--decode', '--json'], { stdin: JSON.stringify(ids) })
    expect(JSON.parse(back.stdout)).toEqual({ text: 'a\nb' })
  })

  it('refuses ids that are none', async () => {
    expect((await fulmar(['tokenize', '--decode', '1 two'])).stderr).toContain('ids must be numbers: got two')
    expect((await fulmar(['tokenize', '--decode', '99999999'])).stderr).toContain('(OUT_OF_RANGE)')
  })
})

describe('fulmar render', () => {
  const messages = [{ role: 'user', content: '1+1?' }]

  it('shows the text that a policy sees', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'messages.json'), JSON.stringify(messages))
    const { code, stdout } = await fulmar([
      'render',
      '--messages',
      join(folder, 'messages.json'),
      '--generation-prompt',
    ])
    expect(code).toBe(0)
    expect(stdout).toBe('<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n')
  })

  it('says where each token came from as JSON', async () => {
    const chat = [...messages, { role: 'assistant', content: '2' }]
    const { stdout } = await fulmar(['render', '--messages', '-', '--json'], { stdin: JSON.stringify(chat) })
    const { family, text, ids, origins, sampledMask } = JSON.parse(stdout)
    expect(family).toBe('chatml')
    expect(text).toContain('assistant\n2<|im_end|>')
    expect([origins.length, sampledMask.length]).toEqual([ids.length, ids.length])
    expect(origins).toContain('user')
    expect(sampledMask.filter((bit: number) => bit === 1)).toHaveLength(2)
  })

  it('refuses what is not a list of messages', async () => {
    const render = (stdin: string) => fulmar(['render', '--messages', '-'], { stdin })
    expect((await render('{}')).stderr).toContain('messages must be a list: got object (MALFORMED)')
    expect((await render('[{"content":"x"}]')).stderr).toContain('(MALFORMED)')
    expect((await render('not json')).stderr).toContain('messages must be JSON: got - ')
    expect((await fulmar(['render'])).code).toBe(2)
  })
})

describe('fulmar doctor', () => {
  it('says what is built, which lanes there are, and that there is no CUDA lane', async () => {
    const { code, stdout } = await fulmar(['doctor', '--json'])
    const report = JSON.parse(stdout)
    expect(code).toBe(0)
    expect(report).toMatchObject({ version: '1.2.3', loaded: backend, gpu: { isUsable: false } })
    expect(report[backend ?? '']).toMatchObject({ isUsable: true, lanes: expect.arrayContaining(['scalar']) })
    expect(report[backend === 'wasm' ? 'native' : 'wasm']).toEqual({
      isUsable: false,
      reason: 'Error: no such build',
    })
    expect(report.gpu.reason).toMatch(/no CUDA lane.*no NVIDIA driver was found/)
  })

  it('asks another process about the other build', async () => {
    const asked: string[] = []
    const probe = async (name: string) => {
      asked.push(name)
      return { code: 0, stdout: (await fulmar(['doctor', '--json', '--only-loaded'])).stdout, stderr: '' }
    }
    const { stdout } = await fulmar(['doctor'], { probe, exists: (path) => path === '/dev/nvidiactl' })
    expect(asked).toEqual([backend === 'wasm' ? 'native' : 'wasm'])
    expect(stdout.match(/ core +usable, version/g)).toHaveLength(2)
    expect(stdout).toMatch(
      /gpu +not usable: this release has no CUDA lane.*this machine has an NVIDIA driver/,
    )
  })
})
