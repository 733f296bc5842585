/** Endpoints over scripted policies, for tests. */

import {
  type AgentRollout,
  InterceptionServer,
  type InterceptionServerOptions,
  type OpenOptions,
} from '../../src/agent/index.js'
import { createRenderer, type DisposableRenderer } from '../../src/chat/index.js'
import type { Completion, GenerateRequest, Policy, StreamingPolicy } from '../../src/policy/index.js'
import { tokenStream } from '../../src/policy/token-stream.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { alphabet, specialTokens } from '../chat/families.js'

/** One tool in OpenAI's form. */
export const ADD = {
  type: 'function',
  function: {
    name: 'add',
    description: 'Adds.',
    parameters: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } },
  },
}

/** A call of {@link ADD} as Qwen3 writes it. */
export function callText(a: number, b: number): string {
  return `<tool_call>\n{"name": "add", "arguments": {"a": ${a}, "b": ${b}}}\n</tool_call>`
}

const made = new CharTokenizer({ alphabet, specialTokens })

/** Tokenizer of all tests: characters, and the special tokens of every family. */
export const tokenizer = made

/** Renderer of all tests. */
export const renderer: DisposableRenderer = createRenderer(tokenizer, { name: 'qwen3' })

/** Returns the tokens of an answer with its stop token. */
export function says(text: string): number[] {
  return [...tokenizer.encode(text, { addedTokens: true }).ids, renderer.stopIds[0] ?? 0]
}

/** Returns the text of tokens without the stop token. */
export function textOf(ids: Uint32Array): string {
  return tokenizer.decode(ids).replace('<|im_end|>', '')
}

/** A policy that gives these answers in order, and the last one again. */
export function scripted(...answers: readonly string[]): ScriptedPolicy {
  return new ScriptedPolicy({ reply: (_, call) => says(answers[Math.min(call, answers.length - 1)] ?? '') })
}

/** A policy that streams one token at a time; `between` runs before each token, and may throw or wait. */
export function streaming(
  answer: string,
  between: (numTokens: number, request: GenerateRequest) => Promise<void> | void = () => {},
): StreamingPolicy {
  const ids = Uint32Array.from(says(answer))
  const stream: StreamingPolicy['stream'] = (request) =>
    tokenStream(request.signal, async (push, signal): Promise<Completion> => {
      let at = 0
      for (; at < ids.length && !signal.aborted; at++) {
        await between(at, request)
        if (signal.aborted) break
        push(part(ids.subarray(at, at + 1)))
      }
      const finishReason = signal.aborted ? 'abort' : 'stop'
      const versions = { minPolicyVersion: 0, maxPolicyVersion: 0 }
      return { requestId: request.requestId, ...part(ids.slice(0, at)), finishReason, ...versions }
    })
  return { version: 0, stream, generate: (request) => stream(request).result }
}

function part(ids: Uint32Array) {
  const logProbs = new Float32Array(ids.length).fill(-0.5)
  return { ids, logProbs, sampledLogProbs: logProbs }
}

/** Opens a rollout of its own server; `close` ends both. */
export async function opened(
  policy: Policy,
  options: Partial<OpenOptions> = {},
  listen: InterceptionServerOptions = {},
): Promise<{ readonly server: InterceptionServer; readonly rollout: AgentRollout } & AsyncDisposable> {
  const server = await InterceptionServer.listen(listen)
  const rollout = server.open({ policy, renderer, ...options })
  return {
    ...{ server, rollout },
    [Symbol.asyncDispose]: async () => {
      const { ledger } = await rollout.end()
      ledger[Symbol.dispose]()
      await server.close()
    },
  }
}

/** A user's message. */
export function user(content: string): { readonly role: string; readonly content: string } {
  return { role: 'user', content }
}

/** A promise, and the function that fulfils it. */
export function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = () => {}
  const passed = new Promise<void>((resolve) => {
    open = resolve
  })
  return { passed, open }
}
