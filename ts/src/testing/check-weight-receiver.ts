/** Test suite for policies that take new weights. */

import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { Completion, GenerateRequest, Policy, WeightReceiver } from '../policy/index.js'
import { promise } from './promise.js'

/** Options of {@link checkWeightReceiver}. */
export interface CheckWeightReceiverOptions<Weights> {
  /** Returns weights of a version. Those of two versions must draw other tokens or with other log-probs. */
  readonly weights: (version: number) => Weights | Promise<Weights>
}

const REQUEST: GenerateRequest = {
  requestId: 'a',
  promptIds: Uint32Array.of(1, 2, 3),
  seed: 7,
  maxTokens: 6,
  stopIds: [9],
}

/**
 * Rejects, with the broken rule, unless the policy that `make` returns obeys the rules of {@link WeightReceiver}: staged weights
 * change nothing before their commit; a commit serves them, also if it is called twice, and stamps completions with their version;
 * a rollback serves what was served before, to the bit; a commit without staged weights is refused with `CLOSED`; of two staged
 * weights the later are served; a request in flight during a commit ends once. The policy must draw the same for the same seed,
 * and begin with version 0. It is left serving version 5.
 *
 * @throws {FulmarError} `USER_CODE` with the broken rule; and the policy's own errors where it must not throw.
 *
 * @example
 * ```ts
 * import { Decoder, DecoderPolicy } from 'fulmar'
 * import { checkWeightReceiver } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 10, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * const weights = async (version: number) => {
 *   using fresh = Decoder.fromSeed(shape, { seed: version })
 *   return Decoder.fromSafetensors(shape, await fresh.toSafetensors(), { version })
 * }
 * const policy = new DecoderPolicy(await weights(0))
 * await checkWeightReceiver(() => policy, { weights })
 * assert.equal(policy.version, 5)
 * const same = async () => policy.decoder // of one version, whatever is asked for
 * await assert.rejects(checkWeightReceiver(() => new DecoderPolicy(policy.decoder), { weights: same }), { code: 'USER_CODE' })
 * ```
 */
export async function checkWeightReceiver<Weights>(
  make: () => Policy & WeightReceiver<Weights>,
  options: CheckWeightReceiverOptions<Weights>,
): Promise<void> {
  checkKnownKeys('options', options, ['weights'], ['weights'])
  checkGiven('make', make)
  const receiver = new Checked(make(), options.weights)
  const first = await receiver.draw(0)
  await receiver.refuses('a commit without staged weights', 1)
  await receiver.rollback(0)
  await receiver.rollback(0)
  receiver.same('a rollback without staged weights', first, await receiver.draw(0))

  await receiver.stage(1)
  receiver.same('staged weights', first, await receiver.draw(0))
  await receiver.rollback(0)
  await receiver.refuses('a commit of weights that were rolled back', 1)

  await receiver.stage(1)
  await receiver.commit(1)
  await receiver.commit(1)
  const second = await receiver.draw(1)
  receiver.differs('the weights of versions 0 and 1', first, second)
  await receiver.rollback(0)
  receiver.same('a rollback after a commit', first, await receiver.draw(0))

  await receiver.serve(1)
  receiver.same('weights that are served again', second, await receiver.draw(1))
  await receiver.stage(2)
  await receiver.stage(3)
  await receiver.commit(3)
  receiver.settle(3)
  const later = await receiver.draw(3)
  await receiver.serveDuringRequest(4)
  await receiver.serve(5)
  receiver.differs('the weights of versions 3 and 5', later, await receiver.draw(5))
}

/** A receiver whose calls are followed by checks. */
class Checked<Weights> {
  readonly #receiver: Policy & WeightReceiver<Weights>
  readonly #weights: (version: number) => Weights | Promise<Weights>
  #numRequests = 0

  constructor(
    receiver: Policy & WeightReceiver<Weights>,
    weights: (version: number) => Weights | Promise<Weights>,
  ) {
    promise(typeof receiver.name === 'string' && receiver.name !== '', 'name must be a text')
    this.#receiver = receiver
    this.#weights = weights
  }

  /** One completion, which must have been drawn by `version`. */
  async draw(version: number): Promise<Completion> {
    promise(this.#receiver.version === version, `version must be ${version}: got ${this.#receiver.version}`)
    const completion = await this.#receiver.generate(this.#request())
    const { minPolicyVersion, maxPolicyVersion } = completion
    const got = `${minPolicyVersion} to ${maxPolicyVersion}`
    promise(
      minPolicyVersion === version && maxPolicyVersion === version,
      `a completion must have policy version ${version}: got ${got}`,
    )
    return completion
  }

  async stage(version: number): Promise<void> {
    await this.#receiver.stage(await this.#weights(version), version, context())
  }

  async commit(version: number): Promise<void> {
    await this.#receiver.commit(version, context())
  }

  async rollback(version: number): Promise<void> {
    await this.#receiver.rollback(version, context())
  }

  settle(version: number): void {
    this.#receiver.settle?.(version)
  }

  async serve(version: number): Promise<void> {
    await this.stage(version)
    await this.commit(version)
    this.settle(version)
  }

  async serveDuringRequest(version: number): Promise<void> {
    await this.stage(version)
    const before = this.#receiver.version
    const running = this.#receiver.generate({ ...this.#request(), maxTokens: 48 })
    await this.commit(version)
    this.settle(version)
    const { ids, finishReason, minPolicyVersion, maxPolicyVersion } = await running
    promise(finishReason !== 'abort', 'a request in flight during a commit must not be aborted')
    promise(ids.length > 0, 'a request in flight during a commit must have tokens')
    promise(
      before <= minPolicyVersion && minPolicyVersion <= maxPolicyVersion && maxPolicyVersion <= version,
      `a request in flight during a commit must have policy versions ${before} to ${version}: got ${minPolicyVersion} to ${maxPolicyVersion}`,
    )
  }

  async refuses(what: string, version: number): Promise<void> {
    let code: unknown
    try {
      await this.commit(version)
    } catch (error) {
      code = error instanceof FulmarError ? error.code : error
    }
    promise(code === 'CLOSED', `${what} must be refused with CLOSED: got ${code ?? 'success'}`)
  }

  same(what: string, wanted: Completion, got: Completion): void {
    promise(areEqual(wanted, got), `${what} must not change what is drawn`)
  }

  differs(what: string, one: Completion, other: Completion): void {
    promise(!areEqual(one, other), `${what} must draw other tokens or log-probs`)
  }

  #request(): GenerateRequest {
    this.#numRequests += 1
    return { ...REQUEST, requestId: `r${this.#numRequests}`, promptIds: REQUEST.promptIds.slice() }
  }
}

function context(): { readonly signal: AbortSignal } {
  return { signal: new AbortController().signal }
}

function areEqual(one: Completion, other: Completion): boolean {
  const flat = ({ ids, logProbs }: Completion) => [...ids, ...logProbs].join()
  return flat(one) === flat(other)
}
