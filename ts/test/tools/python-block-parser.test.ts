import { describe, expect, it } from 'vitest'
import { PythonBlockParser } from '../../src/tools/index.js'

const codesOf = (text: string) => new PythonBlockParser().parse(text).calls.map(({ args }) => args.code)

describe('PythonBlockParser', () => {
  it('reads blocks in their order, and leaves the text around them', () => {
    const { text, calls, meta } = new PythonBlockParser().parse(
      'one ```python\na\n``` two\n```python  \r\n  b\n```',
    )
    expect([text, meta]).toEqual(['one  two', { count: 2 }])
    expect(calls).toEqual(['a', '  b'].map((code) => ({ tool: 'python', args: { code }, tag: null })))
  })

  it('leaves other languages, blocks without an end, and fences without a line', () => {
    expect(codesOf('```js\n1\n``` ```python\nprint(1)')).toEqual([])
    expect(codesOf('```python print(1)``` ```Python\n1\n``` ``` 1 ```')).toEqual([])
    expect(codesOf('```python\n```')).toEqual([])
    expect(codesOf('```python\nprint("```")\n```')).toEqual(['print("```")'])
    expect(codesOf('```python\na\n```python\nb\n```')).toEqual(['a'])
  })

  it('takes time linear in the text', () => {
    for (const part of ['```python\n', '```', '`', '```python\na\n```', '```python\na']) {
      const startMs = performance.now()
      new PythonBlockParser().parse(part.repeat(100_000))
      expect(performance.now() - startMs).toBeLessThan(2_000)
    }
  })
})
