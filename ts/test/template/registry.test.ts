import { describe, expect, it } from 'vitest'
import { TemplateRegistry } from '../../src/template/index.js'

const MESSAGES = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Yo!' },
]

describe('TemplateRegistry', () => {
  it('renders the built-in templates with the spans of what an assistant draws', () => {
    using template = TemplateRegistry.builtin.get('llama3')
    const specialTokens = { bos_token: '<s>' }
    const { text, assistantSpans = new Uint32Array() } = template.render({
      messages: MESSAGES,
      specialTokens,
    })
    expect(text.startsWith('<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>')).toBe(true)
    expect(text.slice(assistantSpans[0], assistantSpans[1])).toBe('Yo!<|eot_id|>')
  })

  it("names every built-in template, TorchRL's six among them", () => {
    const { names } = TemplateRegistry.builtin
    expect(names).toEqual(
      expect.arrayContaining(['chatml_format', 'qwen', 'dialogpt', 'falcon', 'deepseek', 'llama', 'gpt_oss']),
    )
    for (const name of names) {
      using template = TemplateRegistry.builtin.get(name)
      expect(template.hasGeneration, name).toBe(true)
    }
  })

  it('refuses a taken name unless it is to override', () => {
    using registry = new TemplateRegistry()
    registry.add('mine', { template: 'one', inverseParser: () => [] })
    expect(() => registry.add('mine', { template: 'two' })).toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE' }),
    )
    registry.add('mine', { template: 'two', override: true })
    expect(registry.source('mine')).toBe('two')
    expect(registry.inverseParser('mine')).toBeUndefined()
    expect(registry.names.at(-1)).toBe('mine')
  })

  it('keeps registries apart and the built-in one as it is', () => {
    using one = new TemplateRegistry()
    using other = new TemplateRegistry()
    one.add('llama', { template: 'x', override: true })
    expect(one.source('llama')).toBe('x')
    expect(other.source('llama')).not.toBe('x')
    expect(() => TemplateRegistry.builtin.add('y', { template: 'y' })).toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE' }),
    )
    TemplateRegistry.builtin[Symbol.dispose]()
    expect(TemplateRegistry.builtin.source('llama')).toBe(other.source('llama'))
  })

  it("selects strictly: template, name, the tokenizer's own, or an error", () => {
    const registry = TemplateRegistry.builtin
    const query = { tokenizerTemplate: 'own', nameOrPath: 'Qwen/Qwen3-8B' }
    expect(registry.select({ ...query, template: 'given', name: 'qwen3' })).toEqual({ source: 'given' })
    expect(registry.select({ ...query, name: 'qwen3' }).name).toBe('qwen3')
    expect(registry.select(query)).toEqual({ source: 'own' })
    expect(() => registry.select({ nameOrPath: 'Qwen/Qwen3-8B' })).toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE' }),
    )
  })

  it('selects as TorchRL does where told to, with the parser that was added', () => {
    using registry = new TemplateRegistry()
    const selection = 'torchrl'
    const nameOrPath = 'mistralai/Mistral-7B'
    expect(registry.select({ nameOrPath, selection }).name).toBe('chatml_format')
    const inverseParser = () => [{ role: 'user', content: 'x' }]
    registry.add('mine', { template: 'm', inverseParser, modelFamilyKeywords: ['MISTRAL'] })
    expect(registry.select({ nameOrPath, selection })).toEqual({ name: 'mine', source: 'm', inverseParser })
    expect(
      registry.select({
        nameOrPath: 'gpt2',
        tokenizerTemplate: 'a{% generation %}b{% endgeneration %}',
        selection,
      }),
    ).toEqual({ source: 'a{% generation %}b{% endgeneration %}' })
  })

  it('names what is wrong with its arguments', () => {
    using registry = new TemplateRegistry()
    const code = (body: () => unknown) => {
      try {
        body()
      } catch (error) {
        return (error as { code?: string }).code
      }
      return undefined
    }
    expect(code(() => registry.get('nope'))).toBe('UNKNOWN_NAME')
    expect(code(() => registry.add('a', { template: '{% if %}' }))).toBe('MALFORMED')
    expect(code(() => registry.add('a', { template: 'a', keywords: [] } as never))).toBe('UNKNOWN_NAME')
    expect(code(() => registry.add('a', { template: 'a', inverseParser: 'p' } as never))).toBe('MALFORMED')
    expect(code(() => registry.select({ template_name: 'a' } as never))).toBe('UNKNOWN_NAME')
    expect(code(() => registry.select({ tokenizerTemplate: 'x', selection: 'guess' } as never))).toBe(
      'UNKNOWN_NAME',
    )
    registry[Symbol.dispose]()
    expect(code(() => registry.names)).toBe('CLOSED')
  })
})
