import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../telemetry/folder.js'
import { fulmar } from './fake-io.js'
import { modelFolder } from './model-folder.js'

const question = [{ role: 'user', content: '1+1?' }]
const chat = [...question, { role: 'assistant', content: '2' }]
const stdin = JSON.stringify(chat)

describe('fulmar render with a family', () => {
  it('shows the text that a policy sees', async () => {
    const file = join(await temporaryFolder(), 'messages.json')
    await writeFile(file, JSON.stringify(question))
    const { code, stdout } = await fulmar(['render', '--messages', file, '--generation-prompt'])
    expect(code).toBe(0)
    expect(stdout).toBe('<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n')
  })

  it('says where each token came from as JSON', async () => {
    const { stdout } = await fulmar(['render', '--messages', '-', '--json'], { stdin })
    const { family, text, ids, origins, sampledMask } = JSON.parse(stdout)
    expect(family).toBe('chatml')
    expect(text).toContain('assistant\n2<|im_end|>')
    expect([origins.length, sampledMask.length]).toEqual([ids.length, ids.length])
    expect(origins).toContain('user')
    expect(sampledMask.filter((bit: number) => bit === 1)).toHaveLength(2)
  })

  it('marks what is trained: the closing token too, since the policy samples it', async () => {
    const args = ['render', '--messages', '-', '--mask', '--family', 'chatml']
    const folder = await modelFolder()
    for (const tokenizer of [[], ['--tokenizer', folder]]) {
      const { stdout } = await fulmar([...args, ...tokenizer], { stdin })
      expect(stdout).toBe('<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n[[2<|im_end|>]]\n')
    }
  })

  it('takes the knobs of a family as JSON, and refuses families and knobs that do not exist', async () => {
    const family = (name: string) => fulmar(['render', '--messages', '-', '--family', name], { stdin })
    expect((await family('{"name":"chatml"}')).code).toBe(0)
    expect(await family('chatlm')).toMatchObject({ code: 1, stdout: '' })
    expect((await family('chatlm')).stderr).toContain('(UNKNOWN_NAME)')
    expect((await family('{"name":"chatml","knob":1}')).stderr).toMatch(/\((UNKNOWN_NAME|MALFORMED)\)/)
    expect((await family('{')).stderr).toContain('family must be a name or JSON: got { (MALFORMED)')
  })

  it('keeps numbers as they were written', async () => {
    const call = '{"function":{"name":"add","arguments":{"x":1.0}}}'
    const stdin = `[{"role":"user","content":"?"},{"role":"assistant","content":"","tool_calls":[${call}]}]`
    const args = ['--family', 'qwen2_5', '--tokenizer', 'tests/golden/tokenizer/qwen2']
    const { stdout } = await fulmar(['render', '--messages', '-', ...args], { stdin })
    expect(stdout).toContain('{"name": "add", "arguments": {"x": 1.0}}')
  })

  it('refuses what is not a list of messages', async () => {
    const render = (input: string) => fulmar(['render', '--messages', '-'], { stdin: input })
    expect((await render('{"role":"user","content":"x"}')).stderr).toContain('(SHAPE_MISMATCH)')
    expect((await render('[{"content":"x"}]')).stderr).toContain('(MALFORMED)')
    expect((await render('not json')).stderr).toContain('messages must be JSON: got - ')
    expect((await fulmar(['render'])).code).toBe(2)
  })
})

describe('fulmar render with a template', () => {
  it('takes a built-in name', async () => {
    const { stdout } = await fulmar(['render', '--template', 'chatml_format', '--messages', '-'], { stdin })
    expect(stdout).toContain('<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>')
    const unknown = await fulmar(['render', '--template', 'nobody', '--messages', '-'], { stdin })
    expect(unknown).toMatchObject({ code: 1, stdout: '' })
    expect(unknown.stderr).toMatch(/got "?nobody"?.*\(UNKNOWN_NAME\)/)
  })

  it('takes a file, with tools, and keeps numbers as they were written', async () => {
    const folder = await temporaryFolder()
    const template = join(folder, 'own.jinja')
    await writeFile(template, '{{ tools[0].name }} {{ messages[0].x }} {{ 1 if add_generation_prompt }}')
    await writeFile(join(folder, 'tools.json'), '[{"name": "add"}]')
    const tools = ['--tools', join(folder, 'tools.json')]
    const args = ['render', '--template', template, '--messages', '-', '--generation-prompt', ...tools]
    const { stdout } = await fulmar(args, { stdin: '[{"role": "user", "x": 1.0}]' })
    expect(stdout).toBe('add 1.0 1\n')
    const twice = await fulmar([...args.slice(0, -1), '-'], { stdin })
    expect(twice.stderr).toBe(
      'fulmar: messages and tools must not both be standard input: got - twice (MALFORMED)\n',
    )
  })

  it("takes a model folder's own template with its special tokens, and gives ids and masks", async () => {
    const folder = await modelFolder()
    const text = 'user: 1+1?;assistant: 2;<|im_end|>'
    for (const model of [
      ['--template', folder],
      ['--tokenizer', folder],
    ]) {
      const args = ['render', ...model, '--messages', '-']
      expect((await fulmar(args, { stdin })).stdout).toBe(`${text}\n`)
      const marked = 'user: [[1+1?]];assistant: [[2]];<|im_end|>\n'
      expect((await fulmar([...args, '--mask'], { stdin })).stdout).toBe(marked)
      const json = JSON.parse((await fulmar([...args, '--json'], { stdin })).stdout)
      expect(json.text).toBe(text)
      expect(json.spans.map(([start, end]: number[]) => text.slice(start, end))).toEqual(['1+1?', '2'])
      expect(json.ids).toEqual([...Buffer.from(text.slice(0, -'<|im_end|>'.length)), 257])
      const trained = json.ids.filter((_: number, index: number) => json.mask[index] === 1)
      expect(Buffer.from(trained).toString()).toBe('1+1?2')
    }
  })

  it('counts a token by its first character, whatever its bytes', async () => {
    const args = ['render', '--template', await modelFolder(), '--messages', '-', '--json']
    const { stdout } = await fulmar(args, { stdin: '[{"role": "é", "content": "😀!"}]' })
    const { ids, mask } = JSON.parse(stdout)
    expect(ids.filter((_: number, index: number) => mask[index] === 1)).toEqual([...Buffer.from('😀!')])
  })

  it('colours what is trained on a terminal', async () => {
    let shown = ''
    const stdout = { isTTY: true, write: (text: string) => (shown += text) }
    await fulmar(['render', '--template', await modelFolder(), '--messages', '-', '--mask'], {
      stdin,
      stdout,
    })
    expect(shown).toBe('user: \u001b[32m1+1?\u001b[0m;assistant: \u001b[32m2\u001b[0m;<|im_end|>\n')
  })

  it('refuses a mask without generation blocks, a folder without a template, and a family beside it', async () => {
    const render = (...args: string[]) => fulmar(['render', '--messages', '-', ...args], { stdin })
    const plain = await render('--template', await modelFolder('{{ messages[0].role }}'), '--mask')
    expect(plain.stderr).toMatch(
      /^fulmar: template must have generation blocks .*: there is none.* \(INCOMPATIBLE\)\n$/,
    )
    const none = await render('--template', await modelFolder(null))
    expect(none.stderr).toMatch(/must come with a chat template.*: there is none \(INCOMPATIBLE\)\n$/)
    expect((await render('--template', 'chatml_format', '--family', 'chatml')).code).toBe(2)
    const raising = await render(
      '--template',
      await modelFolder("{{ raise_exception('no ' + messages[0].role) }}"),
    )
    expect(raising.stderr).toMatch(/no user.*\(TEMPLATE_RAISED\)\n$/)
  })
})
