/** Sources of samples. */

export {
  type Dataset,
  type DatasetState,
  type GeneratedDatasetOptions,
  generatedDataset,
  type ListDatasetOptions,
  listDataset,
  positionedDataset,
} from './dataset.js'
