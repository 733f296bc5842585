/** Blocks of Python in a policy's messages, run in sandboxes. */

import type { Message } from '../../chat/index.js'
import type { SandboxLimits } from '../../tools/index.js'
import { PythonBlockParser, type PythonResult, pythonTool, type ToolResult } from '../../tools/index.js'
import { checkInterpreterKeys, type InterpreterOptions } from '../../tools/interpreters.js'
import { wellFormedText } from '../../tools/tool-runner.js'
import { ToolTransform, type ToolTransformOptions } from './tool-transform.js'

/** Options of {@link PythonInterpreter}. */
export interface PythonInterpreterOptions
  extends Omit<InterpreterOptions, 'limits'>,
    Pick<ToolTransformOptions, 'parser' | 'toolRole' | 'signal' | 'maxCalls' | 'maxConcurrent'> {
  /** Deadline of each block in milliseconds. @default 10_000 */
  readonly timeoutMs?: number
  /** Other limits. @default 16,384 bytes of output of a block, 60 s of the processor; others as in {@link SandboxLimits} */
  readonly limits?: Omit<SandboxLimits, 'timeoutMs'>
}

const RUNNER_KEYS = ['parser', 'toolRole', 'signal', 'maxCalls', 'maxConcurrent'] as const

/** Time for the start of an interpreter, in addition to the deadline of a block. */
const START_MS = 20_000

/** Characters of JSON that a character of a result may take. */
const JSON_CHARS_PER_BYTE = 6

/**
 * Runs the fenced blocks of Python of a turn in sandboxes, in their order, and answers each with a message:
 * `Code block 1 executed successfully:` and on the next line what the block printed, or `Code block 1 failed:` and the
 * traceback. Standard error, the value of a last line that is an expression, and the output of a block that failed
 * follow under headings of their own, where there are any. By default each block has an interpreter of its own; with
 * `persistent`, each conversation has one, from its reset to its end. Blocks are read by {@link PythonBlockParser}
 * unless `parser` reads others. Without a sandbox, blocks are answered with the reason. Dispose it to end its interpreters.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { Sandbox } from 'fulmar/tools'
 * import { ChatEnv, chatsAt, PythonInterpreter, replyPolicy, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using interpreter = new PythonInterpreter()
 * const env = new TransformedEnv(new ChatEnv(), [interpreter])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('2^100?') }, { batchSize: [1] }))
 * const fence = '`'.repeat(3)
 * const policy = replyPolicy({ inputMode: 'history', reply: () => `${fence}python\nprint(2 ** 100)\n${fence}` })
 * const [chat] = chatsAt(await env.step(await policy(dict)), ['history', 'prompt'])
 * const { isUsable } = await Sandbox.support() // on Linux with bubblewrap
 * if (isUsable) assert.equal(chat.at(-1)?.content, 'Code block 1 executed successfully:\n1267650600228229401496703205376\n')
 * else assert.match(String(chat.at(-1)?.content), /^Code block 1 failed:\n/)
 * ```
 */
export class PythonInterpreter extends ToolTransform {
  readonly #tool: Disposable

  /** @throws {FulmarError} `UNKNOWN_NAME`, `OUT_OF_RANGE`, `MALFORMED` or `INCOMPATIBLE` for an option. */
  constructor(options: PythonInterpreterOptions = {}) {
    checkInterpreterKeys(options, [...RUNNER_KEYS, 'timeoutMs'])
    const { parser, toolRole, signal, maxCalls, maxConcurrent, timeoutMs = 10_000, limits, ...rest } = options
    const given = Object.entries({ toolRole, signal, maxCalls, maxConcurrent })
    const python = pythonTool({ ...rest, limits: { ...limits, timeoutMs } })
    super(
      {
        ...Object.fromEntries(given.filter(([, value]) => value !== undefined)),
        tools: [python],
        parser: parser ?? new PythonBlockParser(),
        timeoutMs: timeoutMs + START_MS,
        maxResultChars: resultChars(limits?.outputBytes),
        ...(rest.clock && { clock: rest.clock }),
      },
      { write, inOrder: true },
    )
    this.#tool = python
  }

  override close(): void {
    super.close()
    this.#tool[Symbol.dispose]()
  }
}

/** Outputs, value and traceback as JSON, each of them within the limit. */
function resultChars(outputBytes = 16_384): number {
  return 3 * JSON_CHARS_PER_BYTE * outputBytes + 1_000
}

function write(results: readonly ToolResult[], role: string): readonly Message[] {
  return results.map((result, at) => {
    const name = `Code block ${at + 1}`
    const content = result.ok
      ? blockText(name, result.value as unknown as PythonResult)
      : `${name} failed:\n${result.error.message}`
    const { id } = result.call
    const reference = id === undefined ? {} : { name: 'python', tool_call_id: wellFormedText(id) }
    return { role, content: wellFormedText(content), ...reference }
  })
}

function blockText(name: string, { status, stdout, stderr, value, error, isCut }: PythonResult): string {
  const isOk = status === 'ok'
  const head = isOk ? `${name} executed successfully:\n${stdout}` : `${name} failed:\n${error}`
  return [
    head,
    ...(isOk ? [] : section('stdout', stdout)),
    ...section('stderr', stderr),
    ...section('value', value ?? ''),
    ...(isCut ? ['The output was cut.'] : []),
  ].reduce((text, part) => (text.endsWith('\n') ? text + part : `${text}\n${part}`))
}

function section(name: string, text: string): readonly string[] {
  return text === '' ? [] : [`${name}:\n${text}`]
}
