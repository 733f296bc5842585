/** Tables of steps for the tools that people look at data with: Arrow files and Parquet files. `import from 'fulmar/table'`. */

export { fromArrow, toArrow } from './arrow.js'
export { fromParquet, type ParquetOptions, toParquet } from './parquet.js'
