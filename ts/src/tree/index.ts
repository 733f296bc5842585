/** Maps from tensors to tensors, forests of rollouts, scores of tree search, and a batched tree search. */

export { BinaryToDecimal, type BinaryToDecimalOptions } from './binary-to-decimal.js'
export { HashToInt, type HashToIntOptions } from './hash-to-int.js'
export { type GetTreeOptions, MCTSForest, type MCTSForestOptions, type NamesKeys } from './mcts-forest.js'
export {
  type CompletedByMixValueOptions,
  type QTransform,
  qtransformByMinMax,
  qtransformByParentAndSiblings,
  qtransformCompletedByMixValue,
} from './qtransform.js'
export { QueryModule, type QueryModuleOptions } from './query-module.js'
export { RandomProjectionHash, type RandomProjectionHashOptions } from './random-projection-hash.js'
export {
  EXP3Score,
  type EXP3ScoreOptions,
  type MCTSScore,
  MCTSScores,
  PUCTScore,
  type PUCTScoreOptions,
  type ScoreKeys,
  UCB1TunedScore,
  type UCB1TunedScoreOptions,
  UCBScore,
  type UCBScoreOptions,
} from './scores.js'
export {
  type SearchModel,
  type SearchNumbers,
  type SearchOptions,
  type SearchOutcome,
  type SearchPolicy,
  SearchResult,
  type SearchRoot,
  type SearchStep,
  type SearchSummary,
  search,
} from './search.js'
export { type RowHash, SipHash, type SipHashOptions } from './sip-hash.js'
export { TableModel, type TableModelColumns } from './table-model.js'
export {
  TensorDictMap,
  type TensorDictMapOptions,
  type TensorDictMapPairOptions,
  type TensorMap,
  type WriteFn,
} from './tensor-dict-map.js'
export { type CountsActions, type PlotOptions, Tree, type VertexKeyType } from './tree.js'
