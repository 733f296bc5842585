import { describe, expect, it } from 'vitest'
import { fulmar } from './fake-io.js'
import { modelFolder } from './model-folder.js'

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

  it('takes the tokenizer of a model, where markers are text unless they are asked for', async () => {
    const tokenizer = ['--tokenizer', await modelFolder()]
    const bytes = [...Buffer.from('é<|im_end|>')]
    const asText = await fulmar(['tokenize', 'é<|im_end|>', ...tokenizer])
    expect(asText).toEqual({ code: 0, stdout: `${bytes.join(' ')}\n`, stderr: '' })
    const asIds = await fulmar(['tokenize', 'é<|im_end|>', '--added-tokens', ...tokenizer])
    expect(asIds.stdout).toBe('195 169 257\n')
    expect((await fulmar(['tokenize', '--decode', '195 169 257', ...tokenizer])).stdout).toBe('é<|im_end|>\n')
    expect((await fulmar(['tokenize', ...tokenizer, '--decode', '195', '169'])).stdout).toBe('é\n')
    expect(await fulmar(['tokenize', 'a', 'b', ...tokenizer])).toEqual(
      await fulmar(['tokenize', 'a b', ...tokenizer]),
    )
  })

  it('refuses ids that are none, and folders that hold no tokenizer', async () => {
    expect((await fulmar(['tokenize', '--decode', '1 two'])).stderr).toContain('ids must be numbers: got two')
    expect((await fulmar(['tokenize', '--decode', '99999999'])).stderr).toContain('(OUT_OF_RANGE)')
    const missing = await fulmar(['tokenize', 'x', '--tokenizer', '/no/such/folder'])
    expect(missing).toMatchObject({ code: 1, stdout: '' })
    expect(missing.stderr).toMatch(/^fulmar: \/no\/such\/folder\/tokenizer\.json must be there: .* \(IO\)\n$/)
  })
})
