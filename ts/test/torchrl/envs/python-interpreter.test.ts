import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorStack, type TensorDict } from '../../../src/tensor/index.js'
import {
  ChatEnv,
  chatsAt,
  DatasetChatEnv,
  messageEnvOf,
  nextRoot,
  PythonInterpreter,
  type PythonInterpreterOptions,
  replyPolicy,
  rollout,
  SimpleToolTransform,
  StepCounter,
  specEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { worksHere } from '../../tools/sandbox-here.js'
import { asked, assistant, failing } from './chats.js'
import { answersTo } from './tools.js'

const isUsable = await worksHere()
const block = (code: string) => `\`\`\`python\n${code}\n\`\`\``

/** Contents of the answers to texts, one an element. */
async function answers(options: PythonInterpreterOptions, ...texts: string[]): Promise<unknown[][]> {
  using interpreter = new PythonInterpreter({ timeoutMs: 30_000, ...options })
  const all = await answersTo(interpreter, ...texts)
  return all.map((messages) => messages.map(({ content }) => content))
}

/** Says texts in turn to each element, and returns the last answer of each. */
async function say(env: TransformedEnv, dict: TensorDict, ...texts: string[]) {
  const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => texts[at] ?? texts[0] ?? '' })
  const root = await policy(dict)
  const next = await env.step(root)
  const contents = chatsAt(next, ['history', 'prompt']).map((chat) => chat.at(-1)?.content)
  return { contents, dict: nextRoot(env, root, next) }
}

interface Row {
  readonly kind: string
  readonly persistent: boolean
  readonly contents: readonly string[]
  readonly outputs: readonly { readonly results: readonly string[] | null }[]
}

describe.runIf(isUsable)('PythonInterpreter', () => {
  it('answers as TorchRL does, by rows of it', async () => {
    const path = new URL('../../../../tests/golden/llm/chat_env.jsonl', import.meta.url)
    const lines = (await readFile(path, 'utf8')).split('\n').filter((line) => line !== '')
    const rows = lines
      .map((line) => JSON.parse(line) as Row)
      .filter(({ kind }) => kind === 'python_interpreter')
    expect(rows.length).toBe(3)
    for (const { persistent, contents, outputs } of rows)
      for (const isPersistent of [persistent, true])
        expect(await answers({ persistent: isPersistent }, ...contents)).toEqual(
          outputs.map(({ results }) => results ?? []),
        )
  })

  it('shows a failure, a warning, the value of the last line, and what was cut', async () => {
    const texts = [
      'print("so far"); 1 / 0',
      'import sys; print("out"); n = sys.stderr.write("careful")',
      'print("out", end=""); [1]',
      'print("a" * 10**6)',
    ]
    const [failed, warned, valued, cut] = (
      await answers({ limits: { outputBytes: 4_000 } }, ...texts.map(block))
    ).flat()
    expect(failed).toMatch(
      /^Code block 1 failed:\nTraceback[\s\S]*ZeroDivisionError: division by zero\nstdout:\nso far\n$/,
    )
    expect(warned).toBe('Code block 1 executed successfully:\nout\nstderr:\ncareful')
    expect(valued).toBe('Code block 1 executed successfully:\nout\nvalue:\n[1]')
    expect(cut).toMatch(/^Code block 1 executed successfully:\na{4000}\nThe output was cut\.$/)
  })

  it('keeps variables through a conversation with `persistent`, and none from one to another', async () => {
    using interpreter = new PythonInterpreter({ persistent: true, timeoutMs: 30_000 })
    const env = new TransformedEnv(new ChatEnv({ batchSize: [2] }), [interpreter])
    let { contents, dict } = await say(env, await env.reset(asked('q', 'q')), block('a = 1'), block('a = 10'))
    ;({ contents, dict } = await say(env, dict, block('a += 1\nassert a == 2'), block('print(a)')))
    expect(contents).toEqual([
      'Code block 1 executed successfully:\n',
      'Code block 1 executed successfully:\n10\n',
    ])
    // One of the two begins anew while the other runs on, and a smaller batch keeps each interpreter in its place.
    const second = dict.indexSelect([1])
    ;({ contents } = await say(env, second, block('print(a + 1)')))
    expect(contents).toEqual(['Code block 1 executed successfully:\n11\n'])
    const fresh = await env.reset(asked('q'))
    ;({ contents } = await say(env, fresh, block('print("a" in globals())')))
    expect(contents).toEqual(['Code block 1 executed successfully:\nFalse\n'])
  })

  it('ends the interpreters of conversations that a reset replaces', async () => {
    using interpreter = new PythonInterpreter({ persistent: true, timeoutMs: 30_000 })
    const env = new TransformedEnv(new ChatEnv({ batchSize: [1] }), [interpreter])
    const { dict } = await say(env, await env.reset(asked('q')), block('a = 1'))
    await env.reset(asked('q'))
    const { contents } = await say(env, dict, block('print(a)'))
    expect(contents).toEqual(['Code block 1 failed:\nconversation must be under way: it has ended'])
  })

  it('gives each conversation of `messageEnvOf` an interpreter of its own until it is closed', async () => {
    using interpreter = new PythonInterpreter({ persistent: true, timeoutMs: 30_000 })
    const env = new DatasetChatEnv({ dataset: [{ query: 'q' }], transforms: [interpreter] })
    const context = { signal: new AbortController().signal }
    const [one, other] = [messageEnvOf({ env }), messageEnvOf({ env })]
    await one.init(context)
    await other.init(context)
    const ask = async (conversation: typeof one, code: string) =>
      (await conversation.step(assistant(block(code)), context)).envMessages?.[0]?.content
    await ask(one, 'a = 1')
    expect(await ask(other, 'print("a" in globals())')).toBe('Code block 1 executed successfully:\nFalse\n')
    expect(await ask(one, 'print(a)')).toBe('Code block 1 executed successfully:\n1\n')
    await one.close()
    await other.close()
  })

  it('keeps the specs of its environment, also beside another tool that keeps state', async () => {
    using interpreter = new PythonInterpreter({ persistent: true })
    using beside = new PythonInterpreter({ persistent: true, timeoutMs: 30_000 })
    const env = new DatasetChatEnv({
      dataset: [{ query: 'q' }],
      numEnvs: 2,
      transforms: [interpreter, beside, new StepCounter({ maxSteps: 2 })],
    })
    expect(env.stateSpec.has('conversation')).toBe(true)
    await checkEnvSpecs(specEnvOf(env))
    const policy = replyPolicy({ inputMode: 'history', reply: () => block('print(1)') })
    const { parts } = await rollout(env, policy, { maxSteps: 3 })
    expect(parts.length).toBe(2)
    using fresh = new PythonInterpreter()
    expect(new TransformedEnv(new ChatEnv(), [fresh]).stateSpec.has('conversation')).toBe(false)
  })

  it('runs the calls of a message itself, and at most `maxCalls` of them', async () => {
    using interpreter = new PythonInterpreter({ maxCalls: 1, toolRole: 'user', timeoutMs: 30_000 })
    const env = new TransformedEnv(new ChatEnv(), [interpreter])
    const root = (await env.reset(asked('q'))).clone()
    const call = { id: 'c1', type: 'function', function: { name: 'python', arguments: { code: 'print(1)' } } }
    const message = { role: 'assistant', content: '', tool_calls: [call, call] }
    root.set(['history', 'full'], new NonTensorStack([[{ role: 'user', content: 'q' }, message]] as never))
    const [chat] = chatsAt(await env.step(root), ['history', 'prompt'])
    expect(chat?.slice(2)).toEqual([
      {
        role: 'user',
        content: 'Code block 1 executed successfully:\n1\n',
        name: 'python',
        tool_call_id: 'c1',
      },
      {
        role: 'user',
        content: expect.stringMatching(/^Code block 2 failed:\n.*at most 1 calls/),
        name: 'python',
        tool_call_id: 'c1',
      },
    ])
  })

  it('stops with its signal', async () => {
    const stop = new AbortController()
    using interpreter = new PythonInterpreter({ signal: stop.signal, persistent: true })
    const running = answersTo(interpreter, block('while True: pass'))
    setTimeout(() => stop.abort(), 200)
    await expect(running).rejects.toEqual(failing('ABORTED'))
  })
})

describe('PythonInterpreter', () => {
  it('answers with the reason where nothing keeps programs apart', async () => {
    const [[said]] = (await answers(
      { bwrap: '/no/such/bwrap', backend: 'bubblewrap' },
      block('print(1)'),
    )) as [[string]]
    expect(said).toMatch(/^Code block 1 failed:\na sandbox must be available: bubblewrap /)
  })

  it('refuses wrong options', () => {
    expect(() => new PythonInterpreter({ timeout: 1 } as never)).toThrow(failing('UNKNOWN_NAME', /timeoutMs/))
    expect(() => new PythonInterpreter({ timeoutMs: 0 })).toThrow(failing('OUT_OF_RANGE', /timeoutMs/))
    expect(() => new PythonInterpreter({ toolRole: 'assistant' })).toThrow(
      failing('INCOMPATIBLE', /toolRole/),
    )
    expect(() => new PythonInterpreter({ parser: {} as never })).toThrow(failing('MALFORMED', /parser/))
  })

  it('is not needed for tools without state: those number no conversations', () => {
    const tools = [{ name: 'now', run: () => '12:00' }]
    const env = new TransformedEnv(new ChatEnv(), [new SimpleToolTransform({ tools })])
    expect(env.stateSpec.has('conversation')).toBe(false)
  })
})
