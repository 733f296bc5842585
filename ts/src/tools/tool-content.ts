/** Results of tools that are parts of a message's content, such as images. */

import type { ContentPart } from '../chat/index.js'
import { describeValue, FulmarError } from '../core/index.js'

/**
 * Content parts as the result of a tool: they become parts of the message that answers the call, not JSON in its text.
 * A chat template without such parts refuses the message.
 *
 * @example
 * ```ts
 * import { ToolContent, ToolRunner, withTools } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
 * const look = { name: 'look', run: () => new ToolContent([image]) }
 * const env = { init: () => ({ initPromptMessages: [] }), step: () => ({ done: true }), close: () => {} }
 * const conversation = withTools({ env, runner: new ToolRunner({ tools: [look] }) })
 * const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } }
 * const said = { role: 'assistant', content: null, tool_calls: [call] }
 * const { envMessages } = await conversation.step(said, { signal: new AbortController().signal })
 * assert.deepEqual(envMessages?.[0]?.content, [{ type: 'text', text: 'Tool look executed successfully:' }, image])
 * ```
 */
export class ToolContent {
  readonly parts: readonly ContentPart[]

  /** @throws {FulmarError} `MALFORMED` unless `parts` is a list of objects with a `type`. */
  constructor(parts: readonly ContentPart[]) {
    if (!Array.isArray(parts)) {
      throw new FulmarError('MALFORMED', `parts must be a list: got ${describeValue(parts)}`)
    }
    const wrong = parts.find((part) => typeof part?.type !== 'string')
    if (wrong !== undefined)
      throw new FulmarError('MALFORMED', `parts must have a type each: got ${describeValue(wrong)}`)
    this.parts = Object.freeze([...parts])
  }
}
