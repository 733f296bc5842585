import { describe, expect, it } from 'vitest'
import { isCountdownSolution, parseCountdown } from '../../../src/reward/index.js'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { CountdownEnv, replyPolicy, rollout, specEnvOf } from '../../../src/torchrl/index.js'

describe('CountdownEnv', () => {
  it('plays the same games for a seed and a stream, others for another', async () => {
    const games = async (options: object) =>
      (await new CountdownEnv({ numEnvs: 3, ...options }).reset()).value('answer')
    expect(await games({ seed: 1 })).toEqual(await games({ seed: 1 }))
    expect(await games({ seed: 1 })).not.toEqual(await games({ seed: 2 }))
    expect(await games({ seed: 1 })).not.toEqual(await games({ seed: 1, stream: 'worker 2' }))
  })

  it('rewards a solution, and does what its specs say', async () => {
    const env = new CountdownEnv({ numCount: 2, maxNumber: 9, numEnvs: 2 })
    const solve = (answer: string) => {
      const { numbers, target } = parseCountdown(answer)
      const [a, b] = numbers
      const tries = [`${a}-${b}`, `${b}-${a}`, `${a}*${b}`]
      return tries.find((attempt) => isCountdownSolution(attempt, { numbers, target })) ?? ''
    }
    const solver = replyPolicy({ inputMode: 'history', reply: () => '' })
    const dict = await env.reset()
    const answers = dict.value('answer') as string[]
    const policy = replyPolicy({
      inputMode: 'history',
      reply: (_, at) => `<answer>${solve(answers[at] ?? '')}</answer>`,
    })
    const next = await env.step(await policy(dict))
    expect([...next.tensor('reward').data]).toEqual([1, 1])
    const { parts } = await rollout(env, solver, { maxSteps: 1 })
    expect([...(parts[0]?.tensor(['next', 'reward']).data ?? [])]).toEqual([0, 0])
    await checkEnvSpecs(specEnvOf(env))
  })
})
