/** Learning rates by default: TRL's for all weights, and ten times as much for an adapter. */

/** @internal Learning rates of a recipe: for all weights, and for an adapter. */
export interface DefaultRates {
  readonly all: number
  readonly adapter: number
}

/** @internal Rates of recipes that imitate examples: `sft` and `expertIteration`. */
export const EXAMPLE_RATES: DefaultRates = { all: 2e-5, adapter: 2e-4 }

/** @internal Rates of recipes that compare answers: `grpo`, `dpo` and `kto`. */
export const COMPARISON_RATES: DefaultRates = { all: 1e-6, adapter: 1e-5 }
