/**
 * Golden topics without an adapter, each with its reason. Their rows are skipped, and counted so: tests of Rust and TypeScript read them.
 */

const ABSENT = {
  'offline data sets': `D4RL D4RL_from_env available Minari_bug_all_zero Minari AtariDQN VD4RL Roboset GenDGRL GenDGRL_urls OpenML OpenX
    OpenX_stream LeRobot video_frames lerobot_columns_to_tensordict LeRobot_from_columns load_dataset register_dataset prefixes transfer
    hf_hub_download snapshot_download local_dir dataset_info list_datasets ref`,
  'hashes and maps of states': `RandomProjectionHash HashToInt HashToInt_state_dict QueryModule TensorDictMap TensorDictMap_write_fn
    BinaryToDecimal SipHash hash_info game`,
  'tree search': `MCTSForest MCTSForest_states MCTSForest_ctor score exp3 exp3_bad_gamma MCTSScores muzero_policy gumbel_muzero_policy
    considered_visits_sequence`,
}
const REASONS = new Map(
  Object.entries(ABSENT).flatMap(([reason, topics]) => topics.split(/\s+/).map((topic) => [topic, reason])),
)

export const absent = {
  topic: 'no adapter',
  members: () => undefined,
  matches: (row) => REASONS.has(row.topic),
  prepare: () => undefined,
  check: ({ value: row }) => ({ skipped: `${REASONS.get(row.topic)}: no adapter (${row.topic})` }),
}
