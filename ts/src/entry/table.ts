/** Tables: Arrow and Parquet files of steps. */

export * from '../table/index.js'
