/** What edge runtimes are asked, and what the addon answers. */

import { CharTokenizer, createRenderer } from 'fulmar'
import { root } from './steps.mjs'

/** The questions: where they go, their bodies, and the answer. `part` takes out of an answer what is compared. */
export async function questions() {
  const { scoreRollouts } = await import(`${root}build/examples/edge/score.js`)
  const request = sampleRequest()
  const scores = JSON.parse(JSON.stringify(scoreRollouts(request)))
  return [
    {
      what: 'scores equal those of the addon',
      path: '/',
      body: request,
      expected: { status: 200, body: { backend: 'wasm', scores } },
    },
    {
      what: 'a role that ChatML does not have is refused with its code',
      path: '/',
      body: { ...request, messages: [{ role: 'narrator', content: 'x' }] },
      expected: { status: 400, body: { code: 'UNKNOWN_NAME' } },
      part: ({ status, body: { code } }) => ({ status, body: { code } }),
    },
  ]
}

/** Four answers as an engine would send them: right, wrong, right, and without the form that was asked for. */
function sampleRequest() {
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
