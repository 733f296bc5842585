/**
 * Every conversation of one rollout as one tree of messages: the way from the root to a node is a history.
 *
 * ```text
 * walk(messages): from the root, one node a message, as long as the next one is known
 *   last sampled answer on the way -> its tokens are the beginning of the next prompt
 *   a message that is not known    -> the history departs here
 * ```
 */

import type { Message } from '../chat/index.js'
import { callsOf, messageKey } from './message-key.js'

/** An answer of the policy as a client got it, at a node of the tree. */
export interface SampledAnswer {
  /** Counts the turns of the rollout from 0. */
  readonly turnId: number
  /** Message of the client's history. */
  readonly delivered: Message
  /** The same message as the renderer read it, with its reasoning and the model's own calls. */
  readonly stored: Message
  /** The tools that were on offer, as a text. */
  readonly toolsKey: string
}

/** One message of some histories. */
export class TreeNode<Prompt, Answer extends SampledAnswer> {
  readonly parent: TreeNode<Prompt, Answer> | undefined
  /** Number of messages up to this one. */
  readonly depth: number
  readonly children = new Map<string, TreeNode<Prompt, Answer>>()
  /** Answers that are this message, in the order of their turns. */
  readonly answers: Answer[] = []
  /** Prompts that end with this message, by their tools. */
  readonly prompts = new Map<string, Prompt>()
  /** Number of messages of the longest history that passes here, without its answer. */
  longest: number
  /** Last turn whose history passes here; `null` for none. */
  lastTurnId: number | null = null

  constructor(parent: TreeNode<Prompt, Answer> | undefined) {
    this.parent = parent
    this.depth = parent === undefined ? 0 : parent.depth + 1
    this.longest = this.depth
  }

  /** Returns the node of a next message, new or known. */
  child(key: string): TreeNode<Prompt, Answer> {
    const known = this.children.get(key)
    if (known) return known
    const made = new TreeNode<Prompt, Answer>(this)
    this.children.set(key, made)
    return made
  }

  /** Adds an answer that is this message. Costs the depth. */
  addAnswer(answer: Answer): void {
    this.answers.push(answer)
    for (let node: TreeNode<Prompt, Answer> | undefined = this; node; node = node.parent) {
      node.longest = Math.max(node.longest, this.depth - 1)
      node.lastTurnId = answer.turnId
    }
  }
}

/** The known part of a history. */
export interface Walk<Prompt, Answer extends SampledAnswer> {
  /** Keys of all messages. */
  readonly keys: readonly string[]
  /** Node of the last known message; the root if none is known. */
  readonly node: TreeNode<Prompt, Answer>
  /** Last answer of the policy on the way that belongs to the same tools, if any. */
  readonly answer: Answer | undefined
  /** Number of messages up to `answer`; 0 without one. */
  readonly numAnswered: number
  /** Known answers of the policy by the index of their message, under any tools. */
  readonly known: ReadonlyMap<number, Answer>
}

/** Follows a history from the root as far as it is known. */
export function walk<Prompt, Answer extends SampledAnswer>(
  root: TreeNode<Prompt, Answer>,
  messages: readonly Message[],
  toolsKey: string,
): Walk<Prompt, Answer> {
  const keys = messages.map(messageKey)
  const known = new Map<number, Answer>()
  let node = root
  let answer: Answer | undefined
  let numAnswered = 0
  for (const [index, key] of keys.entries()) {
    const next = node.children.get(key)
    const message = messages[index]
    if (next === undefined || message === undefined) break
    if (message.role === 'assistant' && next.answers.length > 0) {
      const found = matching(next.answers, message, toolsKey)
      if (found === undefined) break
      known.set(index, found)
      if (found.toolsKey === toolsKey) [answer, numAnswered] = [found, index + 1]
    }
    node = next
  }
  return { keys, node, answer, numAnswered, known }
}

/** Returns the latest answer that may be this message: best of all with the same tools, then with the same ids of calls. */
function matching<Answer extends SampledAnswer>(
  answers: readonly Answer[],
  message: Message,
  toolsKey: string,
): Answer | undefined {
  const same = answers.filter(({ delivered }) => hasReasoningOf(delivered, message))
  const ofTools = same.filter((answer) => answer.toolsKey === toolsKey)
  const best = ofTools.length > 0 ? ofTools : same
  return best.findLast(({ delivered }) => idsOf(delivered) === idsOf(message)) ?? best.at(-1)
}

/** Clients drop the reasoning, or send it as it was; other reasoning is an edit. */
function hasReasoningOf(delivered: Message, sent: Message): boolean {
  const { reasoning_content: reasoning } = sent as { readonly reasoning_content?: unknown }
  if (reasoning === undefined) return true
  return reasoning === (delivered as { readonly reasoning_content?: unknown }).reasoning_content
}

function idsOf(message: Message): string {
  const calls = callsOf(message)
  return calls.length === 0 ? '' : JSON.stringify(calls.map(({ id }) => id))
}
