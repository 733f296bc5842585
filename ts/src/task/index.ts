/** Tasks: samples, environments and rewards of something to learn. */

export {
  type AlphabetSortOptions,
  type AlphabetSortSample,
  alphabetScore,
  alphabetSort,
  type NameKey,
  sortedNames,
} from './alphabet-sort.js'
export { type CountdownSample, type CountdownTaskOptions, countdown } from './countdown.js'
export { type DefineTaskOptions, defineTask, type RewardOf } from './define-task.js'
export { type GSM8KTask, type GSM8KTaskOptions, gsm8k } from './gsm8k.js'
export { type MathTaskOptions, math } from './math.js'
export type { RowTaskOptions } from './question-task.js'
export { type RewardInput, type RewardOptions, reward } from './reward.js'
export { parseRows, type Row, type RowsOptions, readRows } from './rows.js'
export { normalizeSearchAnswer, type SearchRow, type SearchTaskOptions, search } from './search.js'
export { type SearchDocument, type SearchIndex, searchIndex } from './search-index.js'
export {
  digitSum,
  type SumDigitsOptions,
  type SumDigitsSample,
  type SumDigitsTask,
  sumDigits,
} from './sum-digits.js'
