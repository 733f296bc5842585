/** Tasks: samples, environments and rewards of something to learn. */

export {
  ALPHABET_SORT_MAX,
  type AlphabetSortOptions,
  type AlphabetSortSample,
  alphabetScore,
  alphabetSort,
  type NameKey,
  sortedNames,
} from './alphabet-sort.js'
export { type CountdownSample, type CountdownTaskOptions, countdown } from './countdown.js'
export { type DefineTaskOptions, defineTask } from './define-task.js'
export { type GSM8KTask, type GSM8KTaskOptions, type GSM8KTaskRow, gsm8k } from './gsm8k.js'
export { type IfEvalSample, type IfEvalTaskOptions, type IfEvalTaskRow, ifeval } from './ifeval.js'
export { type MathTaskOptions, type MathTaskRow, math } from './math.js'
export type { RowTaskOptions } from './question-task.js'
export { type RewardInput, type RewardOptions, reward } from './reward.js'
export {
  parseRows,
  ROWS_BYTES_MAX,
  ROWS_MAX,
  type Row,
  type RowsOptions,
  readRows,
} from './rows.js'
export {
  normalizeSearchAnswer,
  SEARCH_CALLS_MAX,
  type SearchRow,
  type SearchTaskOptions,
  search,
} from './search.js'
export {
  SEARCH_DOCUMENT_LENGTH_MAX,
  SEARCH_DOCUMENTS_MAX,
  SEARCH_QUERY_LENGTH_MAX,
  type SearchDocument,
  type SearchIndex,
  searchIndex,
} from './search-index.js'
export {
  digitSum,
  type SumDigitsOptions,
  type SumDigitsSample,
  type SumDigitsTask,
  sumDigits,
} from './sum-digits.js'
