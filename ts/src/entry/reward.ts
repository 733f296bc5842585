/** Rewards: functions that score texts against known answers, lengths and formats. No WebAssembly is loaded. */

export * from '../reward/index.js'
