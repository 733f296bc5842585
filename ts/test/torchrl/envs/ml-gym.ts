/** Episodes of the tests of MLGym. */

import type { EnvContext } from '../../../src/env/index.js'
import { MLGymEnv, type MLGymEnvOptions, type MLGymTask } from '../../../src/torchrl/index.js'
import { assistant } from './chats.js'

export const block = (name: string, body = '') => `\`\`\`${name}\n${body}\n\`\`\``
export const context: EnvContext = { signal: new AbortController().signal }

/** A task whose score is the number in `n.txt`, times that in the scorer's `secret.txt`. */
export const timesTask = (changes: Partial<MLGymTask> = {}): MLGymTask => ({
  name: 'times',
  instructions: 'Write a large number into n.txt.',
  files: { 'n.txt': '1', 'notes/a.txt': 'a note\n' },
  submission: ['n.txt', 'extra.txt'],
  scorer: {
    command: ['python3', '-I', 'score.py'],
    files: {
      'secret.txt': '10',
      'score.py': `import json
try:
    n = float(open("submission/n.txt").read())
except ValueError:
    print(json.dumps({"invalid": "no number"}))
else:
    print(json.dumps({"score": n * float(open("secret.txt").read())}))
`,
    },
  },
  ...changes,
})

/** Says replies until the episode is over; returns the last step, the environment and the answers. */
export async function play(task: MLGymTask, replies: readonly string[], options: MLGymEnvOptions = {}) {
  const env = new MLGymEnv(task, options)
  const answers: string[] = []
  try {
    await env.init(context)
    for (const reply of replies) {
      const step = await env.step(assistant(reply), context)
      answers.push((step.envMessages ?? []).map(({ content }) => String(content)).join('\n'))
      if (step.done) return { env, answers, result: env.result, signals: step.envRewards ?? {} }
    }
    return { env, answers, result: env.result, signals: {} }
  } finally {
    env.close()
  }
}
