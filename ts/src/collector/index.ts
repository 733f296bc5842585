/** Batches of rollouts for training. */

export {
  CollectorBatch,
  LLMCollector,
  type LLMCollectorOptions,
  type LLMCollectorState,
} from './llm-collector.js'
