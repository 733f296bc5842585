//! Every limit on outside data, by name. Each has a test at the bound and one past it.

/// Longest header of a safetensors file, in bytes (the format's own rule).
pub const SAFETENSORS_HEADER_BYTES_MAX: usize = 100_000_000;

/// Most dimensions of a tensor.
pub const TENSOR_RANK_MAX: usize = 16;

/// Most elements that a tensor shows when it shows some of its storage more than once.
pub const TENSOR_EXPANDED_MAX: usize = 1 << 27;

/// Deepest nesting of keys in a `TensorDict`.
pub const TENSOR_DICT_DEPTH_MAX: usize = 32;

/// Most messages in one conversation.
pub const MESSAGES_MAX: usize = 65_536;

/// Most dimensions of a history, the messages of a conversation being the last.
pub const HISTORY_RANK_MAX: usize = 8;

/// Most assistant turns whose position in a text is computed by rendering the messages before each of them.
pub const MASK_PREFIX_TURNS_MAX: usize = 512;

/// Most bytes of the texts of tools whose parsed lists a thread keeps.
pub const TOOL_TEXTS_BYTES_MAX: usize = 1 << 20;

/// Longest text of one message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Most tokens in one ledger.
pub const LEDGER_TOKENS_MAX: usize = 1 << 28;

/// Most forks in one ledger.
pub const LEDGER_FORKS_MAX: usize = 65_536;

/// Largest vocabulary of a tokenizer or a model.
pub const VOCAB_SIZE_MAX: usize = 1 << 22;

/// Largest `tokenizer.json`, or other file of a tokenizer, in bytes.
pub const TOKENIZER_FILE_BYTES_MAX: usize = 128 << 20;

/// Longest that one step of a tokenizer's normalisation may make a text, in bytes.
pub const NORMALIZED_BYTES_MAX: usize = 256 << 20;

/// Largest factor by which a tokenizer's normalizer may lengthen a text, or its decoder the names of its
/// tokens.
pub const TOKENIZER_GROWTH_MAX: usize = 1 << 16;

/// Widest hidden state or feed-forward layer of a model.
pub const MODEL_WIDTH_MAX: usize = 1 << 17;

/// Longest token of a rank file, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// Largest `config.json`, or list of the files of a checkpoint, in bytes.
pub const MODEL_JSON_BYTES_MAX: usize = 16 << 20;

/// Most tensors, and most keys, of a GGUF file.
pub const GGUF_TENSORS_MAX: usize = 1 << 16;

/// Deepest nesting of arrays in the metadata of a GGUF file.
pub const GGUF_DEPTH_MAX: usize = 4;

/// Most layers of a model.
pub const MODEL_LAYERS_MAX: usize = 512;

/// Most tokens, prompt and completion together, of one sequence given to a model.
pub const SEQUENCE_TOKENS_MAX: usize = 1 << 20;

/// Most tokens in one packed batch given to a model.
pub const BATCH_TOKENS_MAX: usize = 1 << 22;

/// Most requests that wait in an engine, and most sequences that run in it at once.
pub const ENGINE_REQUESTS_MAX: usize = 1 << 16;

/// Most top log-probs that one request or one batch of scores returns, over all its tokens.
pub const TOP_LOG_PROBS_MAX: usize = 1 << 26;

/// Most sequences, or other items, that one plan packs or shares out.
pub const PACK_SEQUENCES_MAX: usize = 1 << 24;

/// Most workers that a plan shares out to, and most bins that a stream of sequences is packed into at a time.
pub const PACK_WORKERS_MAX: usize = 1 << 16;

/// Most items that one permutation orders, so also the most rows of a shuffled data set.
pub const PERMUTATION_COUNT_MAX: usize = 1 << 24;

/// Most digits of an integer in JSON, as in Python.
pub const INTEGER_DIGITS_MAX: usize = 4300;

/// Longest source of a chat template, in bytes.
pub const TEMPLATE_SOURCE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of one expression or one chain of blocks in a chat template.
pub const TEMPLATE_NESTING_MAX: usize = 64;

/// Longest chain of operators, attributes and filters in one expression of a chat template, and of `elif` in one `if`.
pub const TEMPLATE_CHAIN_MAX: usize = 256;

/// Default maximum of instructions that one rendering of a chat template executes and elements that its
/// operations visit.
pub const TEMPLATE_STEPS: u64 = 100_000_000;

/// Largest value of the option for [`TEMPLATE_STEPS`].
pub const TEMPLATE_STEPS_MAX: u64 = 2_000_000_000;

/// Default maximum length of the text that one rendering of a chat template gives, in bytes.
pub const TEMPLATE_OUTPUT_BYTES: usize = 64 << 20;

/// Largest value of the option for [`TEMPLATE_OUTPUT_BYTES`], and the longest intermediate text.
pub const TEMPLATE_OUTPUT_BYTES_MAX: usize = 256 << 20;

/// Default maximum size of the texts and lists that one rendering of a chat template makes, freed or not, in
/// bytes.
pub const TEMPLATE_MADE_BYTES: u64 = 1 << 29;

/// Largest value of the option for [`TEMPLATE_MADE_BYTES`].
pub const TEMPLATE_MADE_BYTES_MAX: u64 = 1 << 36;

/// Most items of a list that a chat template makes with `+` or `*`.
pub const TEMPLATE_LIST_ITEMS_MAX: usize = 1 << 20;

/// Widest indentation of one level that `tojson` of a chat template writes, in spaces.
pub const TEMPLATE_INDENT_MAX: i64 = 1000;

/// Deepest nesting of lists and dictionaries that a chat template reads or makes.
pub const TEMPLATE_DATA_DEPTH_MAX: usize = 128;

/// Most rows of a replay buffer.
pub const REPLAY_ROWS_MAX: usize = 1 << 30;

/// Most rows that one call draws from a replay buffer.
pub const REPLAY_SAMPLE_ROWS_MAX: usize = 1 << 24;

/// Most staleness weights of a sampler.
pub const REPLAY_STALENESS_WEIGHTS_MAX: usize = 1 << 16;

/// Most batches that a replay buffer draws ahead.
pub const REPLAY_PREFETCH_MAX: usize = 1 << 10;

/// Default maximum number of bytes that a storage of a replay buffer allocates at its first write.
pub const REPLAY_STORAGE_BYTES_MAX: u64 = 1 << 38;

/// Most times that a write to a replay buffer begins anew because another buffer wrote to its storage first.
pub const REPLAY_WRITE_TRIES_MAX: usize = 1000;

/// Default maximum number of bytes of replies that one operation on a server takes.
pub const STORE_REPLY_BYTES_MAX: usize = 1 << 30;

/// Most processes that write to one memory-mapped storage at a time.
pub const REPLAY_MEMMAP_WRITERS_MAX: usize = 32;

/// Most checks of another process's pending work in a memory-mapped storage, some seconds in all.
pub const REPLAY_MEMMAP_WAITS_MAX: usize = 1 << 22;

/// Deepest nesting of a predicate over trajectories.
pub const REPLAY_PREDICATE_DEPTH_MAX: usize = 32;

/// Most elements of one value that a spec makes: a draw, zeros, an enumeration.
pub const SPEC_ELEMENTS_MAX: usize = 1 << 28;

/// Most values of one choice of a discrete spec; every index below it is exact in a double.
pub const SPEC_VALUES_MAX: i64 = 1 << 53;

/// Deepest nesting of specs in specs.
pub const SPEC_DEPTH_MAX: usize = 32;

/// Longest description that a consolidated file, and longest metadata that a data set, may have, in bytes.
pub const MEMMAP_META_BYTES_MAX: usize = 1 << 24;

/// Longest description that a folder or an archive of memory-mapped leaves may have, in bytes: it has the texts of all rows of a column.
pub const MEMMAP_VALUES_BYTES_MAX: usize = 1 << 28;

/// Longest description of a part of a replay buffer's folder, in bytes.
pub const CHECKPOINT_JSON_BYTES_MAX: u64 = 1 << 28;

/// Most members of an archive of memory-mapped leaves.
pub const ARCHIVE_MEMBERS_MAX: usize = 1 << 20;

/// Most groups and data sets of an HDF5 file, one counted as often as it is reached.
pub const HDF5_OBJECTS_MAX: usize = 1 << 20;

/// Most bytes of the compressed data sets of an HDF5 file for each byte of the file: DEFLATE cannot reach it.
pub const HDF5_EXPANSION_MAX: u64 = 1 << 11;

/// Largest data set of an HDF5 file, in bytes after decompression.
pub const HDF5_SET_BYTES_MAX: u64 = 1 << 36;

/// Largest HDF5 file of a replay buffer's folder, in bytes: all of it is read into memory.
pub const HDF5_FILE_BYTES_MAX: u64 = 1 << 33;

/// Most rollouts of one group, candidates included, and most that are compared to select the best.
pub const GROUP_ROLLOUTS_MAX: usize = 1024;

/// Most groups that wait for more rollouts at once.
pub const PENDING_GROUPS_MAX: usize = 1 << 16;

/// Most subsets of candidates that a selection compares.
pub const SELECTOR_COMBINATIONS_MAX: usize = 10_000_000;

/// Most rows of a durable store.
pub const STORE_ROWS_MAX: u64 = 1 << 32;

/// Largest segment of a durable store, in bytes; no record is longer.
pub const STORE_SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Longest schema text of a durable store, in bytes.
pub const STORE_SCHEMA_BYTES_MAX: usize = 1 << 20;

/// Most records in one group of a durable store.
pub const STORE_GROUP_RECORDS_MAX: u32 = 1 << 16;

/// Most transforms in one list.
pub const TRANSFORMS_MAX: usize = 256;

/// Most elements of one tensor that a transform makes.
pub const TRANSFORM_ELEMENTS_MAX: usize = 1 << 30;

/// Longest side of an image that a transform makes.
pub const TRANSFORM_IMAGE_SIDE_MAX: usize = 1 << 14;

/// Most keys of a map, and most hashes that get numbers.
pub const MAP_KEYS_MAX: usize = 1 << 28;

/// Most paths of a tree of rollouts that one call lists.
pub const TREE_PATHS_MAX: usize = 1 << 20;

/// Most actions of all nodes of all trees of one search.
pub const SEARCH_ACTIONS_MAX: usize = 1 << 28;

/// Most vertices of a tree of rollouts that one picture shows.
pub const TREE_DRAWN_MAX: usize = 1 << 14;

/// Most values of a pickle, and most where shared ones are counted each time.
pub const PICKLE_VALUES_MAX: usize = 1 << 23;

/// Most values of a pickle inside each other.
pub const PICKLE_DEPTH_MAX: usize = 64;

/// Most bytes of one member of an archive of a data set.
pub const MEMBER_BYTES_MAX: u64 = 1 << 30;

/// Most memory that an xz archive may ask for, in KiB: that of its highest preset, and half as much again.
pub const XZ_MEMORY_KIB_MAX: u32 = 96 << 10;

/// Most bytes of the rows of one episode of a data set, without those below `next`.
pub const EPISODE_BYTES_MAX: u64 = 1 << 32;

/// Longest side of an image of a data set, in pixels.
pub const IMAGE_SIDE_MAX: usize = 1 << 14;

/// Most bytes of pixels for each byte of a compressed image: deflate reaches 1,032, and JPEG no more.
pub const IMAGE_EXPANSION_MAX: usize = 1 << 11;
