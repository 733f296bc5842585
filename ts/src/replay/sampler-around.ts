/** The samplers of buffers that another thread made. */

import { PrioritizedSampler } from './prioritized-sampler.js'
import { PromptGroupSampler } from './prompt-group-sampler.js'
import { ConsumingSampler, RandomSampler, Sampler, SamplerWithoutReplacement } from './sampler.js'
import {
  PrioritizedSliceSampler,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StreamingSliceSampler,
} from './slice-sampler.js'
import { StalenessAwareSampler } from './staleness-aware-sampler.js'

/** The sampler of a buffer that another thread made, from what the core built it from there. */
export function samplerAround(options: { readonly kind: string }): Sampler {
  const classes: Record<string, typeof Sampler> = {
    prioritized: PrioritizedSampler,
    prioritizedSlice: PrioritizedSliceSampler,
    stalenessAware: StalenessAwareSampler,
    withoutReplacement: SamplerWithoutReplacement,
    consuming: ConsumingSampler,
    slice: SliceSampler,
    sliceWithoutReplacement: SliceSamplerWithoutReplacement,
    streamingSlice: StreamingSliceSampler,
    promptGroup: PromptGroupSampler,
  }
  // Their own constructors take other options; what they are made of is the same.
  return Reflect.construct(Sampler, [options], classes[options.kind] ?? RandomSampler) as Sampler
}
