/**
 * `node docs/runs/agent-tools/run.mjs FOLDER`: 20 rollouts of an agent on the package `ai`, with two MCP servers and a browser, by a scripted
 * policy, recorded into FOLDER for `fulmar dashboard FOLDER`. First `npm install --prefix docs/runs/agent-tools`, and `npm run build`.
 */

import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { CharTokenizer, createRenderer, Rollouter, ToolRunner } from 'fulmar'
import { agentTask } from 'fulmar/agent'
import { messagesOf, RolloutSampleRecorder } from 'fulmar/rollout'
import { ScriptedPolicy } from 'fulmar/testing'
import { browserTools, mcpTools } from 'fulmar/tools'
import { RunLog } from 'fulmar/train'
import { answer } from './agent.mjs'

const [folder = 'runs/agent-tools'] = process.argv.slice(2)
const NUM_ROLLOUTS = 20
const SPECIAL = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>']
const CALLS = ['<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>']

/** A shop with a page for each article, at a name that only the browser's lookup finds. */
const articles = Array.from({ length: NUM_ROLLOUTS }, (_, at) => ({ name: `lamp-${at}`, price: 20 + at, shipping: 3 + (at % 4) }))
const shop = createServer(({ url }, response) => {
  const article = articles.find(({ name }) => url === `/${name}`)
  const text = article && `<title>${article.name}</title><p>price ${article.price}</p><p>shipping ${article.shipping}</p>`
  response.writeHead(article ? 200 : 404, { 'content-type': 'text/html' }).end(text ?? 'no such article')
})
await new Promise((resolve) => shop.listen(0, '127.0.0.1', resolve))
const { port } = shop.address()

const path = (name) => createRequire(import.meta.url).resolve(`@modelcontextprotocol/${name}/dist/index.js`)
const server = (name, ...tools) => ({ command: process.execPath, args: [path(name)], tools })
const mcp = await mcpTools({
  servers: { every: server('server-everything', 'get-sum'), memory: server('server-memory', 'create_entities', 'search_nodes') },
})
const [browser] = browserTools({ allowedHosts: ['shop.test'], allowsPrivate: true, lookup: async () => ['127.0.0.1'] })
mcp.registry.register(browser)
const runner = new ToolRunner({ tools: mcp.registry, timeoutMs: 60_000 })

/** The tools of one conversation in the agent's form; OpenAI's names of functions have no points. */
const toolsOf = (conversation) =>
  mcp.registry.names.map((name) => {
    const { description, schema } = mcp.registry.get(name)
    const run = async (args) => {
      const [result] = await runner.run([{ tool: name, args, tag: null }], { messages: [], conversation })
      return result.ok ? result.value : `failed: ${result.error.message}`
    }
    return { name: name.replaceAll('.', '_'), description, schema, run }
  })

const task = agentTask({
  samples: articles,
  run: async ({ baseURL, apiKey, sample, signal }) => {
    const conversation = new AbortController()
    try {
      const question = `What does ${sample.name} of http://shop.test:${port}/${sample.name} cost with its shipping? Remember it.`
      await answer({ baseURL, apiKey, question, tools: toolsOf(conversation.signal), signal })
    } finally {
      conversation.abort()
    }
  },
  score: (rollout, { price, shipping }) => Number(messagesOf(rollout).at(-1)?.content === String(price + shipping)),
})

const alphabet = ['\n', ...Array.from({ length: 95 }, (_, at) => String.fromCharCode(32 + at))].join('')
const tokenizer = new CharTokenizer({ alphabet, specialTokens: [...SPECIAL, ...CALLS] })
const renderer = createRenderer(tokenizer, { name: 'qwen3', enableThinking: false })

/** The next text of the policy follows from the results so far. */
function nextText(prompt) {
  const results = [...prompt.matchAll(/<tool_response>\n(.*?)\n<\/tool_response>/gs)].map(([, text]) => text)
  const [, name] = /What does (\S+) of/.exec(prompt)
  const [price, shipping] = (results[1]?.match(/(?:price|shipping) \d+/g) ?? []).map((text) => Number(text.split(' ')[1]))
  const sum = /sum of .* is (\d+)/.exec(results[2] ?? '')?.[1]
  const entity = { name, entityType: 'article', observations: [`costs ${sum}`] }
  const call = (tool, args) => `<tool_call>\n${JSON.stringify({ name: tool, arguments: args })}\n</tool_call>`
  const steps = [
    () => call('browser', { action: 'navigate', url: `http://shop.test:${port}/${name}` }),
    () => call('browser', { action: 'extract' }),
    () => call('every_get-sum', { a: price, b: shipping }),
    () => call('memory_create_entities', { entities: [entity] }),
    () => sum,
  ]
  return steps[Math.min(results.length, steps.length - 1)]()
}

const policy = new ScriptedPolicy({
  reply: ({ promptIds }) => {
    const text = nextText(tokenizer.decode(promptIds))
    return [...tokenizer.encode(text, { addedTokens: true }).ids, renderer.stopIds[0]]
  },
})
const rollouter = new Rollouter({ policy, task, renderer, groupSize: 1, maxTurns: 8, maxTokens: 512 })
const log = await RunLog.open({ folder, config: { task: { name: 'agent-tools' } } })
const recorder = new RolloutSampleRecorder({ file: log.samples, keep: 'all', logLedger: true, tokenizer })
const seen = { statuses: {}, rewards: 0, turns: 0, branches: 0, forks: 0 }
for (const [groupId, sample] of articles.entries()) {
  const group = await rollouter.runGroup({ sample, groupId })
  for (const rollout of group.rollouts) {
    seen.statuses[rollout.status] = (seen.statuses[rollout.status] ?? 0) + 1
    seen.rewards += rollout.reward ?? 0
    seen.turns += rollout.ledger.numTurns
    seen.branches += rollout.ledger.numBranches ?? 1
    seen.forks += rollout.turns.filter(({ fork }) => fork).length
    if (rollout.error) console.log(rollout.error)
  }
  recorder.record(group, { step: 1 })
  group[Symbol.dispose]()
}
log.append({ event: 'step', phase: 'grpo', step: 1, numSteps: 1, metrics: { reward: seen.rewards / NUM_ROLLOUTS } })
log.close()
await Promise.all([mcp.close(), browser[Symbol.asyncDispose]()])
shop.closeAllConnections()
shop.close()
console.log(JSON.stringify(seen))
