import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CountdownEnv, replyPolicy, rollout, specEnvOf } from '../../src/chat-env/index.js'
import { Rng } from '../../src/core/index.js'
import { isCountdownSolution, parseCountdown } from '../../src/reward/index.js'
import { checkEnvSpecs } from '../../src/spec/index.js'
import { failing } from './chats.js'

  it('lets them add up where it may, as often as TorchRL does', () => {
    const rng = Rng.fromSeed(1)
    const games = Array.from({ length: 2000 }, () =>
      parseCountdown(countdownProblem(rng, { allowSum: true }).answer),
    )
    const share =
      games.filter((game) => isCountdownSolution(game.numbers.join('+'), game)).length / games.length
    expect(share).toBeGreaterThan(0.55)
    expect(share).toBeLessThan(0.66)
  })

  it('refuses games that cannot be', () => {
    const rng = Rng.fromSeed(1)
    expect(() => countdownProblem(rng, { numCount: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => countdownProblem(rng, { numCount: 64, allowSum: true })).not.toThrow()
    expect(() => countdownProblem(rng, { numCount: 65, allowSum: true })).toThrow(failing('LIMIT_EXCEEDED'))
    expect(() => countdownProblem(rng, { numCount: 1 })).toThrow(failing('EMPTY', /1000 draws/))
    expect(() => countdownProblem(rng, { numbers: 4 } as never)).toThrow(failing('UNKNOWN_NAME'))
  })
})

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
