import { describe, expect, it } from 'vitest'
import { Replaceable } from '../../src/policy/replaceable.js'

interface Named {
  readonly name: string
}
const named = (name: string): Named => ({ name })

/** A model that is replaced, and the names of those that were closed, in order. */
function make(first?: string) {
  const closed: string[] = []
  const close = ({ name }: Named) => closed.push(name)
  return { models: new Replaceable<Named>(close, first === undefined ? undefined : named(first)), closed }
}

describe('Replaceable', () => {
  it('closes a replaced model after its last use', async () => {
    const { models, closed } = make('a')
    let finish: () => void = () => {}
    const using = models.use(({ name }) => new Promise<string>((resolve) => (finish = () => resolve(name))))
    await models.stage(1, () => named('b'))
    models.commit(1)
    models.settle()
    expect([models.served?.name, closed]).toEqual(['b', []])
    finish()
    expect(await using).toBe('a')
    expect(closed).toEqual(['a'])
  })

  it('returns to the previous model until it is settled', async () => {
    const { models, closed } = make('a')
    await models.stage(1, () => named('b'))
    models.commit(1)
    models.rollback()
    models.rollback()
    expect([models.served?.name, closed]).toEqual(['a', ['b']])
    await models.stage(1, () => named('c'))
    models.commit(1)
    models.settle()
    models.rollback()
    expect([models.served?.name, closed]).toEqual(['c', ['b', 'a']])
  })

  it('discards a load that a rollback or another load overtakes', async () => {
    const { models, closed } = make('a')
    let loaded: (model: Named) => void = () => {}
    const late = models.stage(1, () => new Promise<Named>((resolve) => (loaded = resolve)))
    await models.stage(2, () => named('c'))
    loaded(named('b'))
    await expect(late).rejects.toMatchObject({ code: 'ABORTED' })
    expect(closed).toEqual(['b'])
    const slow = models.stage(3, () => new Promise<Named>((resolve) => (loaded = resolve)))
    models.rollback()
    loaded(named('d'))
    await expect(slow).rejects.toMatchObject({ code: 'ABORTED' })
    expect([closed, models.served?.name]).toEqual([['b', 'c', 'd'], 'a'])
  })

  it('keeps a staged model where the next cannot be loaded', async () => {
    const { models, closed } = make('a')
    await models.stage(1, () => named('b'))
    const broken = models.stage(2, () => Promise.reject(new Error('no memory')))
    await expect(broken).rejects.toThrow('no memory')
    models.commit(1)
    expect([models.served?.name, closed]).toEqual(['b', []])
  })

  it('refuses to serve what is not staged, but a commit may be repeated', async () => {
    const { models } = make()
    await expect(models.use(async () => 0)).rejects.toMatchObject({ code: 'CLOSED' })
    expect(() => models.commit(1)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    await models.stage(1, () => named('a'))
    expect(() => models.commit(2)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    models.commit(1)
    models.commit(1)
    expect(models.served?.name).toBe('a')
    expect(() => models.commit(2)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
  })
})
