/** The task of the bench `eval`: questions, of which an answer is right that holds the word `Oslo`. */

import { defineTask, reward } from 'fulmar'

/** As many as in `benches/rival/verifiers/fulmar_bench.py`. */
const NUM_QUESTIONS = 64

// biome-ignore lint/style/noDefaultExport: the command takes the task of a module that is its default export.
export default defineTask({
  rows: Array.from({ length: NUM_QUESTIONS }, (_, index) => ({ index })),
  prompt: ({ index }) => `Question ${index}: capital of Norway?`,
  rewards: [reward('isRight', ({ text }) => text.includes('Oslo'))],
})
