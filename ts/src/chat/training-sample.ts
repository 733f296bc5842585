/** From conversations to what a trainer takes: ids and the tokens that train. */

import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { Message } from './message.js'
import { tokensPerMessage } from './rendered.js'
import type { Rendered, Renderer, ToolSpec } from './renderer.js'

/** Options of {@link buildTrainingSample}. */
export interface TrainingSampleOptions {
  /**
   * The tools on offer.
   * @default none
   */
  readonly tools?: readonly ToolSpec[]
  /**
   * The messages whose sampled tokens train.
   * @default all
   */
  readonly roleToMask?: (message: Message) => boolean
  /**
   * Roles whose text is trained too, although it is never sampled; without their frame.
   * @default none
   */
  readonly contentSftRoles?: readonly string[]
  /**
   * If true, adds a closing token to a final assistant's turn without one, as in GLM.
   * @default false
   */
  readonly ensureFinalStop?: boolean
}

/** Ids and which of them train: 1 or 0. Both of shape `[T]`. */
export interface RenderedTrainingSample {
  readonly ids: Uint32Array
  readonly lossMask: Uint8Array
}

/**
 * A conversation to learn from, in one render.
 *
 * @throws {FulmarError} as {@link Renderer.render}; `EMPTY` if no token trains; `INCOMPATIBLE` if an assistant's message
 * has no sampled token because the renderer cannot locate its turn.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { buildTrainingSample, createRenderer } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const chat = [{ role: 'user', content: '1+1?' }, { role: 'assistant', content: '2' }]
 * const { ids, lossMask } = buildTrainingSample(renderer, chat)
 * assert.equal(tokenizer.decode(ids.filter((_, t) => lossMask[t] === 1)), '2<|im_end|>')
 * ```
 */
export function buildTrainingSample(
  renderer: Renderer,
  messages: readonly Message[],
  options: TrainingSampleOptions = {},
): RenderedTrainingSample {
  checkKnownKeys('options', options, ['tools', 'roleToMask', 'contentSftRoles', 'ensureFinalStop'])
  checkGiven('renderer', renderer)
  const { tools = [], roleToMask = () => true, contentSftRoles = [], ensureFinalStop = false } = options
  const rendered = renderer.render(messages, { tools })
  checkTurns(rendered, messages)
  const { ids, messageIndices, sampledMask, isContent } = rendered
  const columns = messages.map((message) => {
    if (contentSftRoles.includes(message.role)) return isContent
    return roleToMask(message) ? sampledMask : undefined
  })
  const lossMask = Uint8Array.from(messageIndices, (index, t) => columns[index]?.[t] ?? 0)
  const last = messages.at(-1)
  const [close] = renderer.stopIds
  const lastTrained = ids[lossMask.lastIndexOf(1)] ?? -1
  const isOpen = last?.role === 'assistant' && roleToMask(last) && !renderer.stopIds.includes(lastTrained)
  if (ensureFinalStop && isOpen && close !== undefined) {
    return { ids: Uint32Array.of(...ids, close), lossMask: Uint8Array.of(...lossMask, 1) }
  }
  if (!lossMask.includes(1)) {
    throw new FulmarError(
      'EMPTY',
      'messages must hold a token to train on: there is no token of the roles that train',
    )
  }
  return { ids, lossMask }
}

/** Options of {@link buildTrajectoryStep}. */
export interface TrajectoryStepOptions {
  /**
   * The tools on offer.
   * @default none
   */
  readonly tools?: readonly ToolSpec[]
}

/** A prompt and the completion that follows it, as one step of a trajectory. */
export interface TrajectoryStep {
  /** The prompt, with its generation prompt. */
  readonly promptIds: Uint32Array
  /** Tokens after the prompt. */
  readonly completionIds: Uint32Array
  /** 1 on the tokens of the completion that an assistant samples, else 0. Shape of `completionIds`. */
  readonly completionMask: Uint8Array
}

/**
 * A step whose completion was never sampled, such as a demonstration: the tokens of `prompt` and of what `completion`
 * adds to it.
 *
 * @throws {FulmarError} as {@link Renderer.render}; `EMPTY` if `completion` is empty; `INCOMPATIBLE` if the tokens of the
 * prompt are not the beginning of the tokens of all, because the family writes the prompt otherwise once something follows.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { buildTrajectoryStep, createRenderer } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const [prompt, completion] = [[{ role: 'user', content: '1+1?' }], [{ role: 'assistant', content: '2' }]]
 * const { completionIds, completionMask } = buildTrajectoryStep(renderer, prompt, completion)
 * assert.equal(tokenizer.decode(completionIds), '2<|im_end|>\n')
 * assert.deepEqual(completionMask, Uint8Array.of(1, 1, 0))
 * ```
 */
export function buildTrajectoryStep(
  renderer: Renderer,
  prompt: readonly Message[],
  completion: readonly Message[],
  options: TrajectoryStepOptions = {},
): TrajectoryStep {
  checkKnownKeys('options', options, ['tools'])
  checkGiven('renderer', renderer)
  const { tools = [] } = options
  if (completion.length === 0) {
    throw new FulmarError('EMPTY', 'completion must hold at least one message: it is empty')
  }
  const promptIds = renderer.render(prompt, { tools, addGenerationPrompt: true }).ids
  const { ids, sampledMask } = renderer.render([...prompt, ...completion], { tools })
  const parted = promptIds.findIndex((id, t) => ids[t] !== id)
  if (parted >= 0) {
    const detail = `got another token at ${parted} of ${promptIds.length}`
    throw new FulmarError('INCOMPATIBLE', `prompt must stay as it is when the completion follows: ${detail}`)
  }
  const start = promptIds.length
  return { promptIds, completionIds: ids.slice(start), completionMask: sampledMask.slice(start) }
}

/** Refuses an assistant's message that is not empty and whose turn was not found. */
function checkTurns(rendered: Rendered, messages: readonly Message[]): void {
  const counts = tokensPerMessage(rendered, messages.length, { sampledOnly: true })
  messages.forEach(({ role, content, tool_calls: calls }, index) => {
    const speaks = (content?.length ?? 0) > 0 || (Array.isArray(calls) && calls.length > 0)
    if (role === 'assistant' && speaks && counts[index] === 0) {
      const rule = `messages[${index}] must be a turn whose begin and end the template shows`
      throw new FulmarError('INCOMPATIBLE', `${rule}: got one without`)
    }
  })
}
