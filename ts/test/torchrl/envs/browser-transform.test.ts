import { existsSync } from 'node:fs'
import { createServer } from 'node:http'
import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { BrowserTransform, DatasetChatEnv, messageEnvOf, specEnvOf } from '../../../src/torchrl/index.js'
import { has } from '../../needs.js'
import { assistant, failing } from './chats.js'
import { answersTo } from './tools.js'

const executablePath = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'
const isUsable = process.env.FULMAR_TEST_BACKEND !== 'wasm' && has('Chromium', existsSync(executablePath))
const call = (args: object) => `<tool>browser\n${JSON.stringify(args)}\n</tool>`

describe('BrowserTransform', () => {
  it.runIf(isUsable)(
    'runs the actions of a turn in their order, on a page for each conversation',
    async () => {
      const site = createServer(({ url }, answer) =>
        answer.setHeader('content-type', 'text/html').end(`<title>${url}</title><h1>at ${url}</h1>`),
      )
      await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
      const address = site.address()
      const port = typeof address === 'object' && address !== null ? address.port : 0
      const lookup = async () => ['127.0.0.1']
      const transform = new BrowserTransform({
        executablePath,
        allowedHosts: ['site.test'],
        allowsPrivate: true,
        lookup,
      })
      const visit = (path: string) =>
        call({ action: 'navigate', url: `http://site.test:${port}${path}` }) + call({ action: 'extract' })
      const answers = await answersTo(transform, visit('/a'), visit('/b'), 'no call')
      expect(
        answers.map((messages) =>
          messages.map(({ content }) => /"text":"([^"]*)"/.exec(String(content))?.[1]),
        ),
      ).toEqual([[undefined, 'at /a'], [undefined, 'at /b'], []])
      const env = new DatasetChatEnv({ dataset: [{ query: 'q' }], transforms: [transform] })
      await checkEnvSpecs(specEnvOf(env))
      const conversation = messageEnvOf({ env })
      const context = { signal: new AbortController().signal }
      await conversation.init(context)
      const { envMessages } = await conversation.step(assistant(call({ action: 'extract' })), context)
      expect(envMessages?.[0]?.content).toMatch(/"text":""/) // a fresh page
      await conversation.close()
      await transform.close()
      site.closeAllConnections()
      site.close()
    },
  )

  it('refuses wrong options', () => {
    expect(() => new BrowserTransform({ allowed: [] } as never)).toThrow(failing('UNKNOWN_NAME', /allow/))
    expect(() => new BrowserTransform({ timeoutMs: 0 })).toThrow(failing('OUT_OF_RANGE', /timeoutMs/))
    expect(() => new BrowserTransform({ toolRole: 'assistant' })).toThrow(failing('INCOMPATIBLE', /toolRole/))
  })
})
