/** Rows of TorchRL's chat environments and their transforms: what resets and steps show, by keys, values, shapes and dtypes. */

import { FulmarError, HfTokenizer } from 'fulmar'
import { countdownProblem } from 'fulmar/reward'
import { NonTensorStack, Ragged, Tensor, TensorDict } from 'fulmar/tensor'
import { JSONCallParser, PythonBlockParser, Sandbox, ToolRegistry, XMLBlockParser } from 'fulmar/tools'
import {
  AddThinkingPrompt,
  ChatEnv,
  COGNITIVE_PROMPTS,
  chatsAt,
  DatasetChatEnv,
  ExecuteToolsInOrder,
  GSM8KEnv,
  History,
  IncrementalTokenizer,
  nextRoot,
  PolicyVersion,
  PythonInterpreter,
  replyPolicy,
  SimpleToolTransform,
  StepCounter,
  THINKING_PROMPTS,
  TransformedEnv,
  withSecondThought,
} from 'fulmar/torchrl'
import { DTYPES } from './dtypes.mjs'
import { PythonRandom } from './python-random.mjs'
import { rowFile } from './row-file.mjs'

const KINDS = {
  chat_env: chatEnv,
  chat_env_construct: construct,
  dataset_env: datasetEnv,
  gsm8k_env: gsm8kEnv,
  countdown_env: countdown,
  thinking_prompts: thinkingPrompts,
  thinking_replace: thinkingReplace,
  thinking_construct: construct,
  add_thinking_prompt: addThinkingPrompt,
  incremental_tokenizer: incrementalTokenizer,
  policy_version: policyVersion,
  xml_parser: (row) => parserCalls(new XMLBlockParser(), row),
  json_parser: (row) => parserCalls(new JSONCallParser(), row),
  simple_tool: simpleTool,
  execute_tools_in_order: executeToolsInOrder,
  tool_registry: construct,
  python_interpreter: pythonInterpreter,
  python_interpreter_env: pythonInterpreterEnv,
}

/** The options of each kind that has any. */
const CONFIG = {
  dataset_env: ['batch_size'],
  countdown_env: ['num_count', 'max_number', 'max_target'],
  add_thinking_prompt: ['role', 'edit_last_turn'],
  execute_tools_in_order: ['stop_on_error'],
}

/** Rows of the same file that run Python. */
const PYTHON = ['python_interpreter', 'python_interpreter_env']

export const chatEnvs = {
  topic: 'chat environments',
  members: {
    input: `kind case seed prompt content input input_mode batch_size system_prompt query queries replies reply tokenizer config dataset
      dataset_questions dataset_answers env_batch_size cond max_steps question answer tools persistent contents`,
    expected:
      'reset steps resets next items egocentric cognitive output reset_tokens results result outputs rendered',
    refusal: 'result.error:done',
    aside: {
      extra_fields: 'it also lists entries of the dictionaries',
      'result.error.kind': 'of a refusal only the fact is compared',
      'result.error.message': 'of a refusal only the fact is compared',
    },
  },
  matches: ({ kind }) => Object.hasOwn(KINDS, kind),
  prepare: async (folder) => {
    const path = rowFile(folder, 'tokenizers/qwen2')
    return path === undefined ? undefined : HfTokenizer.fromFolder(path)
  },
  async check({ value: row }, tokenizer) {
    if (PYTHON.includes(row.kind)) {
      const support = await Sandbox.support()
      if (!support.isUsable) return { skipped: `a sandbox that runs Python: ${support.reason}` }
    }
    if (tokenizer === undefined) return { skipped: 'tokenizers/qwen2' }
    const strange = Object.keys(row.config ?? {}).find((name) => !CONFIG[row.kind]?.includes(name))
    return strange === undefined ? KINDS[row.kind](row, tokenizer) : `the option ${strange} is not known`
  },
}

/** The rows' tokenizer has a name that TorchRL's own template for Qwen is chosen by. */
const TEMPLATE = { templateName: 'qwen' }

async function chatEnv(row, tokenizer) {
  const { input_mode: inputMode, batch_size: batchSize, system_prompt: systemPrompt } = row
  const env = new ChatEnv({
    inputMode,
    batchSize,
    tokenizer,
    template: TEMPLATE,
    ...(systemPrompt !== null && { systemPrompt }),
  })
  const queries = [row.query].flat()
  const query = new NonTensorStack(queries.length === 1 ? new Array(batchSize[0]).fill(queries[0]) : queries)
  let dict = await env.reset(TensorDict.from({ query }, { batchSize }))
  const wrong = dictDifference('reset', row.reset, dict)
  if (wrong !== undefined) return wrong
  for (const [step, replies] of row.replies.entries()) {
    const root = await replyPolicy({ inputMode, tokenizer, reply: (_, at) => replies[at] })(dict)
    const next = await env.step(root)
    const difference = dictDifference(`step ${step}`, row.steps[step].next, next)
    if (difference !== undefined) return difference
    dict = nextRoot(env, root, next)
  }
  return undefined
}

const REFUSED = {
  bad_input_mode: () => new ChatEnv({ inputMode: 'nope' }),
  empty_batch: () => new ChatEnv({ batchSize: [] }),
  edit_with_user_role: () => new AddThinkingPrompt({ cond: () => true, role: 'user', editLastTurn: true }),
  bad: () => new PolicyVersion({ versionType: 3.5 }),
  unknown: () => new ToolRegistry().get('nonexistent'),
}

function construct({ case: name, result }) {
  try {
    REFUSED[name]()
    return result.error ? 'must be refused' : undefined
  } catch (error) {
    if (error instanceof FulmarError) return result.error ? undefined : error.message
    throw error
  }
}

async function datasetEnv({ dataset, config, env_batch_size: batchSize, resets }) {
  const env = new DatasetChatEnv({ dataset, shuffle: false, numEnvs: config.batch_size[0] })
  if (String(batchSize) !== String(config.batch_size)) return `the batch size is ${batchSize}`
  for (const [at, expected] of resets.entries()) {
    const wrong = dictDifference(`reset ${at}`, expected, await env.reset())
    if (wrong !== undefined) return wrong
  }
  return undefined
}

const stepped = (env, dict, reply) =>
  replyPolicy({ inputMode: 'history', reply: () => reply })(dict).then((root) => env.step(root))

async function gsm8kEnv(row) {
  const dataset = row.dataset_questions.map((question, at) => ({ question, answer: row.dataset_answers[at] }))
  const env = new GSM8KEnv({ dataset, shuffle: false })
  for (const [at, reply] of row.replies.entries()) {
    const dict = await env.reset()
    const wrong =
      dictDifference(`reset ${at}`, row.steps[at].reset, dict) ??
      dictDifference(`step ${at}`, row.steps[at].next, await stepped(env, dict, reply))
    if (wrong !== undefined) return wrong
  }
  return undefined
}

function countdown({ seed, config, items }) {
  const draws = new PythonRandom(seed)
  const options = {
    allowSum: true,
    numCount: config.num_count ?? 4,
    maxNumber: config.max_number ?? 100,
    maxTarget: config.max_target ?? 1000,
  }
  for (const [at, expected] of items.entries()) {
    const { query, answer } = countdownProblem(draws, options)
    const wrong = same(`item ${at}`, [expected.query[0], expected.answer[0]], [query, answer])
    if (wrong !== undefined) return wrong
  }
  return undefined
}

function thinkingPrompts({ egocentric, cognitive }) {
  return same('prompts', [egocentric, cognitive], [THINKING_PROMPTS, COGNITIVE_PROMPTS])
}

function thinkingReplace({ content, prompt, output }) {
  const theirs = same('the row', keptAnswer(content, prompt), output)
  if (theirs !== undefined) return theirs
  const got = withSecondThought(content, prompt)
  if (got === output) return undefined
  const [before] = content.split(/<answer>(?!.*<answer>)/s)
  return same('text', `${before}${prompt}`, got) ?? { byDecision: SECOND_THOUGHT }
}

const SECOND_THOUGHT = 'an answer that is thought over is taken back, whatever follows it'

/** The original's result for a text: its last answer replaced, or appended to unless a prompt ends it. */
function keptAnswer(content, prompt) {
  const eos = '<|im_end|>'
  const matches = [...content.matchAll(/<answer>.*?<\/answer>(?:\s*<\|im_end\|>)?/gs)]
  const last = matches.at(-1)
  if (last) {
    let text = (content.slice(0, last.index) + prompt + content.slice(last.index + last[0].length)).trimEnd()
    if (content.endsWith(eos)) text = text.trimEnd() + eos
    if (text.endsWith(prompt)) return text
    const rest = content.trimEnd()
    return `${rest.endsWith(eos) ? rest.slice(0, -eos.length).trimEnd() : rest}\n\n${prompt}${eos}`
  }
  return `${content.trimEnd()}\n\n${prompt}`
}

async function addThinkingPrompt(row) {
  const { role = 'assistant', edit_last_turn: editLastTurn = true } = row.config
  if (row.cond !== 'reward < 0.5') return `the condition ${row.cond} is not known`
  const thinking = new AddThinkingPrompt({
    cond: (next) => next.tensor('reward').data[0] < 0.5,
    prompt: 'But wait, think more.',
    role,
    editLastTurn,
  })
  const { question, answer, max_steps: maxSteps } = row
  const env = new GSM8KEnv({ dataset: [{ question, answer }], maxSteps, transforms: [thinking] })
  return dictDifference('next', row.next, await stepped(env, await env.reset(), row.reply))
}

async function incrementalTokenizer(row, tokenizer) {
  const ids = new IncrementalTokenizer({ tokenizer, template: TEMPLATE })
  const env = new TransformedEnv(new ChatEnv({ batchSize: row.batch_size, systemPrompt: 'S' }), [ids])
  const query = new NonTensorStack(row.queries)
  let dict = await env.reset(TensorDict.from({ query }, { batchSize: row.batch_size }))
  const wrong = same('reset', row.reset_tokens, rowsOf(dict))
  if (wrong !== undefined) return wrong
  for (const [at, replies] of row.replies.entries()) {
    const root = await replyPolicy({ inputMode: 'history', reply: (_, element) => replies[element] })(dict)
    const next = await env.step(root)
    const { tokens_prompt: tokens, history_prompt: history } = row.steps[at]
    const difference =
      same(`step ${at} ids`, tokens, rowsOf(next)) ??
      same(`step ${at} messages`, history, next.value(['history', 'prompt']))
    if (difference !== undefined) return difference
    dict = nextRoot(env, root, next)
  }
  return undefined
}

async function policyVersion(row) {
  if (row.result.error) return construct(row)
  const version = new PolicyVersion()
  const versions = row.result.versions.map((_, at) =>
    at === 0 ? version.version : version.incrementVersion(),
  )
  const batchSize = row.result.stamped.shape
  const env = new TransformedEnv(new ChatEnv({ batchSize }), [new StepCounter(), version])
  const dict = await env.reset(
    TensorDict.from({ query: new NonTensorStack(new Array(batchSize[0]).fill('q')) }, { batchSize }),
  )
  return (
    same('versions', row.result.versions, versions) ??
    valueDifference('stamped', row.result.stamped, dict, ['policy_version'])
  )
}

/** A call that cannot be read also says why, which upstream's does not. */
function parserCalls(parser, { input, output }) {
  const { text, calls, meta } = parser.parse(input)
  const plain = calls.map(({ tool, args, tag }) => ({ tool, args, tag }))
  return same('calls', output, { text, calls: plain, meta })
}

/** A function of Python: what it must be given, and whether it takes more; arguments beyond fail as there. */
const python = (name, required, takesMore, body) => ({
  name,
  run(args) {
    const missing = required.filter((one) => !(one in args)).map((one) => `'${one}'`)
    const more = Object.keys(args).find((one) => !takesMore && !required.includes(one))
    if (more !== undefined) throw new Error(`${name}() got an unexpected keyword argument '${more}'`)
    if (missing.length > 0)
      throw new Error(
        `${name}() missing ${missing.length} required positional argument${missing.length > 1 ? 's' : ''}: ${missing.join(' and ')}`,
      )
    return body(args)
  },
})

const SIMPLE =
  "calculator(operation add|mul, a, b) -> {'result': ..}; echo(**kw) -> kw; noargs() -> 'fine'; none(**k) -> None"
const SIMPLE_TOOLS = [
  python('calculator', ['operation', 'a', 'b'], false, ({ operation, a, b }) => {
    if (operation !== 'add' && operation !== 'mul') throw new Error(`Unknown operation: ${operation}`)
    return { result: operation === 'add' ? a + b : a * b }
  }),
  python('echo', [], true, (args) => args),
  python('noargs', [], false, () => 'fine'),
  python('none', [], true, () => null),
]
const JSON_RESULTS = 'results are JSON, not what Python prints'
const OUR_WORDS = "the error for arguments that are not JSON is that of our parser, not of Python's"
const PARSE = 'Failed to parse tool arguments: '

async function simpleTool(row) {
  if (row.tools !== SIMPLE) return `the tools ${row.tools} are not known`
  const results = await toolAnswers(row, new SimpleToolTransform({ tools: SIMPLE_TOOLS }))
  if (row.results === null || results?.length !== row.results.length)
    return same('results', row.results, results)
  const names = new Set()
  for (const [at, text] of results.entries()) {
    const want = row.results[at]
    const theirs = asPython(text)
    if (theirs === want) {
      if (text !== want) names.add(JSON_RESULTS)
      continue
    }
    const [ours, head] = [text, want].map((one) => one.slice(0, one.indexOf(PARSE) + PARSE.length))
    if (!want.includes(PARSE) || ours !== head) return same('results', want, theirs)
    names.add(OUR_WORDS)
  }
  return names.size === 0 ? undefined : { byDecision: [...names].join('; ') }
}

/** An answer with its result as Python prints it, where it is JSON here. */
function asPython(text) {
  const [head] = /^Tool \S+ executed successfully:\n/.exec(text) ?? []
  if (head === undefined) return text
  try {
    return head + printed(JSON.parse(text.slice(head.length)), true)
  } catch {
    return text
  }
}

function printed(value, isWhole = false) {
  if (typeof value === 'string') {
    const mark = value.includes("'") && !value.includes('"') ? '"' : "'"
    const inner = value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll(mark, `\\${mark}`)
    return isWhole ? value : `${mark}${inner}${mark}`
  }
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (Array.isArray(value)) return `[${value.map((one) => printed(one)).join(', ')}]`
  if (typeof value !== 'object') return String(value)
  return `{${Object.entries(value)
    .map(([name, one]) => `${printed(name)}: ${printed(one)}`)
    .join(', ')}}`
}

const IN_ORDER =
  "add(a,b,**kw) -> {'result'}; fail raises RuntimeError('boom'); echo(**kw) -> kw without _state; str -> 'not a dict'; strict(a) -> {'a': a}"
const IN_ORDER_TOOLS = [
  python('add', ['a', 'b'], true, ({ a, b }) => ({ result: a + b })),
  python('fail', [], true, () => {
    throw new Error('boom')
  }),
  python('echo', [], true, ({ _state, ...args }) => args),
]

async function executeToolsInOrder(row) {
  const { stop_on_error: stopOnError = false } = row.config
  if (row.tools !== IN_ORDER) return `the tools ${row.tools} are not known`
  const transform = new ExecuteToolsInOrder({ tools: IN_ORDER_TOOLS, stopOnError })
  return same('results', row.results, await toolAnswers(row, transform))
}

/** The contents of what a transform adds behind a reply; null for nothing, as in the rows. */
async function toolAnswers({ content }, transform) {
  const env = new TransformedEnv(new ChatEnv(), [transform])
  const dict = await env.reset(TensorDict.from({ query: new NonTensorStack(['q']) }, { batchSize: [1] }))
  const [chat] = chatsAt(await stepped(env, dict, content), ['history', 'prompt'])
  const answers = chat.slice(2).map((message) => message.content)
  return answers.length === 0 ? null : answers
}

async function pythonInterpreter({ persistent, contents, outputs }) {
  for (const [at, content] of contents.entries()) {
    const codes = new PythonBlockParser().parse(content).calls.map(({ args }) => args.code)
    const blocks = same('blocks', outputs[at].blocks, codes)
    if (blocks !== undefined) return blocks
    const interpreter = new PythonInterpreter({ persistent })
    const answers = await toolAnswers({ content }, interpreter)
    interpreter.close()
    const results = same('results', outputs[at].results, answers)
    if (results !== undefined) return results
  }
  return undefined
}

async function pythonInterpreterEnv({ replies, batch_size: batchSize, next: expected, rendered }, tokenizer) {
  const interpreter = new PythonInterpreter()
  const env = new TransformedEnv(new ChatEnv({ batchSize, systemPrompt: 'S' }), [interpreter])
  const dict = await env.reset(TensorDict.from({ query: new NonTensorStack(['q']) }, { batchSize }))
  const next = await stepped(env, dict, replies[0])
  interpreter.close()
  const wrong = dictDifference('next', expected, next)
  if (wrong !== undefined) return wrong
  const texts = chatsAt(next, ['history', 'prompt']).map((chat) =>
    History.fromChats(chat).applyChatTemplate({ ...TEMPLATE, tokenizer, addGenerationPrompt: true }),
  )
  return same('rendered', rendered, texts)
}

/** The expected entries that a dictionary lacks; it may have more. */
function dictDifference(place, expected, dict, path = []) {
  for (const [name, value] of Object.entries(expected)) {
    const key = [...path, name]
    const wrong =
      typeof value.type === 'string'
        ? valueDifference(`${place} ${key.join('.')}`, value, dict, key)
        : dictDifference(place, value, dict, key)
    if (wrong !== undefined) return wrong
  }
  return undefined
}

function valueDifference(place, expected, dict, key) {
  if (!dict.has(key)) return `${place}: missing`
  const strange = Object.keys(expected).find(
    (name) => !['type', 'messages', 'values', 'dtype', 'shape'].includes(name),
  )
  if (strange !== undefined) return `${place}: ${strange} is not known`
  if (expected.type === 'History') return same(place, expected.messages, dict.value(key))
  if (['nontensor', 'list'].includes(expected.type)) return same(place, expected.values, dict.value(key))
  if (expected.type !== 'tensor') return `${place}: the type ${expected.type} is not known`
  const entry = dict.get(key)
  if (entry instanceof Ragged) {
    const rows = rowsOf(dict, key)
    const shape = [rows.length, Math.max(...rows.map((row) => row.length))]
    return same(place, [expected.values, expected.dtype, expected.shape], [rows, 'int64', shape])
  }
  if (!(entry instanceof Tensor)) return `${place}: no tensor`
  const wanted = [
    DTYPES[expected.dtype],
    expected.shape,
    expected.values.flat(Number.POSITIVE_INFINITY).map(Number),
  ]
  return same(place, wanted, [entry.dtype, entry.shape, Array.from(entry.data, Number)])
}

function rowsOf(dict, key = ['tokens', 'prompt']) {
  const ragged = dict.ragged(key)
  return Array.from({ length: ragged.numRows }, (_, row) => Array.from(ragged.row(row).data, Number))
}

function same(place, expected, got) {
  const [want, have] = [expected, got].map((value) => JSON.stringify(value))
  return want === have ? undefined : `${place}: expected ${want.slice(0, 300)}, got ${have.slice(0, 300)}`
}
