/** Data sets of Open X-Embodiment and their files. */

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { FulmarError, messageOf } from '../core/index.js'
import { fetchSnapshot } from '../fetch/index.js'
import { type DatasetOptions, type HubDatasetOptions, hubOptionsOf } from './dataset-options.js'

/** The repository of the hub that has a folder for each data set. */
export const OPENX_REPO = 'jxu124/OpenX-Embodiment'

/** The ids. */
export const OPENX_IDS: readonly string[] = [
  'fractal20220817_data',
  'kuka',
  'bridge',
  'taco_play',
  'jaco_play',
  'berkeley_cable_routing',
  'roboturk',
  'nyu_door_opening_surprising_effectiveness',
  'viola',
  'berkeley_autolab_ur5',
  'toto',
  'language_table',
  'columbia_cairlab_pusht_real',
  'stanford_kuka_multimodal_dataset_converted_externally_to_rlds',
  'nyu_rot_dataset_converted_externally_to_rlds',
  'stanford_hydra_dataset_converted_externally_to_rlds',
  'austin_buds_dataset_converted_externally_to_rlds',
  'nyu_franka_play_dataset_converted_externally_to_rlds',
  'maniskill_dataset_converted_externally_to_rlds',
  'furniture_bench_dataset_converted_externally_to_rlds',
  'cmu_franka_exploration_dataset_converted_externally_to_rlds',
  'ucsd_kitchen_dataset_converted_externally_to_rlds',
  'ucsd_pick_and_place_dataset_converted_externally_to_rlds',
  'austin_sailor_dataset_converted_externally_to_rlds',
  'austin_sirius_dataset_converted_externally_to_rlds',
  'bc_z',
  'usc_cloth_sim_converted_externally_to_rlds',
  'utokyo_pr2_opening_fridge_converted_externally_to_rlds',
  'utokyo_pr2_tabletop_manipulation_converted_externally_to_rlds',
  'utokyo_saytap_converted_externally_to_rlds',
  'utokyo_xarm_pick_and_place_converted_externally_to_rlds',
  'utokyo_xarm_bimanual_converted_externally_to_rlds',
  'robo_net',
  'berkeley_mvp_converted_externally_to_rlds',
  'berkeley_rpt_converted_externally_to_rlds',
  'kaist_nonprehensile_converted_externally_to_rlds',
  'stanford_mask_vit_converted_externally_to_rlds',
  'tokyo_u_lsmo_converted_externally_to_rlds',
  'dlr_sara_pour_converted_externally_to_rlds',
  'dlr_sara_grid_clamp_converted_externally_to_rlds',
  'dlr_edan_shared_control_converted_externally_to_rlds',
  'asu_table_top_converted_externally_to_rlds',
  'stanford_robocook_converted_externally_to_rlds',
  'eth_agent_affordances',
  'imperialcollege_sawyer_wrist_cam',
  'iamlab_cmu_pickup_insert_converted_externally_to_rlds',
  'uiuc_d3field',
  'utaustin_mutex',
  'berkeley_fanuc_manipulation',
  'cmu_playing_with_food',
  'cmu_play_fusion',
  'cmu_stretch',
  'berkeley_gnm_recon',
  'berkeley_gnm_cory_hall',
  'berkeley_gnm_sac_son',
]

/**
 * Fetches the files of a data set, and returns their paths in order.
 * @throws {FulmarError} `EMPTY` if the repository has none; those of `fetchSnapshot`.
 */
export async function openXFiles(
  id: string,
  options: DatasetOptions & HubDatasetOptions,
): Promise<readonly string[]> {
  const fetching = { ...hubOptionsOf(options), kind: 'dataset', include: [`${id}/*.tar`] } as const
  const folder = join(await fetchSnapshot(OPENX_REPO, fetching), id)
  return (await filesIn(folder, id)).map((name) => join(folder, name))
}

/** The names of the files in a folder, in order. @throws {FulmarError} `EMPTY` if it has none. */
export async function filesIn(folder: string, id: string): Promise<readonly string[]> {
  const names = await readdir(folder).catch((cause: unknown) => {
    throw new FulmarError('EMPTY', `openx:${id} must have files: got ${messageOf(cause)}`, { cause })
  })
  const files = names.filter((name) => name.endsWith('.tar')).sort()
  if (files.length === 0) throw new FulmarError('EMPTY', `openx:${id} must have files: ${folder} has none`)
  return files
}
