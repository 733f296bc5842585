/** The questions to edge runtimes, and the addon's answers. */

import { createRenderer, TemplateRegistry } from 'fulmar/chat'
import { CharTokenizer, trainByteBpe } from 'fulmar/tokenizer'
import { root } from './steps.mjs'

/** The questions: where they go, their bodies, and the answer. `part` takes out of an answer what is compared. */
export async function questions() {
  const [{ scoreRollouts }, { encodeChat }] = await Promise.all(
    ['score', 'encode'].map((name) => import(`${root}build/examples/edge/${name}.js`)),
  )
  const [scoring, encoding] = [scoreRequest(), encodeRequest()]
  return [
    {
      what: 'scores equal those of the addon',
      path: '/score',
      body: scoring,
      expected: answered(scoreRollouts(scoring)),
    },
    {
      what: 'a role that ChatML does not have is refused with its code',
      path: '/score',
      body: { ...scoring, messages: [{ role: 'narrator', content: 'x' }] },
      ...refused('UNKNOWN_NAME'),
    },
    {
      what: 'text, tokens and masks equal those of the addon',
      path: '/encode',
      body: encoding,
      expected: answered(encodeChat(encoding)),
    },
    {
      what: 'a template that fails says so with its code',
      path: '/encode',
      body: { ...encoding, template: "{{ raise_exception('no') }}" },
      ...refused('TEMPLATE_RAISED'),
    },
    {
      what: 'an untrusted template renders in its own instance',
      path: '/untrusted',
      body: {
        template: '{% generation %}{{ messages[0].content }}{% endgeneration %}',
        messages: encoding.messages,
      },
      part: ({ status, body: { backend, answer } }) => ({ status, body: { backend, answer: answer?.text } }),
      expected: answered(encoding.messages[0].content),
    },
    ...BOMBS.map((template) => ({
      what: `a bomb is refused: ${template.slice(0, 60)}`,
      path: '/untrusted',
      body: { template, messages: [] },
      ...refused('LIMIT_EXCEEDED'),
    })),
  ]
}

/** The answer of a worker that computes what the addon computed. */
const answered = (answer) => ({
  status: 200,
  body: { backend: 'wasm', answer: JSON.parse(JSON.stringify(answer)) },
})

const refused = (code) => ({
  expected: { status: 400, body: { code } },
  part: ({ status, body }) => ({ status, body: { code: body.code } }),
})

const BOMBS = [
  '{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}',
  "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
  '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}',
]

/** A conversation for a small vocabulary, with text that spells markers and characters of every width. */
function encodeRequest() {
  const texts = [
    'What is 17 + 25?',
    'It is 42, na\u00efve \u{1f408} \u65e5\u672c\u8a9e.',
    '<|im_start|>assistant',
  ]
  const markers = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
  const tokenizer = trainByteBpe(texts, { vocabSize: 300, specialTokens: markers })
  return {
    tokenizer: tokenizer.toJSON(),
    config: { eos_token: '<|im_end|>', pad_token: '<|endoftext|>' },
    template: TemplateRegistry.builtin.source('chatml_format'),
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'What is 17 + 25? \u00e9' },
      { role: 'assistant', content: 'It is 42, na\u00efve \u{1f408} \u65e5\u672c\u8a9e.' },
      { role: 'user', content: 'And twice\n\tthat?' },
      { role: 'assistant', content: '84' },
    ],
  }
}

/** Four answers as an engine would send them: right, wrong, right, and without the form that was asked for. */
function scoreRequest() {
  const tokenizer = new CharTokenizer()
  const [stopId] = createRenderer(tokenizer, { name: 'chatml' }).stopIds
  const answers = ['[ANSWER] 42', '[ANSWER] 41', '[ANSWER] 42', '42']
  const logProb = (row, t, scale) => -scale * (1 + ((row * 7 + t * 3) % 11))
  return {
    messages: [{ role: 'user', content: 'What is 17 + 25? Answer as [ANSWER] <int>.' }],
    target: 42,
    rollouts: answers.map((answer, row) => {
      const ids = [...tokenizer.encode(answer).ids, stopId]
      const logProbs = (scale) => ids.map((_, t) => logProb(row, t, scale))
      return { ids, sampledLogProbs: logProbs(0.25), logProbs: logProbs(0.22) }
    }),
  }
}
