import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { DatasetChatEnv, MCPToolTransform, messageEnvOf, specEnvOf } from '../../../src/torchrl/index.js'
import { assistant, failing } from './chats.js'
import { answersTo } from './tools.js'

const server = {
  command: process.execPath,
  args: [fileURLToPath(new URL('../../tools/mcp-server-process.mjs', import.meta.url))],
}
const open: MCPToolTransform[] = []

async function transformOf(options: Partial<Parameters<typeof MCPToolTransform.open>[0]> = {}) {
  const transform = await MCPToolTransform.open({ servers: { s: server, t: server }, ...options })
  open.push(transform)
  return transform
}

afterAll(() => Promise.all(open.map((transform) => transform.close())))

describe('MCPToolTransform', () => {
  it('answers calls with a message each; a name without a server is one of the first', async () => {
    const said = '<tool>t.ok\n{}\n</tool><tool>ok\n</tool><tool>nope\n</tool><tool>s.fail\n</tool>'
    const [answers, none] = await answersTo(await transformOf(), said, 'no call')
    expect(answers?.map(({ content }) => content)).toEqual([
      'Tool t.ok executed successfully:\nfine',
      'Tool s.ok executed successfully:\nfine',
      'Tool s.nope failed:\nTool s.nope not found',
      'Tool s.fail failed:\nTool execution failed: it is broken',
    ])
    expect(none).toEqual([])
  })

  it('keeps the specs of its environment, and takes part in conversations', async () => {
    const env = new DatasetChatEnv({ dataset: [{ query: 'q' }], transforms: [await transformOf()] })
    await checkEnvSpecs(specEnvOf(env))
    const conversation = messageEnvOf({ env })
    const context = { signal: new AbortController().signal }
    await conversation.init(context)
    const { envMessages } = await conversation.step(assistant('<tool>s.die\n</tool>'), context)
    expect(envMessages?.[0]?.content).toMatch(
      /^Tool s\.die failed:\nTool execution failed: server s must answer: .*exit code 7/,
    )
    await conversation.close()
  })

  it('refuses wrong options, and ends its servers then', async () => {
    await expect(transformOf({ tools: [] } as never)).rejects.toThrow(failing('UNKNOWN_NAME', /tools/))
    await expect(transformOf({ toolRole: 'assistant' })).rejects.toThrow(failing('INCOMPATIBLE', /toolRole/))
    await expect(transformOf({ parser: {} as never })).rejects.toThrow(failing('MALFORMED', /parser/))
    await expect(transformOf({ maxCalls: 0 })).rejects.toThrow(failing('OUT_OF_RANGE', /maxCalls/))
    await expect(transformOf({ servers: { s: { command: '/no/such/program' } } })).rejects.toThrow(
      failing('UNAVAILABLE', /server s/),
    )
  })
})
