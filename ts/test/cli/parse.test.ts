import { describe, expect, it } from 'vitest'
import { fulmar } from './fake-io.js'
import { modelFolder } from './model-folder.js'

describe('fulmar parse', () => {
  it('says what a completion says, from text or from ids', async () => {
    const tokenizer = ['--tokenizer', await modelFolder()]
    const args = ['parse', '-', '--family', 'chatml', ...tokenizer]
    const text = await fulmar(args, { stdin: 'It is 2.<|im_end|>' })
    expect(text).toEqual({ code: 0, stdout: 'content   "It is 2."\nfinished  yes\n', stderr: '' })
    const ids = [...Buffer.from('It is 2.'), 257]
    const fromIds = await fulmar([...args, '--ids', '--json'], { stdin: JSON.stringify(ids) })
    const same = await fulmar([...args, '--json'], { stdin: 'It is 2.<|im_end|>' })
    expect(fromIds).toEqual(same)
    expect(JSON.parse(same.stdout)).toMatchObject({ content: 'It is 2.', finished: true, toolCalls: [] })
  })

  it('says that a completion ended too early or too late', async () => {
    const parse = (stdin: string) => fulmar(['parse', '-', '--family', 'chatml'], { stdin })
    expect((await parse('It is')).stdout).toContain('finished  no stop token')
    expect((await parse('<|im_start|>It is')).stdout).toContain(
      'finished  no: the content contains special tokens',
    )
  })

  it('refuses a family that does not exist, a file that is not there, and ids that are none', async () => {
    const parse = (...args: string[]) => fulmar(['parse', ...args], { stdin: 'x' })
    expect((await parse('-')).code).toBe(2)
    expect((await parse('-', '--family', 'chatlm')).stderr).toContain('(UNKNOWN_NAME)')
    expect((await parse('/no/such/file', '--family', 'chatml')).stderr).toContain('(IO)')
    expect((await parse('-', '--family', 'chatml', '--ids')).stderr).toContain('ids must be numbers: got x')
    expect((await parse('-', '--family', 'chatml', '--tools', '-')).stderr).toContain('(MALFORMED)')
  })
})
