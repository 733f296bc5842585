/** Protocol of policies that take new weights while they sample. */

/** Context of a {@link WeightReceiver}, besides the weights. */
export interface WeightContext {
  /** Fires when the call takes too long or the transfer is stopped. A rollback follows. */
  readonly signal: AbortSignal
}

/**
 * Receiver of weights in two phases, so that several receivers change together or not at all. `WeightSync` of
 * `fulmar/collect` calls the phases in order.
 *
 * | receiver | weights | meanwhile |
 * |---|---|---|
 * | {@link DecoderPolicy} | a `Decoder`, such as `decoder.snapshot()` | requests in flight finish with the old weights |
 * | {@link WorkerPolicy} | a `Decoder`, or a folder with a model | the same |
 * | {@link AsyncVLLM} | a folder with an adapter that the servers can read | the same |
 * | `ParkingPolicy` of `fulmar/collect` | a `Policy` | requests in flight continue with the new weights |
 */
export interface WeightReceiver<Weights> {
  /** Unique among the receivers. */
  readonly name: string
  /** The version that it serves. */
  readonly version: number
  /**
   * Loads weights next to those in use, and replaces weights that were staged before. May be called again after a
   * failure. A call that ends after `signal` fired leaves nothing staged.
   */
  stage(weights: Weights, version: number, context: WeightContext): void | Promise<void>
  /**
   * Serves what was staged: no request begins with the old weights after this. Keeps those until
   * {@link WeightReceiver.settle}. May be called again after it failed.
   */
  commit(version: number, context: WeightContext): void | Promise<void>
  /**
   * Discards the staged weights and serves the previous `version`. Called once or more, also if nothing was
   * staged.
   */
  rollback(version: number, context: WeightContext): void | Promise<void>
  /** Frees older weights: all receivers serve `version`. */
  settle?(version: number): void
}
