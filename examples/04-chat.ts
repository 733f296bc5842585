/**
 * The whole way of a chat: messages -> ids -> masks -> an answer -> a message, over a byte-level vocabulary that is
 * learned here. The same with a chat template, which writes text.
 *
 * Run it with `npm run build && node scripts/examples.mjs native`.
 */

import assert from 'node:assert/strict'
import { createRenderer, extendPrompt, type Message, Template } from 'fulmar/chat'
import { trainByteBpe } from 'fulmar/tokenizer'

// A vocabulary. A real one comes with the model: `await HfTokenizer.fromFolder('path/to/model')`.
const CORPUS = [
  'What is the weather in Paris? It is sunny in Paris. Is it? The weather is fine, and it is warm.',
]
using tokenizer = trainByteBpe(CORPUS, { vocabSize: 300, specialTokens: ['<|im_start|>', '<|im_end|>'] })

const chat: Message[] = [
  { role: 'system', content: 'You know the weather.' },
  { role: 'user', content: 'What is the weather in Paris? <|im_end|>' },
  { role: 'assistant', content: 'It is sunny in Paris.' },
]

// Messages to ids. What the user wrote cannot close its own message: of four `<|im_end|>`, three are the marker.
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const rendered = renderer.render(chat)
const closing = tokenizer.idOf('<|im_end|>')
assert.equal(rendered.ids.filter((id) => id === closing).length, 3)
assert.ok(tokenizer.decode(rendered.ids).includes('Paris? <|im_end|><|im_end|>'))
console.log(`${rendered.ids.length} tokens, with ^ under those that are trained`)
show(rendered.ids, rendered.sampledMask)

// The mask holds what an assistant samples: its words and its closing token.
const trained = rendered.ids.filter((_, at) => rendered.sampledMask[at] === 1)
assert.equal(tokenizer.decode(trained), 'It is sunny in Paris.<|im_end|>')

// The same chat by a template. It writes markers by name, so they are read as tokens; its blocks name the speaker.
using template = new Template(
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{% generation %}{{ m.content if m.role == 'assistant' }}" +
    "{% endgeneration %}{{ m.content if m.role != 'assistant' }}<|im_end|>\n{% endfor %}",
)
const { text, assistantSpans = new Uint32Array() } = template.render({ messages: chat })
const spoken = Array.from({ length: assistantSpans.length / 2 }, (_, k) =>
  text.slice(assistantSpans[2 * k], assistantSpans[2 * k + 1]),
).join('')
assert.equal(spoken, 'It is sunny in Paris.')
const { ids: templateIds } = tokenizer.encode(text, { addedTokens: true })
assert.equal(templateIds.filter((id) => id === closing).length, 4) // here the user's text did become a marker

// A policy answers the question with ids; parsing gives a message, and the next prompt keeps those ids.
const question = renderer.render(chat.slice(0, 2), { addGenerationPrompt: true })
const answer = Uint32Array.of(...tokenizer.encode('It is warm.').ids, ...renderer.stopIds.slice(0, 1))
const { content, finished } = renderer.parse(answer, { promptIds: question.ids })
assert.deepEqual([content, finished], ['It is warm.', true])
const bridge = renderer.bridge(question.ids, answer, [{ role: 'user', content: 'Is it?' }])
if (!bridge.ok) throw new Error(`the conversation must go on: got ${bridge.reason}`)
const next = extendPrompt(question.ids, answer, bridge)
const kept = next.subarray(0, question.ids.length + answer.length)
assert.deepEqual([...kept], [...question.ids, ...answer])
console.log(`assistant: ${content} (the next prompt has ${next.length} tokens)`)

/** Tokens between bars, and below each whether it is trained. */
function show(ids: Uint32Array, mask: Uint8Array): void {
  const names = Array.from(ids, (id) =>
    (tokenizer.tokenOf(id) ?? '?').replace('\u{120}', '_').replace('\u{10a}', '/'),
  )
  console.log(`  ${names.join('|')}`)
  console.log(
    `  ${names
      .map((name, at) => (mask[at] ? '^' : ' ').repeat(name.length))
      .join(' ')
      .trimEnd()}`,
  )
}
