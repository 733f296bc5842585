/**
 * Prompts of one rollout whose client holds the conversation: each request brings a whole history, and its tokens are
 * those of the answers that the history repeats.
 *
 * ```text
 * history -> known prompt?            its tokens again (a sibling)
 *         -> ends after a known answer? bridge from its prompt and sampled tokens
 *         -> else, or if the bridge refuses: render anew, with the policy's own messages where they are known (a fork)
 * ```
 */

import type { BranchReason, BridgeRefusal, Message, Rendered, Renderer, ToolSpec } from '../chat/index.js'
import { PromptStore } from '../chat/prompt-store.js'
import type { TurnFork } from '../rollout/index.js'
import { messageKey } from './message-key.js'
import { type SampledAnswer, TreeNode, type Walk, walk } from './message-tree.js'

/** A message of a history: as the client sent it, and as the renderer writes it. */
export interface HistoryMessage {
  readonly sent: Message
  readonly rendered: Message
}

/** A prompt at its place in the tree of histories. */
export interface PlacedPrompt {
  readonly messages: readonly Message[]
  readonly ids: Uint32Array
  /** Origin of the last tokens: of all, or after a bridge of those that it added. */
  readonly rendered: Rendered
  readonly messageOffset: number
  readonly tools: readonly ToolSpec[]
  readonly toolsKey: string
  readonly bridgeRefusal: BridgeRefusal | null
  readonly branchReason: BranchReason | undefined
  readonly fork: TurnFork | undefined
  readonly node: Node
  readonly store: PromptStore
  /** Answer that this prompt follows, and the messages after it. */
  readonly after: { readonly turnId: number; readonly messages: readonly Message[] } | undefined
  /** Turns that were sampled from this prompt, or are being sampled. */
  readonly turnIds: Set<number>
}

type Prompt = Omit<PlacedPrompt, 'fork'> & { readonly fork: TurnFork | undefined }
type Node = TreeNode<Prompt, Answer>

interface Answer extends SampledAnswer {
  readonly prompt: Prompt
  readonly completionIds: Uint32Array
  /** True once a prompt extends it. */
  isContinued: boolean
}

/** An answer of the policy to a prompt. */
export interface SampledTurn {
  readonly prompt: PlacedPrompt
  readonly turnId: number
  readonly completionIds: Uint32Array
  /** Message as the renderer read it. */
  readonly stored: Message
  /** Message as the client got it. */
  readonly delivered: Message
}

/** All histories of one rollout, with their tokens. */
export class Conversation {
  readonly #renderer: Renderer
  readonly #root: Node = new TreeNode(undefined)
  /** Keys of all messages. */
  readonly #keys = new Set<string>()

  constructor(renderer: Renderer) {
    this.#renderer = renderer
  }

  /**
   * Returns the tokens of a history with a generation prompt.
   * @throws {FulmarError} As `Renderer.render`.
   */
  place(history: readonly HistoryMessage[], tools: readonly ToolSpec[]): PlacedPrompt {
    const toolsKey = tools.length === 0 ? '' : JSON.stringify(tools)
    const sent = history.map((message) => message.sent)
    const way = walk(this.#root, sent, toolsKey)
    const known = way.node.depth === history.length ? way.node.prompts.get(toolsKey) : undefined
    if (known) return again(known)
    const messages = history.map(({ rendered }, index) => way.known.get(index)?.stored ?? rendered)
    const prompt = this.#extend(way, messages, tools, toolsKey) ?? this.#anew(way, messages, tools, toolsKey)
    prompt.node.prompts.set(toolsKey, prompt)
    return prompt
  }

  /** Adds an answer, so that later histories may repeat it. */
  add({ prompt, turnId, completionIds, stored, delivered }: SampledTurn): void {
    const key = messageKey(delivered)
    this.#keys.add(key)
    const { toolsKey } = prompt
    const node = prompt.node.child(key)
    node.addAnswer({ prompt, turnId, completionIds, stored, delivered, toolsKey, isContinued: false })
  }

  /** Extends the tokens of an answer by the messages after it; `undefined` without an answer, or if the bridge refuses. */
  #extend(
    { answer, numAnswered, keys, node }: Walk<Prompt, Answer>,
    messages: readonly Message[],
    tools: readonly ToolSpec[],
    toolsKey: string,
  ): Prompt | undefined {
    if (answer === undefined) return undefined
    const { prompt, completionIds, turnId } = answer
    const added = messages.slice(numAnswered)
    const bridge = this.#renderer.bridge(prompt.ids, completionIds, added, { tools })
    const wasContinued = answer.isContinued
    if (!bridge.ok) {
      const reason = reasonOf(bridge.reason)
      const fork = reason && { turnId, reason }
      return this.#render(messages, tools, toolsKey, this.#grow(node, keys), {
        bridgeRefusal: bridge.reason,
        fork: fork ?? this.#departure({ node, keys, tools: false }, messages),
        after: fork && { turnId, messages: added },
      })
    }
    answer.isContinued = true
    const isTip = !wasContinued && prompt.store.isAtEnd(prompt.ids)
    const store = isTip ? prompt.store : new PromptStore()
    if (!isTip) store.start(prompt.ids)
    const ids = store.extend(completionIds.subarray(0, bridge.numKept), bridge.rendered.ids)
    return {
      ...{ messages, ids, rendered: bridge.rendered, messageOffset: numAnswered, tools, toolsKey, store },
      ...{ bridgeRefusal: null, branchReason: undefined, node: this.#grow(node, keys) },
      fork: wasContinued ? { turnId, reason: 'sibling' } : undefined,
      after: { turnId, messages: added },
      turnIds: new Set(),
    }
  }

  /** Renders a history that no answer of the policy begins. */
  #anew(
    { node, keys, known }: Walk<Prompt, Answer>,
    messages: readonly Message[],
    tools: readonly ToolSpec[],
    toolsKey: string,
  ): Prompt {
    const isFirst = this.#keys.size === 0
    const hasOtherTools = known.size > 0 || (node.depth === messages.length && node.prompts.size > 0)
    const fork = isFirst ? undefined : this.#departure({ node, keys, tools: hasOtherTools }, messages)
    const grown = this.#grow(node, keys)
    return this.#render(messages, tools, toolsKey, grown, { bridgeRefusal: null, fork, after: undefined })
  }

  #render(
    messages: readonly Message[],
    tools: readonly ToolSpec[],
    toolsKey: string,
    node: Node,
    { bridgeRefusal, fork, after }: Pick<Prompt, 'bridgeRefusal' | 'fork' | 'after'>,
  ): Prompt {
    const rendered = this.#renderer.render(messages, { tools, addGenerationPrompt: true })
    const store = new PromptStore()
    const branchReason =
      fork?.reason === 'compaction' || fork?.reason === 'history_edit' ? fork.reason : undefined
    return {
      ...{ messages, ids: store.start(rendered.ids), rendered, messageOffset: 0, tools, toolsKey, store },
      ...{ bridgeRefusal, branchReason, fork, node, after, turnIds: new Set<number>() },
    }
  }

  /** Adds the nodes of the messages that are new. */
  #grow(from: Node, keys: readonly string[]): Node {
    let node = from
    for (const key of keys.slice(from.depth)) {
      this.#keys.add(key)
      node = node.child(key)
    }
    return node
  }

  /** Names how a history departs from those before. */
  #departure(
    { node, keys, tools }: { readonly node: Node; readonly keys: readonly string[]; readonly tools: boolean },
    messages: readonly Message[],
  ): TurnFork {
    const turnId = node.lastTurnId
    if (tools) return { turnId, reason: 'tools' }
    if (node.depth > 0)
      return { turnId, reason: messages.length < node.longest ? 'compaction' : 'history_edit' }
    const isPart = keys.some((key) => this.#keys.has(key))
    return isPart ? { turnId, reason: 'compaction' } : { turnId: null, reason: 'foreign' }
  }
}

/** A prompt that is asked again while an earlier answer to it is known or on its way. */
function again(known: Prompt): PlacedPrompt {
  const [first] = known.turnIds
  return first === undefined ? known : { ...known, fork: { turnId: first, reason: 'sibling' } }
}

/** Returns the reason of a fork that the renderer made; `undefined` if the client's history did. */
function reasonOf(refusal: BridgeRefusal): TurnFork['reason'] | undefined {
  if (refusal === 'assistant_in_extension') return undefined
  return refusal === 'opaque_template' ? 'opaque' : 'retention'
}
