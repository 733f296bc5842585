/**
 * The golden topics of `npm run conform`, one adapter each. A row belongs to the first adapter that matches it.
 *
 * @typedef {object} Row
 * @property {Record<string, any>} value The row as `JSON.parse` gives it.
 * @property {(name: string) => string} raw The text of a member, where numbers and the order of keys are as written.
 *
 * @typedef {object} Adapter
 * @property {string} topic Its name in messages.
 * @property {import('./members.mjs').Members | ((value: Record<string, any>) => import('./members.mjs').Members)} members What each
 * member of a row is; a member that is not named fails the row.
 * @property {(value: Record<string, any>) => undefined | { relative: number, absolute: number }} [tolerance] How near numbers must be.
 * @property {(value: Record<string, any>) => boolean} matches Whether a row has the topic's schema; never looks at ids.
 * @property {(folder: string) => any} prepare Reads what the rows of one file share, such as a sibling `tokenizer.json`;
 * `folder` is an absolute path. May return a promise. Called once a file, if a row matches.
 * @property {(row: Row, prepared: any) => undefined | string | { byDecision: string } | { skipped: string }} check
 * Computes from the row's inputs. Nothing: as expected. Text: the difference. `byDecision`: the name of the rule by
 * which we differ on purpose, explained in the adapter. `skipped`: what the row needs and is not there. May return a
 * promise. What it throws is a difference.
 */

import { brokenDatasets } from './broken-datasets.mjs'
import { chatEnvs } from './chat-env.mjs'
import { datasetParts } from './dataset-parts.mjs'
import { datasets } from './datasets.mjs'
import { ggufBlocks } from './gguf-blocks.mjs'
import { history } from './history.mjs'
import { hub } from './hub.mjs'
import { jinja } from './jinja.mjs'
import { losses } from './losses.mjs'
import { objective } from './objective.mjs'
import { preferences } from './preferences.mjs'
import { priorityTrees } from './priority-trees.mjs'
import { replay } from './replay.mjs'
import { replayEnsembles } from './replay-ensembles.mjs'
import { replaySamplers } from './replay-samplers.mjs'
import { replaySlices } from './replay-slices.mjs'
import { resize } from './resize.mjs'
import { rewards } from './rewards.mjs'
import { rlhf } from './rlhf.mjs'
import { smollm2 } from './smollm2.mjs'
import { specs } from './specs.mjs'
import { ted } from './ted.mjs'
import { tedFolders } from './ted-folders.mjs'
import { templates } from './templates.mjs'
import { tensordict } from './tensordict.mjs'
import { tldr } from './tldr.mjs'
import { tokenizers } from './tokenizers.mjs'
import { transforms } from './transforms.mjs'
import { trees } from './trees.mjs'
import { values } from './values.mjs'

/** @type {readonly Adapter[]} */
export const ADAPTERS = [
  templates,
  jinja,
  history,
  chatEnvs,
  tokenizers,
  tensordict,
  specs,
  priorityTrees,
  replay,
  replayEnsembles,
  replaySamplers,
  replaySlices,
  transforms,
  resize,
  ted,
  tedFolders,
  values,
  trees,
  smollm2,
  ggufBlocks,
  losses,
  preferences,
  objective,
  rewards,
  tldr,
  rlhf,
  datasets,
  datasetParts,
  brokenDatasets,
  hub,
]
