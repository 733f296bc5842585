import { describe, expect, it } from 'vitest'
import { ML_GYM_BLOCKS } from '../../../src/torchrl/envs/ml-gym-blocks.js'
import { block } from './ml-gym.js'

const callsIn = (text: string) => ML_GYM_BLOCKS.parse(text).calls.map(({ tool, args }) => ({ tool, ...args }))

describe('the blocks of an MLGymEnv', () => {
  it('are calls in their order, with the text around them left', () => {
    const { text, calls } = ML_GYM_BLOCKS.parse(
      `One.\n${block('sh', 'ls')}\nTwo.\n${block('python', 'print(1)')}`,
    )
    expect(text).toBe('One.\n\nTwo.')
    expect(calls.map(({ tool, args }) => [tool, args])).toEqual([
      ['bash', { command: 'ls' }],
      ['python', { code: 'print(1)' }],
    ])
  })

  it('may be empty, and have the path of a file', () => {
    expect(callsIn('```submit\n```')).toEqual([{ tool: 'submit' }])
    expect(callsIn('```bash\n```')).toEqual([{ tool: 'bash', command: '' }])
    expect(callsIn(block('write  a b/c.py ', 'x = 1'))).toEqual([
      { tool: 'write', path: 'a b/c.py', content: 'x = 1\n' },
    ])
    expect(callsIn('```write a\r\nb\r\n```')).toEqual([{ tool: 'write', path: 'a', content: 'b\r\n' }])
  })

  it('hold shorter fences', () => {
    const text = '````write README.md\n```bash\nls\n```\n````'
    expect(callsIn(text)).toEqual([{ tool: 'write', path: 'README.md', content: '```bash\nls\n```\n' }])
  })

  it('are text without an end, within a line, or in another language', () => {
    for (const text of [
      '',
      '```bash\nls',
      'see ```bash\nls\n```',
      '```json\n{}\n```',
      '```\nls\n```',
      '```bashful\nls\n```',
    ])
      expect(ML_GYM_BLOCKS.parse(text)).toEqual({ text: text.trim(), calls: [], meta: { count: 0 } })
  })

  it('have an old and a new text in an edit, or the problem', () => {
    expect(callsIn(block('edit a', '<<<<<<<\nb\nc\n=======\n>>>>>>>'))).toEqual([
      { tool: 'edit', path: 'a', old: 'b\nc', new: '' },
    ])
    for (const body of ['', 'b', '<<<<<<<\nb\n>>>>>>>', '=======\n<<<<<<<\n>>>>>>>']) {
      const [call] = ML_GYM_BLOCKS.parse(block('edit a', body)).calls
      expect(call?.problem).toMatch(/on lines of their own/)
    }
  })
})
