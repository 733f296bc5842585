/** Keys of open rollouts. They are kept and compared as hashes, so that no comparison takes longer for a better guess. */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

/** Finds what belongs to a key. */
export class ApiKeys<Owner> {
  readonly #owners = new Map<string, { readonly hash: Buffer; readonly owner: Owner }>()

  /** Number of keys that are valid. */
  get size(): number {
    return this.#owners.size
  }

  /** Makes a key. */
  issue(makeOwner: (key: string) => Owner): Owner {
    const key = `sk-fulmar-${randomBytes(24).toString('base64url')}`
    const hash = hashOf(key)
    const owner = makeOwner(key)
    this.#owners.set(hash.toString('base64'), { hash, owner })
    return owner
  }

  /** Returns the owner of a key; `undefined` for an unknown one. */
  ownerOf(key: string): Owner | undefined {
    const hash = hashOf(key)
    const found = this.#owners.get(hash.toString('base64'))
    return found && timingSafeEqual(found.hash, hash) ? found.owner : undefined
  }

  /** Makes a key invalid. */
  revoke(key: string): void {
    this.#owners.delete(hashOf(key).toString('base64'))
  }

  /** Returns all owners. */
  owners(): Owner[] {
    return [...this.#owners.values()].map(({ owner }) => owner)
  }
}

function hashOf(key: string): Buffer {
  return createHash('sha256').update(key).digest()
}
