import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  chatsAt,
  DatasetChatEnv,
  ExecuteToolsInOrder,
  IncrementalTokenizer,
  messageEnvOf,
  replyPolicy,
  rollout,
  SimpleToolTransform,
  StepCounter,
  specEnvOf,
} from '../../../src/torchrl/index.js'
import { add } from '../../tools/tools.js'
import { assistant, template } from './chats.js'

const said = '<tool>add\n{"a": 2, "b": 3}\n</tool>'
const answer = 'Tool add executed successfully:\n{"sum":5}'

const datasetEnv = (...far: ConstructorParameters<typeof DatasetChatEnv>[0]['transforms'] & object) =>
  new DatasetChatEnv({
    dataset: [{ query: 'q' }],
    transforms: [new SimpleToolTransform({ tools: [add] }), new StepCounter({ maxSteps: 2 }), ...far],
  })

describe('toolTransform', () => {
  it('keeps the specs of its environment', async () => {
    await checkEnvSpecs(specEnvOf(datasetEnv()))
    await checkEnvSpecs(
      specEnvOf(
        new DatasetChatEnv({
          dataset: [{ query: 'q' }],
          transforms: [new ExecuteToolsInOrder({ tools: [add] })],
        }),
      ),
    )
  })

  it('shows answers to the policy in its next turn', async () => {
    const policy = replyPolicy({
      inputMode: 'history',
      reply: (chat) => ((chat as readonly { content: unknown }[]).at(-1)?.content === answer ? '5' : said),
    })
    const { parts } = await rollout(datasetEnv(), policy, { maxSteps: 2 })
    const [chat] = chatsAt(parts[1] ?? expect.unreachable(), ['next', 'history', 'prompt'])
    expect(chat?.map(({ role, content }) => [role, content])).toEqual([
      ['user', 'q'],
      ['assistant', said],
      ['tool', answer],
      ['assistant', '5'],
    ])
  })

  it('goes with ids beside messages: what was drawn stays, answers come behind', async () => {
    using tokenizer = new CharTokenizer()
    const policy = replyPolicy({ inputMode: 'history', reply: () => said })
    const env = datasetEnv(new IncrementalTokenizer({ tokenizer, template }))
    const { parts } = await rollout(env, policy, { maxSteps: 2 })
    const ids = parts[1]?.ragged(['tokens', 'prompt']).row(0).data ?? []
    expect(tokenizer.decode(Uint32Array.from(ids, Number))).toContain(`tool\n${answer}<|im_end|>`)
  })

  it('answers in a conversation that is made of the environment', async () => {
    const conversation = messageEnvOf({ env: datasetEnv() })
    const context = { signal: new AbortController().signal }
    await conversation.init(context)
    const { envMessages } = await conversation.step(assistant(said), context)
    expect(envMessages).toEqual([{ role: 'tool', content: answer }])
  })
})
