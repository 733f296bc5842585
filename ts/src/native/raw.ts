/** The raw interface: what the addon and the WebAssembly module offer. `npm run raw` writes this file from the bindings. */

import type { Later, RawOwner } from './raw-owner.js'

/** Functions and classes of both bindings; those of the addon alone are optional. */
export interface Raw extends Partial<RawAddon> {
  readonly ArraysFile: {
    /** Reads a whole archive. */
    read(bytes: Uint8Array, name: string): RawArraysFile
  }
  readonly BinaryToDecimal: {
    /** Makes one from options. */
    create(options: string): RawBinaryToDecimal
  }
  readonly BradleyTerryLoss: {
    /** Reads and checks the options. */
    create(options: string): RawBradleyTerryLoss
  }
  readonly ColumnsFile: {
    /** Reads a whole file. */
    read(bytes: Uint8Array, name: string, options: string): RawColumnsFile
  }
  readonly Conversations: {
    /** Makes no conversations of a renderer, which they share. */
    new (renderer: RawRenderer): RawConversations
  }
  readonly Decoder: {
    /** Makes a decoder with random weights. */
    new (configJson: string, seed: number, dtype: string): RawDecoder
    /** Reads the weights from a safetensors file. */
    fromSafetensors(configJson: string, bytes: Uint8Array, dtype: string): RawDecoder
    /**
     * Reads a Hugging Face folder.
     * Only the addon has it: WebAssembly has no files.
     */
    fromFolder?(path: string, dtype: string): Promise<RawDecoder>
    /** Reads a GGUF file. */
    fromGguf(bytes: Uint8Array, dtype: string): Later<RawDecoder>
  }
  readonly DecodeStream: {
    /** Returns an empty stream. */
    new (tokenizer: RawTokenizer, skipSpecial: boolean): RawDecodeStream
  }
  readonly DistillationLoss: {
    /** Reads and checks the options. */
    create(options: string): RawDistillationLoss
  }
  readonly DpoLoss: {
    /** Reads and checks the options. */
    create(options: string): RawDpoLoss
  }
  readonly Engine: {
    /** Checks the options. */
    new (decoder: RawDecoder, optionsJson: string): RawEngine
  }
  readonly EpisodesFile: {
    /** Reads a `main_data.hdf5` and the text of its `metadata.json`. */
    read(bytes: Uint8Array, name: string, metadata: string): RawEpisodesFile
  }
  readonly EpisodesWriter: {
    /** Takes the steps. */
    of(steps: RawTensorDict): RawEpisodesWriter
  }
  readonly GroupQueues: {
    /** Makes empty queues. */
    create(options: string): RawGroupQueues
  }
  readonly GrpoLoss: {
    /** Reads and checks the options. */
    create(options: string): RawGrpoLoss
  }
  readonly HashToInt: {
    /** Makes an empty one. */
    create(maxSize: number): RawHashToInt
    /** Makes one with known hashes. */
    fromHashes(hashes: RawTensor, maxSize: number): RawHashToInt
  }
  readonly Hdf5File: {
    /** Reads a whole file. */
    read(bytes: Uint8Array): RawHdf5File
    /** Makes a file of a dictionary. */
    of(dict: RawTensorDict): RawHdf5File
  }
  readonly Hindsight: {
    /** Makes a relabeller for an empty buffer. */
    create(buffer: RawReplayBuffer, options: string, seed: number): RawHindsight
  }
  readonly History: {
    /** Reads so many packed messages, or JSON. */
    new (messages: string, numPacked?: number | null | undefined): RawHistory
    /** Returns the messages of a rendered text. */
    fromText(
      text: string,
      template?: string | null | undefined,
      eosToken?: string | null | undefined,
    ): RawHistory
    /** Returns the example of a shape. */
    zero(shape: Float64Array): RawHistory
  }
  readonly KlController: {
    /** Starts at `coefficient`. */
    create(coefficient: number, target: number, horizon: number): RawKlController
  }
  readonly KtoLoss: {
    /** Reads and checks the options. */
    create(options: string): RawKtoLoss
  }
  readonly Ledger: {
    /** Returns an empty ledger. */
    new (): RawLedger
    /** Reads the JSON form. */
    fromJson(text: string): RawLedger
    /** Reads the binary form. */
    fromBytes(bytes: Uint8Array): RawLedger
  }
  readonly Mailbox: {
    /** Makes an empty mailbox. */
    empty(): RawMailbox
  }
  readonly MctsForest: {
    /** Makes an empty forest. */
    create(options: string): RawMctsForest
  }
  readonly MctsScore: {
    /** Makes one from options. */
    create(options: string, keys: string): RawMctsScore
  }
  readonly Optimizer: {
    /** Makes an optimiser with zero moments; `name` is its rule. */
    new (decoder: RawDecoder, name: string, optionsJson: string): RawOptimizer
    /** Reads the moments from a safetensors file. */
    fromSafetensors(decoder: RawDecoder, name: string, optionsJson: string, bytes: Uint8Array): RawOptimizer
  }
  readonly PackPlan: {
    /** Packs sequences into rows of `capacity` tokens. */
    pack(lengths: Uint32Array, capacity: number, strategyJson?: string | null | undefined): RawPackPlan
    /** Distributes items over workers. */
    balance(costs: Float64Array, numWorkers: number): RawPackPlan
  }
  readonly PanicProbe: {
    /** Panics if `now`. */
    new (now: boolean): RawPanicProbe
  }
  readonly ParameterScheduler: {
    /** Makes the scheduler that options describe. */
    create(options: string): RawParameterScheduler
  }
  readonly PriorityTree: {
    /** Makes a tree for `capacity` rows. */
    create(capacity: number): RawPriorityTree
  }
  readonly Ragged: {
    /** Shares `values`. */
    fromValues(values: RawTensor, offsets: Uint32Array): RawRagged
  }
  readonly RandomProjectionHash: {
    /** Makes one whose matrix is drawn. */
    create(options: string): RawRandomProjectionHash
    /** Makes one with a matrix. */
    withMatrix(matrix: RawTensor, options: string): RawRandomProjectionHash
  }
  readonly RateLimiter: {
    /** Makes a limiter with counts of 0. */
    create(options: string): RawRateLimiter
  }
  readonly Renderer: {
    /** Makes the renderer of a configuration; it shares the tokenizer. */
    new (tokenizer: RawTokenizer, config: string): RawRenderer
  }
  readonly ReplayBatch: {
    /** Makes an empty batch: memory to draw into. */
    empty(): RawReplayBatch
  }
  readonly ReplayBuffer: {
    /** Makes a buffer over a storage. */
    create(storage: RawStorage, options: string): RawReplayBuffer
  }
  readonly ReplayBufferList: {
    /** Makes an empty list. */
    empty(): RawReplayBufferList
  }
  readonly ReplayState: {
    /** Takes the states of the parts, as JSON, every item, and the prefetched batches. */
    of(parts: string, items: RawTensorDictList, ahead: RawTensorDictList): RawReplayState
  }
  readonly Rng: {
    /** Returns the stream 0 of `seed`. */
    new (seed: number): RawRng
    /** Returns the generator that continues from `[key, stream, wordIndex]`. */
    fromState(state: BigUint64Array): RawRng
  }
  readonly SafetensorsFile: {
    /** Makes an empty file; a JSON object gives the texts of the header. */
    empty(metadata: string): RawSafetensorsFile
    /** Reads a whole file. */
    read(bytes: Uint8Array): RawSafetensorsFile
  }
  readonly Search: {
    /** Makes trees of their roots. */
    create(
      logits: Float32Array,
      values: Float32Array,
      invalid: Uint8Array,
      gumbel: Float32Array,
      options: string,
    ): RawSearch
    /** Makes trees of parts of earlier ones. */
    reuse(
      earlier: RawSearch,
      actions: Uint32Array,
      logits: Float32Array,
      values: Float32Array,
      invalid: Uint8Array,
      gumbel: Float32Array,
      options: string,
    ): RawSearch
  }
  readonly SftLoss: {
    /** Reads and checks the options. */
    create(options: string): RawSftLoss
  }
  readonly SipHash: {
    /** Makes one from options. */
    create(options: string): RawSipHash
  }
  readonly SpecValue: {
    /** Wraps a tensor. */
    fromTensor(tensor: RawTensor): RawSpecValue
    /** Wraps rows. */
    fromRagged(ragged: RawRagged): RawSpecValue
    /** Wraps a dictionary. */
    fromDict(dict: RawTensorDict): RawSpecValue
    /** Wraps one JSON value. */
    fromShared(value: string): RawSpecValue
    /** Wraps one JSON value for each element of a batch. */
    fromEach(shape: Float64Array, values: string): RawSpecValue
  }
  readonly Steps: {
    /** Takes columns whose shape is their batch size. `timeDim` is the time dimension; it defaults to the last but one. */
    create(columns: RawTensorDict, timeDim?: number | null | undefined): RawSteps
  }
  readonly Storage: {
    /** Makes the storage that options describe. */
    create(options: string): RawStorage
    /** Makes a storage over the rows of a dictionary. */
    over(dict: RawTensorDict): RawStorage
  }
  readonly StreamPacker: {
    /** A packer without sequences. */
    create(capacity: number, maxOpen: number): RawStreamPacker
  }
  readonly TableModel: {
    /** Makes one of its columns. */
    create(
      next: RawTensor,
      reward: RawTensor,
      discount: RawTensor,
      logits: RawTensor,
      value: RawTensor,
    ): RawTableModel
  }
  readonly TedKeys: {
    /** Makes one from options. */
    create(options: string): RawTedKeys
  }
  readonly Template: {
    /** Compiles a source; JSON text gives the limits of a rendering. */
    new (source: string, limits: string): RawTemplate
  }
  readonly TemplateRegistry: {
    /** Makes a registry of the built-in templates. */
    new (): RawTemplateRegistry
  }
  readonly Tensor: {
    /** Copies little-endian bytes. */
    fromBytes(dtype: string, shape: Float64Array, bytes: Uint8Array): RawTensor
    /** Makes a tensor of zeros. */
    zeros(dtype: string, shape: Float64Array): RawTensor
  }
  readonly TensorDict: {
    /** Makes an empty dictionary. */
    empty(batchSize: Float64Array): RawTensorDict
    /** Reads a folder of memory-mapped leaves. */
    loadMemmap(path: string): RawTensorDict
    /** Reads an archive of memory-mapped leaves. */
    readArchive(bytes: Uint8Array): RawTensorDict
    /** Reads a consolidated file. */
    readConsolidated(bytes: Uint8Array): RawTensorDict
  }
  readonly TensorDictList: {
    /** Makes an empty list. */
    empty(): RawTensorDictList
  }
  readonly TensorDictMap: {
    /** Makes an empty map. */
    create(keys: string, options: string): RawTensorDictMap
  }
  readonly TensorList: {
    /** Makes an empty list. */
    empty(): RawTensorList
  }
  readonly TensorSpec: {
    /** Reads a spec from JSON. */
    fromJson(json: string): RawTensorSpec
    /** Makes the unbounded spec of a dictionary. */
    fromDict(dict: RawTensorDict, unsqueezeNullShapes: boolean, dynamicShape: boolean): RawTensorSpec
  }
  readonly TensorSpecList: {
    /** Makes an empty list. */
    empty(): RawTensorSpecList
  }
  readonly Tokenizer: {
    /** Returns a `CharTokenizer` of these options. */
    characters(options: string): RawTokenizer
    /** Reads the JSON form of a `CharTokenizer`. */
    charactersFromJson(text: string): RawTokenizer
    /** Reads an `HfTokenizer` from a `tokenizer.json` and, as JSON, the other files of its folder. */
    huggingFace(tokenizer: string, files: string): RawTokenizer
    /** Reads a `TiktokenTokenizer` from a file of ranks and, as JSON, `[name, id]` of its special tokens. */
    tiktoken(ranks: Uint8Array, pattern: string, special: string): RawTokenizer
    /** Reads the JSON form of a `TiktokenTokenizer`. */
    tiktokenFromJson(text: string): RawTokenizer
    /** Trains a byte-level BPE with `train_byte_bpe`; returns its `tokenizer.json`. */
    trainByteBpe(texts: string[], vocabSize: number, special: string[]): string
    /** Converts offsets to another unit. */
    offsetsIn(text: string, offsets: Uint32Array, unit: string): Uint32Array
  }
  readonly TopKQueues: {
    /** Makes empty queues. */
    create(options: string): RawTopKQueues
  }
  readonly Trajectories: {
    /** Finds trajectories by flags of their last steps, `[T, lanes]`. */
    ofEnds(
      ends: Float64Array,
      numLanes: number,
      isFull: boolean,
      newest?: number | null | undefined,
    ): RawTrajectories
    /** Finds trajectories by ids, `[T, lanes]`. */
    ofIds(
      ids: Float64Array,
      numLanes: number,
      isFull: boolean,
      newest?: number | null | undefined,
    ): RawTrajectories
  }
  readonly TrajectorySplit: {
    /** Makes one from options. */
    create(options: string): RawTrajectorySplit
  }
  readonly Transforms: {
    /** Reads the transforms from a JSON array. */
    create(transforms: string): RawTransforms
  }
  readonly UnpaddedTokenBatch: {
    /** Removes the padding; empty `positions` count from each row's first token. */
    create(
      ids: Uint32Array,
      attentionMask: Uint8Array,
      mask: Uint8Array,
      positions: Uint32Array,
      width: number,
    ): RawUnpaddedTokenBatch
  }
  /** Returns a buffer whose sampler, writer or both are written in JavaScript. */
  bufferOfParts(
    storage: RawStorage,
    options: string,
    mailbox: RawMailbox,
    ownSampler: boolean,
    ownWriter: boolean,
    answer: (operation: string, numbers: Float64Array) => void,
  ): RawReplayBuffer
  /** Returns a piece of content, checked. */
  contentBase(piece: string): string
  /** Returns a description of this build and of the machine, as JSON. */
  describe(): string
  /** Returns the distribution that `drawToken` draws from. */
  drawProbabilities(
    optionsJson: string,
    logits: Float32Array,
    promptIds?: Uint32Array | null | undefined,
    outputIds?: Uint32Array | null | undefined,
    allowed?: Uint32Array | null | undefined,
  ): Float64Array
  /** Draws token number `drawIndex` of the request with `seed`. */
  drawToken(
    optionsJson: string,
    logits: Float32Array,
    promptIds: Uint32Array | null | undefined,
    outputIds: Uint32Array | null | undefined,
    allowed: Uint32Array | null | undefined,
    seed: number,
    drawIndex: number,
  ): RawDraw
  /** Returns every code that a native error can carry. */
  errorCodes(): string[]
  /** Returns a storage that is written in JavaScript. */
  foreignStorage(
    capacity: number,
    mailbox: RawMailbox,
    answer: (operation: string, numbers: Float64Array) => void,
  ): RawStorage
  /**
   * Returns the tokenizer of a GGUF file: `tokenizer.json`, `tokenizer_config.json` and, if there is one,
   * `chat_template.jinja`.
   */
  ggufTokenizer(bytes: Uint8Array): string[]
  /** Returns the GPUs of this machine, as JSON. */
  gpus(): string
  /** Compares each reward with those of its group. */
  groupAdvantage(
    optionsJson: string,
    reward: Float64Array,
    scored?: Uint8Array | null | undefined,
    groupSize?: number | null | undefined,
    groupOffsets?: Uint32Array | null | undefined,
  ): RawGroupAdvantage
  /** Returns the gradients by hidden states, then weights, then bias. */
  headBackward(
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | null | undefined,
    width: number,
    ids: Uint32Array,
    temperature: number,
    gradients: Float32Array,
    device: string,
  ): Float32Array
  /** Returns `[2 N]` or `[3 N]`: the same for hidden states and a linear head. */
  headLogProbs(
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | null | undefined,
    width: number,
    ids: Uint32Array,
    temperature: number,
    device: string,
    withSquares: boolean,
  ): Float32Array
  /** Returns `[T]`, the factor of each token under one importance correction. */
  importanceWeights(
    optionsJson: string,
    oldLogProb: Float32Array,
    samplerLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
    device: string,
  ): Float64Array
  /** Estimates a KL divergence. */
  klEstimate(
    estimatorJson: string | null | undefined,
    logProb: Float32Array,
    refLogProb: Float32Array,
    mask: Uint8Array,
    device: string,
  ): RawKlEstimate
  /** Returns `[2 T]`: KL estimates, then rewards minus these. */
  klReward(
    optionsJson: string,
    logProb: Float32Array,
    refLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
    reward: Float32Array,
  ): Float32Array
  /** Returns the advantages of rollouts with several rewards. */
  multiRewardAdvantage(
    optionsJson: string,
    aggregationJson: string,
    reward: Float64Array,
    scored: Uint8Array | null | undefined,
    weights: Float64Array,
    groupSize?: number | null | undefined,
    groupOffsets?: Uint32Array | null | undefined,
  ): RawGroupAdvantage
  /** Returns the device of this name on this machine. */
  placeDevice(name: string): string
  /** Returns the learning rate of step `step` of `num_steps`. */
  scheduledRate(scheduleJson: string, step: number, numSteps: number): number
  /** Returns the indices of the chosen candidates as JSON, or null. */
  selectRollouts(optionsJson: string, returns: Float64Array, groupSize: number, boundsJson: string): string
  /** Returns `[2 N]` or `[3 N]`: log-probabilities of ids under rows of logits, entropies, and logarithms of sums of squared probabilities. */
  tokenLogProbs(
    logits: Float32Array,
    ids: Uint32Array,
    temperature: number,
    device: string,
    withSquares: boolean,
  ): Float32Array
  /** Returns `[N, V]`, the gradient by logits, given those by log-probabilities and, after them, by entropies. */
  tokenLogProbsBackward(
    logits: Float32Array,
    ids: Uint32Array,
    temperature: number,
    gradients: Float32Array,
    device: string,
  ): Float32Array
  /** Returns the mask that allows some of `vocabSize` tokens. */
  tokenMask(vocabSize: number, ids: Uint32Array): Uint32Array
  /** Returns the masks of rendered tokens. */
  tokenMasks(rendered: RawRendered, stopIds: Uint32Array, options: string): RawTokenMasks
}

/** Functions and classes that only the addon has. */
export interface RawAddon {
  /** Only the addon has it: WebAssembly has no files. */
  readonly DurableStorage: {
    /** Opens or creates the folder. The interval of syncs is in milliseconds: 0 syncs every write, null never. */
    open(
      path: string,
      shape: Float64Array,
      intervalMs?: number | null | undefined,
      segmentBytes?: number | null | undefined,
    ): RawDurableStorage
  }
  /** Only the addon has it: WebAssembly has no files. */
  readonly LazyMemmapStorage: {
    /** Opens the folder that options name, which is made at the first write. */
    open(shape: Float64Array, options: string): RawLazyMemmapStorage
  }
  /** Only the addon has it: WebAssembly has no files. */
  readonly RowsFolder: {
    /** Opens the folder; columns of more bytes stay in their files. */
    open(folder: string, columnBytesMax: number): RawRowsFolder
  }
  /** Only the addon has it: WebAssembly has no files. */
  readonly SplitsFolder: {
    /** Opens the folder of the splits. */
    open(folder: string): RawSplitsFolder
  }
  /**
   * Returns another handle to the buffer that was shared as `id`.
   * Only the addon has it: WebAssembly has one thread.
   */
  attachReplayBuffer(id: string): RawReplayBuffer
  /**
   * Converts a D4RL file to a folder of steps.
   * Only the addon has it: WebAssembly has no files.
   */
  convertColumns(source: string, folder: string, options: string): Promise<unknown>
  /**
   * Converts the folder of a Minari data set to a folder of steps.
   * Only the addon has it: WebAssembly has no files.
   */
  convertEpisodes(source: string, folder: string, split: boolean): Promise<unknown>
  /**
   * Converts a folder of V-D4RL's files to a folder of steps, and returns how many files were cut.
   * Only the addon has it: WebAssembly has no files.
   */
  convertFrames(source: string, folder: string, split: boolean, options: string): Promise<unknown>
  /**
   * Converts an archive of Gen-DGRL to a folder of steps.
   * Only the addon has it: WebAssembly has no files.
   */
  convertGenDgrl(source: string, folder: string, options: string): Promise<unknown>
  /**
   * Converts files of Open X-Embodiment to a folder of steps.
   * Only the addon has it: WebAssembly has no files.
   */
  convertOpenx(sources: string[], folder: string): Promise<unknown>
  /**
   * Converts the files of a split of Atari DQN replay to a folder of steps, and returns how many there are.
   * Only the addon has it: WebAssembly has no files.
   */
  convertSplit(source: string, split: number, id: string, folder: string): Promise<unknown>
  /**
   * Converts an ARFF file of OpenML to a folder of rows.
   * Only the addon has it: WebAssembly has no files.
   */
  convertTable(source: string, folder: string, id: string, options: string): Promise<unknown>
  /**
   * Converts a folder of RoboSet's files to a folder of steps.
   * Only the addon has it: WebAssembly has no files.
   */
  convertTrials(source: string, folder: string, split: boolean): Promise<unknown>
  /**
   * Copies the prefetched batches, off the event loop.
   * Only the addon has it: WebAssembly has one thread.
   */
  copyAhead(buffer: RawReplayBuffer): Promise<void>
  /**
   * Copies a drawn batch, off the event loop.
   * Only the addon has it: WebAssembly has one thread.
   */
  copyBatch(pending: RawPendingBatch): Promise<void>
  /**
   * Writes a buffer as a folder.
   * Only the addon has it: WebAssembly has no files.
   */
  dumpReplayBuffer(buffer: RawReplayBuffer, path: string, checkpointer: string): void
  /**
   * Writes an ensemble as a folder, each of its storages in the form of `member`.
   * Only the addon has it: WebAssembly has no files.
   */
  dumpReplayBufferEnsemble(ensemble: RawReplayBufferEnsemble, path: string, member: string): void
  /**
   * Reads a buffer's folder into one of the same parts.
   * Only the addon has it: WebAssembly has no files.
   */
  loadReplayBuffer(buffer: RawReplayBuffer, path: string, checkpointer: string): void
  /**
   * Reads an ensemble's folder into one of the same parts.
   * Only the addon has it: WebAssembly has no files.
   */
  loadReplayBufferEnsemble(ensemble: RawReplayBufferEnsemble, path: string, member: string): void
  /**
   * Reads the episode at a position of a file of Open X-Embodiment; null behind the last.
   * Only the addon has it: WebAssembly has no files.
   */
  readOpenxEpisode(
    path: string,
    start: number,
    number: number,
  ): Promise<RawStreamedEpisode | null | undefined>
  /**
   * Lets other threads attach to a buffer by `id`; returns the id, which is the earlier one if the buffer was shared before.
   * Only the addon has it: WebAssembly has one thread.
   */
  shareReplayBuffer(buffer: RawReplayBuffer, id: string): string
  /**
   * Returns a storage with rows on a server.
   * Only the addon has it: WebAssembly has no sockets.
   */
  storeStorage(shape: Float64Array, options: string): RawStorage
}

/** The arrays of an `.npz` archive. */
export interface RawArraysFile extends RawOwner {
  /** Returns the arrays by their names. */
  arrays(): RawTensorDict
}

/** Binary digits to numbers. */
export interface RawBinaryToDecimal extends RawOwner {
  /** Returns a number for each row. */
  forward(features: RawTensor): RawTensor
}

/** The Bradley-Terry loss of pairs of rewards. */
export interface RawBradleyTerryLoss extends RawOwner {
  /** Computes the loss of a batch; without `offsets` each entry is a pair. */
  forward(
    chosen: Float32Array,
    rejected: Float32Array,
    margin?: Float32Array | null | undefined,
    offsets?: Uint32Array | null | undefined,
  ): RawRewardLossOutput
}

/** The content of a D4RL file. */
export interface RawColumnsFile extends RawOwner {
  /** Returns the transitions. */
  steps(): RawTensorDict
  /** Returns the metadata. */
  metadata(): RawTensorDict
}

/** The conversations of `fulmar_chat::Conversations`. */
export interface RawConversations extends RawOwner {
  /** Opens a conversation without tokens; returns its key. */
  open(tools: string): number
  /** Closes a conversation. */
  close(key: number): void
  /** Replaces the prompt, see `Rendered::to_words`. */
  start(key: number, messages: string, numPacked?: number | null | undefined): Uint32Array
  /**
   * Runs the steps in the first `num_words` of `words`, see `fulmar_chat::Conversations::run`. The words of the answers take
   * their place, after their number, if they fit: making an array here costs more than in JavaScript.
   */
  run(
    words: Uint32Array,
    numWords: number,
    floats: Float32Array | null | undefined,
    packed: string,
    numRecords: number,
  ): RawAnswers
  /** Returns the ledger of a conversation, which begins an empty one. */
  takeLedger(key: number): RawLedger
}

/** The decoder of `fulmar_model::Decoder`. */
export interface RawDecoder extends RawOwner {
  /** Returns a copy with a new scalar head. */
  withScalarHead(headJson: string, seed: number): Later<RawDecoder>
  /** Computes the head's values at masked tokens. */
  values(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
  ): Later<Float32Array>
  /** Computes the same, and keeps the activations for `backwardValues`. */
  forwardValues(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
  ): Later<Float32Array>
  /** Adds to the gradients. */
  backwardValues(gradValue: Float32Array): Later<void>
  /**
   * Returns `[3 T]`: log-probs of masked tokens, entropies, and logarithms of sums of squared probabilities; keeps the activations for
   * `backward`.
   */
  forwardWithSquares(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
  ): Later<Float32Array>
  /** Sets whether backward passes recompute activations. */
  recomputeActivations(recomputes: boolean): Later<void>
  /** Returns the bytes of the last forward pass and its workspace. */
  traceBytes(): number
  /** Returns the number of rows of the last forward pass that an engine had kept. */
  numKeptRows(): number
  /** Returns the operations of a forward pass over one sequence. */
  flops(length: number): number
  /** Moves the decoder to a device. */
  moveTo(device: string): void
  /** Computes products in a precision. */
  multiplyIn(precision: string): void
  /** Returns the precision of products. */
  matmulPrecision(): string
  /** Returns a copy of the weights and the adapter. */
  snapshot(): Later<RawDecoder>
  /**
   * Writes a Hugging Face folder.
   * Only the addon has it: WebAssembly has no files.
   */
  saveFolder?(path: string): Promise<void>
  /**
   * Writes the adapter as PEFT's folder.
   * Only the addon has it: WebAssembly has no files.
   */
  saveAdapter?(path: string): Promise<void>
  /**
   * Loads an adapter from PEFT's folder; returns the number of trained weights.
   * Only the addon has it: WebAssembly has no files.
   */
  loadAdapter?(path: string): Promise<number>
  /** Returns the names of the files of its folder without those of weights. */
  folderFileNames(): Later<string[]>
  /** Returns one of these files. */
  folderFile(name: string): Later<Uint8Array>
  /** Adds a file to its folder. */
  setExtraFile(name: string, bytes: Uint8Array): void
  /** Returns the number of weights that the adapter trains; `None` without an adapter. */
  numLoraParameters(): number | null | undefined
  /** Computes log-probs of masked tokens without the adapter. */
  scoreBase(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
  ): Later<RawScores>
  /** Adds a new adapter to frozen weights; returns the number of trained weights. */
  addLora(configJson: string, seed: number): Later<number>
  /** Loads an adapter from PEFT's files; returns the number of trained weights. */
  loadLora(configJson: string, bytes: Uint8Array): Later<number>
  /** Merges the adapter into the weights. */
  mergeLora(): Later<void>
  /** Returns the adapter as a safetensors file. */
  loraToSafetensors(): Later<Uint8Array>
  /** Returns the adapter's shape as PEFT's file. */
  loraConfigJson(): Later<string>
  /** Returns the shape. */
  configJson(): string
  /** Returns the dtype of the weights. */
  dtype(): string
  /** Returns the number of weights. */
  numParameters(): number
  /** Returns the weights as a safetensors file. */
  toSafetensors(): Later<Uint8Array>
  /** Computes log-probs of masked tokens, with the likeliest ids at each. */
  score(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
    topK?: number | null | undefined,
  ): Later<RawScores>
  /** Computes log-probs of masked tokens, and keeps the activations for `backward`. */
  forward(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array | null | undefined,
  ): Later<RawScores>
  /** Adds to the gradients. */
  backward(gradLogProb: Float32Array, gradEntropy?: Float32Array | null | undefined): Later<void>
}

/** Decodes one token at a time. */
export interface RawDecodeStream extends RawOwner {
  /** Returns the text that an id completes. */
  push(id: number): string
  /** Returns the text that is still held back. */
  finish(): string
}

/** The loss of distillation from a teacher's log-probabilities. */
export interface RawDistillationLoss extends RawOwner {
  /** Computes the loss of a batch. */
  forward(
    logProb: Float32Array,
    teacherLogProb: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

/** The DPO loss of pairs of answers. */
export interface RawDpoLoss extends RawOwner {
  /** Computes the loss of a batch. */
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array,
    logSumSqProb: Float32Array | null | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

/**
 * A storage in a folder, durable across crashes.
 * Only the addon has it: WebAssembly has no files.
 */
export interface RawDurableStorage extends RawOwner {
  /** Returns the storage that buffers share. */
  storage(): RawStorage
  /** Acknowledges all writes so far, as the durability specifies. */
  commit(): void
  /** Sets the current time. */
  tick(nowMs: number): void
  /** Makes everything durable and records the end of the rows. */
  sync(): void
  /** Returns the rows that damaged files lost. */
  damagedRows(): Float64Array
  /** Returns the statistics, as JSON. */
  stats(): string
}

/** The engine of `fulmar_model::Engine`. */
export interface RawEngine extends RawOwner {
  /** Adds a request to the queue; returns its id. */
  add(promptIds: Uint32Array, seed: number, paramsJson: string): number
  /** Aborts a request; returns whether it was still running. */
  abort(request: number): boolean
  /** Runs some steps; returns the number of unfinished requests. */
  turn(): Later<number>
  /** Returns the tokens and the finished requests since the last call. */
  outputs(): RawEngineOutputs
  /** Returns the number of free pages. */
  numFreePages(): number
}

/** A batch of several buffers. */
export interface RawEnsembleBatch extends RawOwner {
  /** Returns the items. */
  items(): RawTensorDict
  /** Returns the buffer of each part. */
  bufferIds(): Float64Array
  /** Returns one part. */
  part(at: number): RawReplayBatch
}

/** The content of a Minari data set. */
export interface RawEpisodesFile extends RawOwner {
  /** Returns the steps. */
  steps(): RawTensorDict
  /** Returns the metadata as JSON. */
  metadata(): string
}

/** The steps of a Minari data set that is written. */
export interface RawEpisodesWriter extends RawOwner {
  /** Returns the bytes of a `main_data.hdf5`. */
  bytes(): Uint8Array
  /** Returns the number of episodes. */
  numEpisodes(): number
}

/** Queues of rollouts, each until its group is complete. */
export interface RawGroupQueues extends RawOwner {
  /** Adds a rollout; returns `[ticket, { tickets, advantages, released }]`. */
  push(group: string, rewards: Float64Array): string
  /** Adds a rollout without selecting any; returns its ticket. */
  enqueue(group: string, rewards: Float64Array): number
  /** Returns the returns of a group that is ready for selection, or null. */
  candidates(group: string): string
  /** Releases the chosen rollouts, a list of indices or null; returns `{ tickets, advantages, released }`. */
  settle(group: string, chosen: string): string
  /** Returns the counts. */
  stats(): string
  /** Resets the counts to 0. */
  resetStats(): void
  /** Empties the queues; returns the tickets of their rollouts. */
  clearQueues(): string
  /** Removes the oldest group; returns the tickets of its rollouts. */
  evictOldest(): string
  /** Returns the state for a restart. */
  state(): string
  /** Restores a state. */
  loadState(state: string): void
}

/** A policy gradient loss. */
export interface RawGrpoLoss extends RawOwner {
  /** Computes the loss of a batch. */
  forward(
    logProb: Float32Array,
    oldLogProb: Float32Array,
    refLogProb: Float32Array | null | undefined,
    samplerLogProb: Float32Array | null | undefined,
    entropy: Float32Array | null | undefined,
    advantage: Float32Array,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

/** Numbers of hashes. */
export interface RawHashToInt extends RawOwner {
  /** Returns the number of each hash. */
  forward(hashes: RawTensor, extend: boolean): RawTensor
  /** Returns the known hashes. */
  hashes(): RawTensor
  /** Returns their number. */
  count(): number
}

/** The content of an HDF5 file. */
export interface RawHdf5File extends RawOwner {
  /** Returns the dictionary. */
  dict(): RawTensorDict
  /** Returns the bytes of the file. */
  bytes(): Uint8Array
}

/** Relabels the batches of a buffer with achieved goals. */
export interface RawHindsight extends RawOwner {
  /** Checks that items have the flags of the ends of episodes. */
  check(items: RawTensorDict): void
  /** Records items that were written. */
  extend(rows: Float64Array, items: RawTensorDict): void
  /** Writes other goals to the first rows of a batch; returns their number. */
  relabel(buffer: RawReplayBuffer, batch: RawReplayBatch): number
  /** Writes the rewards of relabelled rows. */
  setRewards(batch: RawReplayBatch, count: number, rewards: RawTensor): void
  /** Clears every row. */
  clear(): void
}

/** Messages of `fulmar_chat::History`. */
export interface RawHistory extends RawOwner {
  /** Returns the length of each dimension, -1 where rows differ. */
  shape(): Int32Array
  /** Returns the dictionaries as JSON. */
  toJson(): string
  /** Returns a history with the same messages. */
  copy(): RawHistory
  /** Returns a part of the first dimension. */
  at(index: number): RawHistory
  /** Returns a range of the first dimension. */
  slice(start: number, end: number): RawHistory
  /** Returns a view with a new dimension of length 1. */
  unsqueeze(dim: number): RawHistory
  /** Returns the padded view. */
  padded(): RawHistory
  /** Returns the history without padding. */
  unpadded(): RawHistory
  /** Adds one part, in place. */
  append(dim: number, item: RawHistory): void
  /** Joins parts, in place. */
  extend(dim: number, items: RawHistory): void
  /** Returns the text of each conversation. */
  render(template: RawTemplate, options: string): string[]
  /** Returns the ids of each conversation, and its mask. */
  encode(template: RawTemplate, tokenizer: RawTokenizer, options: string): RawEncodedChats
}

/** A KL coefficient that adapts to the measured divergence. */
export interface RawKlController extends RawOwner {
  /** Returns the coefficient in use. */
  coefficient(): number
  /** Returns the coefficient after these divergences. */
  update(kl: Float64Array): number
}

/** The KTO loss of single answers. */
export interface RawKtoLoss extends RawOwner {
  /** Computes the loss of a batch; `desirable` holds 1 for each sequence that is desirable, else 0. */
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array,
    desirable: Uint8Array,
    klLogRatio: Float32Array | null | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

/**
 * A storage in memory-mapped files that processes share.
 * Only the addon has it: WebAssembly has no files.
 */
export interface RawLazyMemmapStorage extends RawOwner {
  /** Returns the storage that buffers share. */
  storage(): RawStorage
  /** Returns the folder. */
  path(): string
  /** Removes the folder; returns whether it existed. */
  cleanup(): boolean
}

/** A lazy stack of dictionaries. */
export interface RawLazyStack extends RawOwner {
  /** Returns the stack dimension. */
  dim(): number
  /** Returns the batch dimensions, -1 where lengths differ. */
  batchSize(): Float64Array
  /** Returns the keys of the entries that all have. */
  names(): string
  /** Returns the keys of the leaves that all have. */
  leafKeys(): string
  /** Returns the dictionaries. */
  parts(): RawTensorDictList
  /** Returns the part at an index. */
  at(index: string): RawStacked
  /** Returns the tensors at a path as rows. */
  ragged(path: string[]): RawRagged
  /** Returns the tensors at a path, padded. */
  padded(path: string[], side: string, fill: number): RawTensor
  /** Distributes the entry "" of a dictionary over the parts."# */
  set(path: string[], holder: RawTensorDict): void
  /** Writes over one part. */
  setPart(at: number, item: RawTensorDict): void
  /** Puts a part before another. */
  insert(at: number, part: RawTensorDict): void
  /** Returns a stack of the parts of both. */
  cat(other: RawLazyStack): RawLazyStack
  /** Stacks two lazy stacks part by part. */
  stack(other: RawLazyStack): RawLazyStack
  /** Returns only the entries at `keys`. */
  select(keys: string): RawLazyStack
  /** Returns one dense dictionary. */
  dense(): RawTensorDict
  /** Returns one dictionary, ragged where lengths differ. */
  densify(): RawTensorDict
  /** Returns one dense dictionary if shapes allow it, else the stack. */
  maybeDense(): RawStacked
  /** Returns whether parts and dimension are equal. */
  equals(other: RawLazyStack): boolean
}

/** The ledger of `fulmar_chat::Ledger`. */
export interface RawLedger extends RawOwner {
  /** Returns the JSON form. */
  toJson(): string
  /** Returns the binary form. */
  toBytes(): Uint8Array
  /** Records one turn; returns its place, as JSON. Arguments are positional: napi reads an object of arrays ten times as slowly. */
  recordTurn(
    promptIds: Uint32Array,
    completionIds: Uint32Array,
    logProbs: Float32Array,
    sampledLogProbs: Float32Array,
    versions: Uint32Array | null | undefined,
    origins: Uint8Array | null | undefined,
    messageIndices: Int32Array | null | undefined,
    options: string,
  ): string
  /** Returns the number of stored tokens. */
  numTokens(): number
  /** Returns the number of recorded turns. */
  numTurns(): number
  /** Returns the tokens of the last turn's path. */
  pathIds(): Uint32Array
  /** Returns the samples without advantages. */
  samples(): RawSamples
  /** Returns the samples with the rollout's advantage. */
  trainingSamples(advantage?: number | null | undefined): RawSamples
}

/** A mailbox between the core and a part that is written in JavaScript. */
export interface RawMailbox extends RawOwner {
  /** Puts items in. */
  putItems(items: RawTensorDict): void
  /** Takes the items out. */
  takeItems(): RawTensorDict | null | undefined
  /** Puts numbers in. */
  putNumbers(numbers: Float64Array): void
  /** Puts text in. */
  putText(text: string): void
  /** Takes the text out. */
  takeText(): string | null | undefined
}

/** A forest of rollouts. */
export interface RawMctsForest extends RawOwner {
  /** Adds steps; returns the row of the edge of each. */
  extend(rollout: RawTensorDict): Float64Array
  /** Returns the edges of a state. */
  node(root: RawTensorDict): RawTensorDict
  /** Returns action and outcome of a state and an action. */
  child(root: RawTensorDict): RawTensorDict
  /** Reads a tree; a negative depth is no bound. */
  tree(root: RawTensorDict, maxDepth: number, compact: boolean): RawRolloutTree
  /** Returns the number of edges. */
  count(): number
  /** Removes all steps. */
  clear(): void
  /** Returns the content. */
  state(): RawTensorDict
  /** Replaces the content. */
  loadState(state: RawTensorDict): void
}

/** A score of actions. */
export interface RawMctsScore extends RawOwner {
  /** Returns the scores of nodes. */
  forward(node: RawTensorDict): RawTensor
  /** Returns the weights of EXP3. */
  weights(node: RawTensorDict): RawTensor
  /** Returns the weights of EXP3 after a reward. */
  updated(weights: RawTensor, probability: RawTensor, action: number, reward: number): RawTensor
}

/** The optimiser of `fulmar_model::Optimizer`. */
export interface RawOptimizer extends RawOwner {
  /** Updates the decoder's weights. */
  step(learningRate?: number | null | undefined, maxNorm?: number | null | undefined): Later<RawStepReport>
  /** Returns moments and step count as a safetensors file. */
  toSafetensors(): Later<Uint8Array>
}

/** Groups of items: one group for each row, or for each worker. */
export interface RawPackPlan extends RawOwner {
  /** Returns the indices of the items. */
  items(): Uint32Array
  /** Returns the bounds of the groups. */
  offsets(): Uint32Array
}

/** Panics on request: `fulmar doctor` and the tests use it to show that a panic does not end the process. */
export interface RawPanicProbe extends RawOwner {
  /** Panics in a synchronous call. */
  panic(): void
  /** Panics on a worker thread. */
  panicLater(): Later<void>
}

/** A parameter of a sampler on a schedule. */
export interface RawParameterScheduler extends RawOwner {
  /** Takes a step. */
  step(buffer: RawReplayBuffer): void
}

/** A drawn batch, perhaps not copied yet. */
export interface RawPendingBatch extends RawOwner {
  /** Returns whether it was the last of an epoch. */
  isLast(): boolean
  /** Returns whether it is copied. */
  isReady(): boolean
  /** Returns the batch, and copies it first if necessary. */
  batch(): RawReplayBatch
}

/** Sums of priorities over ranges of rows. */
export interface RawPriorityTree extends RawOwner {
  /** Sets the leaves of rows. */
  update(rows: Float64Array, leaves: Float64Array): void
  /** Returns the sum of the leaves of a range of rows. */
  sumIn(start: number, end: number): number
  /** Returns the smallest leaf that is set in a range of rows. */
  minIn(start: number, end: number): number | null | undefined
  /** Returns the first row with the largest leaf, and that leaf; empty if no leaf is set. */
  max(): Float64Array
  /** Returns the leaf of each row; NaN if it is not set. */
  leaves(rows: Float64Array): Float64Array
  /** Returns, for each sum, the first row at which the cumulative sum of the leaves reaches it. */
  lowerBound(sums: Float64Array): Float64Array
  /** Clears every leaf. */
  clear(): void
}

/** Rows of different lengths. */
export interface RawRagged extends RawOwner {
  /** Returns all rows one after another. */
  values(): RawTensor
  /** Returns the offset of each row, and the end of the last one. */
  offsets(): Uint32Array
  /** Returns a view of one row. */
  row(at: number): RawTensor
  /** Returns a view of a range of rows. */
  slice(start: number, end: number): RawRagged
  /** Returns the rows at `at`: a copy. */
  indexSelect(at: Float64Array): RawRagged
  /** Returns a dense copy. */
  toPadded(side: string, fill: number): RawTensor
  /** Returns whether the rows are equal. */
  equals(other: RawRagged): boolean
}

/** SipHash of a random projection of rows. */
export interface RawRandomProjectionHash extends RawOwner {
  /** Returns the hash of each row. */
  forward(rows: RawTensor): RawTensor
  /** Returns the matrix, if there is one yet. */
  matrix(): RawTensor | null | undefined
}

/** A limit of the number of samples per insert. */
export interface RawRateLimiter extends RawOwner {
  /** Counts samples, or refuses them. */
  sample(count: number): void
  /** Counts inserts, or refuses them. */
  insert(count: number): void
  /** Counts deletes. */
  remove(count: number): void
  /** Returns the numbers of inserts, samples and deletes. */
  counts(): Float64Array
}

/** Any `fulmar_chat::Renderer`. */
export interface RawRenderer extends RawOwner {
  /** Returns the tokens of a conversation, see `Rendered::to_words`. */
  render(
    messages: string,
    numPacked: number | null | undefined,
    addGenerationPrompt: boolean,
    tools: string,
  ): Uint32Array
  /** Returns the text of a conversation. */
  renderText(
    messages: string,
    numPacked: number | null | undefined,
    addGenerationPrompt: boolean,
    tools: string,
  ): string
  /** Returns the texts of packed conversations, see `fulmar_chat::render_texts`. */
  renderTexts(packed: string, numRecords: number): RawRenderedTexts
  /** Returns the tokens that the next prompt adds, see `Extension::to_words`, or the name of a refusal. */
  bridge(
    prompt: Uint32Array,
    completion: Uint32Array,
    messages: string,
    numPacked: number | null | undefined,
    tools: string,
  ): Uint32Array | string
  /** Parses a completion, see `Parsed::to_text`. */
  parse(ids: Uint32Array, prompt: Uint32Array | null | undefined, tools: string): string
  /** Returns the constant properties, as JSON. */
  facts(): string
}

/** A batch of drawn items. */
export interface RawReplayBatch extends RawOwner {
  /** Returns the items. */
  items(): RawTensorDict
  /** Returns the items, and leaves none. */
  takeItems(): RawTensorDict
  /** Returns the entries of [`ReplayBatch::info`], and leaves none. */
  takeInfo(): RawTensorDict
  /** Returns the rows of the items. */
  rows(): Float64Array
  /** Returns the entries that sampler and sample unit add for each row. */
  info(): RawTensorDict
}

/** A storage, a writer, a sampler and a sample unit. */
export interface RawReplayBuffer extends RawOwner {
  /** Returns the storage. */
  storage(): RawStorage
  /** Returns the number of rows that can be drawn. */
  count(): number
  /** Returns the statistics, as JSON. */
  stats(): string
  /** Writes one item; returns its row. */
  add(item: RawTensorDict): number
  /** Writes items; returns their rows. */
  extend(items: RawTensorDict, prioritized: boolean): Float64Array
  /** Draws a batch. */
  sample(count?: number | null | undefined): RawReplayBatch
  /** Returns the next batch, from the prefetched ones if there are any. */
  nextBatch(): RawPendingBatch
  /** Draws a batch into the memory of another. */
  sampleInto(count: number | null | undefined, out: RawReplayBatch): void
  /** Returns the batch of given rows. */
  batchOf(rows: Float64Array): RawReplayBatch
  /** Returns items by index. */
  at(at: string): RawTensorDict
  /** Writes over items by index. */
  setAt(at: string, items: RawTensorDict): void
  /** Writes over one leaf of items by index. */
  setKeyAt(path: string[], value: RawTensor, at: string): void
  /** Sets priorities. */
  updatePriority(rows: Float64Array, priorities: Float32Array): void
  /** Sets the priorities that a batch holds. */
  updateTensorDictPriority(batch: RawTensorDict): void
  /** Notifies the sampler of rows that were written directly to the storage. */
  markUpdate(rows: Float64Array): void
  /** Returns how often each row was rewritten. */
  generationsOf(rows: Float64Array): Float64Array
  /**
   * Patches the rows that did not change since they were read; returns which, as JSON. Without a path of a version, none is
   * compared.
   */
  updateIfPresent(
    rows: Float64Array,
    generations: Float64Array,
    patch: RawTensorDict,
    versionPath: string[],
    versions: Float64Array,
    requireNewer: boolean,
  ): string
  /** Writes whole items over rows, as new ones. */
  writeAt(rows: Float64Array, items: RawTensorDict): void
  /** Returns the first items, or all. */
  readAll(end?: number | null | undefined): RawTensorDict
  /** Writes over the first items, or all. */
  writeAll(items: RawTensorDict, end?: number | null | undefined): void
  /** Returns the trajectories that satisfy a predicate; all for JSON `null`. */
  query(predicate: string, trajectories: string): RawTensorDictList
  /** Returns a parameter of the sampler. */
  parameter(name: string): number
  /** Sets a parameter of the sampler. */
  setParameter(name: string, value: number): void
  /** Returns whether the last draw ended an epoch. */
  ranOut(): boolean
  /** Empties every row. */
  clear(keepsCount: boolean): void
  /** Returns the state of the buffer. */
  state(): RawReplayState
  /** Restores a state. */
  restore(state: RawReplayState): void
}

/** Several buffers that are sampled as one. */
export interface RawReplayBufferEnsemble extends RawOwner {
  /** Draws a batch, `[buffers drawn, rows of each]`. */
  sample(count?: number | null | undefined): RawEnsembleBatch
  /** Returns items by index, of every buffer. */
  at(at: string): RawTensorDict
  /** Writes items to the buffers that they name; returns buffer and row of each, concatenated. */
  extend(items: RawTensorDict): Float64Array
}

/** A list of buffers, from which an ensemble is made. */
export interface RawReplayBufferList extends RawOwner {
  /** Appends to the list. */
  push(buffer: RawReplayBuffer): void
  /** Makes an ensemble of the buffers. */
  ensemble(options: string): RawReplayBufferEnsemble
}

/** The state of a buffer. */
export interface RawReplayState extends RawOwner {
  /** Returns the states of the parts, as JSON. */
  parts(): string
  /** Returns every item. */
  items(): RawTensorDictList
  /** Returns the prefetched batches. */
  ahead(): RawTensorDictList
}

/** The generator of `fulmar_core::Rng`. */
export interface RawRng extends RawOwner {
  /** `[key, stream, wordIndex]`. */
  state(): BigUint64Array
  /** Returns the stream called `name`. */
  stream(name: string): RawRng
  /** Returns the stream number `index`. */
  fork(index: number): RawRng
  /** Returns 32 uniform bits. */
  nextU32(): number
  /** Returns a double in `[0, 1)`. */
  uniform(): number
  /** Returns a standard normal double. */
  normal(): number
  /** Returns an integer in `[0, bound)`. */
  below(bound: number): number
  /** Returns the first integer in `[0, bound)` of the stream that `path` leads to. */
  belowAt(path: Float64Array, bound: number): number
  /** Returns the integers `0..count` in a random order. */
  permutation(count: number): Uint32Array
}

/** A tree of rollouts. */
export interface RawRolloutTree extends RawOwner {
  /** Returns the number of vertices. */
  numVertices(): number
  /** Returns children, parents, hash and edges of a vertex, as JSON. */
  vertex(id: number): string
  /** Returns the steps to a vertex. */
  rollout(id: number): RawTensorDict | null | undefined
  /** Returns the last observation of a vertex. */
  nodeData(id: number): RawTensorDict
  /** Returns whether the last step to a vertex ended its episode. */
  isTerminal(id: number): boolean
  /** Returns the steps along a path. */
  rolloutFromPath(path: Float64Array): RawTensorDict | null | undefined
  /** Writes a line for each vertex; without labels their observations. */
  toText(labels: string[]): string
  /** Draws the tree. */
  toSvg(boxes: boolean, labels: string[]): string
}

/**
 * The rows of a folder, of which long columns stay in their files.
 * Only the addon has it: WebAssembly has no files.
 */
export interface RawRowsFolder extends RawOwner {
  /** Returns the storage of a buffer. */
  storage(): RawStorage
}

/** The content of a safetensors file. */
export interface RawSafetensorsFile extends RawOwner {
  /** Returns the names of the tensors. */
  names(): string[]
  /** Returns the tensor called `name`. */
  tensor(name: string): RawTensor
  /** Adds or replaces a tensor. */
  set(name: string, tensor: RawTensor): void
  /** Returns the dtypes of the tensors that were not read, by their names, as a JSON object. */
  unread(): string
  /** Returns the texts of the header, as a JSON object. */
  metadata(): string
  /** Returns the bytes of the file. */
  bytes(): Uint8Array
}

/** A search over many trees. */
export interface RawSearch extends RawOwner {
  /** Returns the earlier node that each node of a tree was. */
  kept(tree: number): Float64Array
  /** Returns the number of simulations that are left. */
  numLeft(): number
  /** Returns the parents, then the actions, then the nodes of the next simulation. */
  select(): Uint32Array
  /** Adds the nodes of the last selection. */
  expand(rewards: Float32Array, discounts: Float32Array, values: Float32Array, logits: Float32Array): void
  /** Runs simulations over a table. `states` are those of the roots. */
  runTable(model: RawTableModel, states: Uint32Array, count: number): void
  /** Chooses the action of each tree. */
  answer(): RawTensorDict
  /** Returns the values and visits of the roots. */
  summary(): RawTensorDict
  /** Returns all nodes. */
  arrays(): RawTensorDict
}

/** The loss of supervised fine-tuning. */
export interface RawSftLoss extends RawOwner {
  /** Computes the loss of a batch. */
  forward(
    logProb: Float32Array,
    refLogProb: Float32Array | null | undefined,
    mask: Uint8Array,
    offsets: Uint32Array,
  ): RawLossOutput
}

/** SipHash-1-3 of rows. */
export interface RawSipHash extends RawOwner {
  /** Returns the hash of each row. */
  forward(rows: RawTensor): RawTensor
}

/** A value of a spec: a tensor, rows, a dictionary or JSON values. */
export interface RawSpecValue extends RawOwner {
  /** Returns the kind of value. */
  kind(): string
  /** Returns the tensor. */
  tensor(): RawTensor | null | undefined
  /** Returns the rows. */
  ragged(): RawRagged | null | undefined
  /** Returns the dictionary. */
  dict(): RawTensorDict | null | undefined
  /** Returns the JSON values. */
  json(): string | null | undefined
}

/**
 * The steps of Atari DQN replay in the folders of their splits.
 * Only the addon has it: WebAssembly has no files.
 */
export interface RawSplitsFolder extends RawOwner {
  /** Returns the storage of a buffer. */
  storage(): RawStorage
  /** Returns the number of terminal steps up to each row. */
  episodes(): Float64Array
  /** Returns the metadata of the splits as JSON. */
  metadata(): string
}

/** A dictionary, or a lazy stack. */
export interface RawStacked extends RawOwner {
  /** Returns whether it is a dictionary. */
  isDict(): boolean
  /** Returns the dictionary. */
  dict(): RawTensorDict
  /** Returns the stack. */
  lazy(): RawLazyStack
}

/** Columns of steps, for estimates of returns and advantages. */
export interface RawSteps extends RawOwner {
  /** Computes generalised advantage estimates. */
  gae(gamma?: number | null | undefined, lambda?: number | null | undefined): RawTensorDict
  /** Computes V-trace advantages. */
  vtrace(gamma: number | null | undefined, options: string): RawTensorDict
  /** Computes returns over one step. */
  td0Return(gamma?: number | null | undefined): RawTensor
  /** Computes advantages over one step. */
  td0Advantage(gamma?: number | null | undefined): RawTensor
  /** Computes returns to the end. */
  td1Return(gamma?: number | null | undefined, rolling?: boolean | null | undefined): RawTensor
  /** Computes advantages to the end. */
  td1Advantage(gamma?: number | null | undefined, rolling?: boolean | null | undefined): RawTensor
  /** Computes returns over all lengths. */
  tdLambdaReturn(
    gamma?: number | null | undefined,
    lambda?: number | null | undefined,
    rolling?: boolean | null | undefined,
  ): RawTensor
  /** Computes advantages over all lengths. */
  tdLambdaAdvantage(
    gamma?: number | null | undefined,
    lambda?: number | null | undefined,
    rolling?: boolean | null | undefined,
  ): RawTensor
  /** Computes the discounted sum of the rewards to come. */
  rewardToGo(gamma: number): RawTensor
}

/** The storage of a buffer's items; several buffers may share it. */
export interface RawStorage extends RawOwner {
  /** Returns the maximum number of rows. */
  capacity(): number
  /** `[capacity]`, or `[time, lanes..]`. */
  shape(): Float64Array
  /** Returns the number of rows with an item. */
  count(): number
  /** Writes items. */
  set(rows: Float64Array, items: RawTensorDict): void
  /** Returns the items in rows. */
  get(rows: Float64Array): RawTensorDict
  /** Empties every row. */
  clear(): void
}

/**
 * An episode of a file of Open X-Embodiment.
 * Only the addon has it: WebAssembly has no files.
 */
export interface RawStreamedEpisode extends RawOwner {
  /** Returns the steps. */
  steps(): RawTensorDict
  /** Returns the position behind the episode in bytes. */
  end(): number
}

/** Packs sequences as they come. */
export interface RawStreamPacker extends RawOwner {
  /** Adds an item. Returns the items of the row that this completes, or an empty array. */
  push(item: number, length: number): Uint32Array
  /** Returns the rows that are still open. */
  flush(): RawPackPlan
}

/** A model that is a table. */
export interface RawTableModel extends RawOwner {
  /** Returns the number of actions. */
  numActions(): number
  /** Returns logits and then values of states. */
  root(states: Uint32Array): Float32Array
}

/** The keys of steps that are not observations, and of the ring's position in a converted dictionary. */
export interface RawTedKeys extends RawOwner {
  /** Returns the flat form of steps. */
  flat(steps: RawTensorDict, ring: string): RawTensorDict
  /** Returns the nested form of steps. */
  nested(steps: RawTensorDict, ring: string): RawTensorDict
  /** Returns the steps of a flat form. */
  stepsOfFlat(flat: RawTensorDict): RawTensorDict
  /** Returns the steps of a nested form. */
  stepsOfNested(nested: RawTensorDict): RawTensorDict
  /** Returns the nested form with a dictionary for each trajectory. */
  split(nested: RawTensorDict): RawTensorDict
  /** Returns the nested form of a dictionary for each trajectory. */
  combine(split: RawTensorDict): RawTensorDict
}

/** The template of `fulmar_template::Template`. */
export interface RawTemplate extends RawOwner {
  /** Returns whether it has a `generation` block. */
  hasGeneration(): boolean
  /** Renders a conversation, which is JSON text. */
  render(input: string): RawRenderedText
}

/** The registry of `fulmar_template::TemplateRegistry`. */
export interface RawTemplateRegistry extends RawOwner {
  /** Adds an entry, which is JSON text. */
  register(name: string, entry: string): void
  /** Returns the names, in order. */
  names(): string[]
  /** Returns a template's source. */
  source(name: string): string
  /** Selects a template for a query; both are JSON text. */
  select(query: string): string
}

/** A dense tensor. */
export interface RawTensor extends RawOwner {
  /** Returns the name of the element type. */
  dtype(): string
  /** Returns the dimensions. */
  shape(): Float64Array
  /** Returns the elements as little-endian bytes, row-major: a copy. */
  bytes(): Uint8Array
  /** Returns the elements as singles: a copy. */
  toFloat32(): Float32Array
  /** Returns a view without dimension `dim`. */
  select(dim: number, at: number): RawTensor
  /** Returns a view of a range of dimension `dim`. */
  slice(dim: number, start: number, end: number): RawTensor
  /** Returns the same elements in another shape. */
  reshape(shape: Float64Array): RawTensor
  /** Returns a view with two dimensions exchanged. */
  transpose(left: number, right: number): RawTensor
  /** Returns the parts at `at` of dimension `dim`: a copy. */
  indexSelect(dim: number, at: Float64Array): RawTensor
  /** Returns the numbers in another element type. */
  to(dtype: string): RawTensor
  /** Returns the name of the device. */
  device(): string
  /** Returns the elements on another device. */
  toDevice(device: string): RawTensor
  /** Returns the same elements in another shape, never copied. */
  view(shape: Float64Array): RawTensor
  /** Returns the dimensions in another order. */
  permute(order: Float64Array): RawTensor
  /** Returns a view without a dimension of length 1. */
  squeeze(dim: number): RawTensor
  /** Returns a view with a new dimension of length 1. */
  unsqueeze(dim: number): RawTensor
  /** Returns a view with dimensions of length 1 expanded. */
  expand(shape: Float64Array): RawTensor
  /** Returns the tensor repeated along each dimension. */
  repeat(counts: Float64Array): RawTensor
  /** Returns the part at an index. */
  at(index: string): RawTensor
  /** Returns the sum of all elements. */
  sum(): RawTensor
  /** Returns the sums along a dimension. */
  sumDim(dim: number): RawTensor
  /** Returns whether dtype, shape and elements are equal. */
  equals(other: RawTensor): boolean
}

/** Named tensors of one batch. Keys are paths; lists of keys are JSON. */
export interface RawTensorDict extends RawOwner {
  /** Returns the batch dimensions. */
  batchSize(): Float64Array
  /** Returns the name of the device of all tensors; null if they differ. */
  device(): string | null | undefined
  /** Writes a folder of memory-mapped leaves. */
  saveMemmap(path: string): void
  /** Returns the bytes of an archive of memory-mapped leaves. */
  toArchive(): Uint8Array
  /** Returns the bytes of a consolidated file. */
  toConsolidated(): Uint8Array
  /** Returns the bytes that the elements of all tensors take. */
  sizeBytes(): number
  /** Returns the names of the entries. */
  names(): string[]
  /** Returns the keys of all entries. */
  nestedKeys(): string
  /** Returns the keys of all entries but the dictionaries. */
  leafKeys(): string
  /** Returns the kind of the entry, if there is one. */
  kind(path: string[]): string | null | undefined
  /** Returns the tensor at a path. */
  tensor(path: string[]): RawTensor
  /** Returns the ragged tensor at a path. */
  ragged(path: string[]): RawRagged
  /** Returns the dictionary at a path. */
  dict(path: string[]): RawTensorDict
  /** Returns the JSON value at a path. */
  value(path: string[]): string
  /** Sets a tensor at a path. */
  setTensor(path: string[], tensor: RawTensor): void
  /** Sets a ragged tensor at a path. */
  setRagged(path: string[], ragged: RawRagged): void
  /** Sets a dictionary at a path. */
  setDict(path: string[], inner: RawTensorDict): void
  /** Sets one JSON value for the whole batch at a path. */
  setShared(path: string[], value: string): void
  /** Sets one JSON value for each element of the batch at a path. */
  setEach(path: string[], values: string): void
  /** Removes an entry; returns whether it existed. */
  remove(path: string[]): boolean
  /** Returns a view of one element of the batch. */
  index(at: number): RawTensorDict
  /** Returns a view of a range of the batch. */
  slice(start: number, end: number): RawTensorDict
  /** Returns the elements of the batch at `at`: a copy. */
  indexSelect(at: Float64Array): RawTensorDict
  /** Returns only the entries at `keys`. */
  select(keys: string): RawTensorDict
  /** Returns all entries but those at `keys`. */
  exclude(keys: string): RawTensorDict
  /** Applies an operation. */
  operate(operation: string): RawTensorDict
  /** Returns the parts of a partition. */
  part(partition: string): RawTensorDictList
  /** Writes a part of the batch. */
  setAt(index: string, part: RawTensorDict): void
  /** Writes a tensor over the elements of another. */
  writeAt(path: string[], index: string, value: RawTensor): void
  /** Writes over entries that exist. */
  writeAll(other: RawTensorDict): void
  /** Writes a number to a part of the batch. */
  fillAt(index: string, value: number): void
  /** Takes elements from this where a mask is true, else from another. */
  whereElse(mask: RawTensor, other: RawTensorDict): RawTensorDict
  /** Returns the names of the dimensions. */
  dimNames(): string
  /** Names all dimensions. */
  setDimNames(names: string): void
  /** Names dimensions that have no name. */
  refineDimNames(names: string): void
  /** Copies all entries of another one into this one. */
  update(other: RawTensorDict): void
  /** Moves an entry to another key; if not `safe`, over an existing entry. */
  rename(old: string[], key: string[], safe: boolean): void
  /** Locks or unlocks the set of keys. */
  setLocked(locked: boolean): void
  /** Returns whether the keys are locked. */
  locked(): boolean
  /** Returns whether batch size and entries are equal. */
  equals(other: RawTensorDict): boolean
}

/** A list of dictionaries. */
export interface RawTensorDictList extends RawOwner {
  /** Appends to the list. */
  push(dict: RawTensorDict): void
  /** Returns the length of the list. */
  count(): number
  /** Returns one element. */
  get(at: number): RawTensorDict
  /** Pads them to the longest and joins them along a new first dimension. */
  padSequence(dim: number, value: number, mask?: string | null | undefined): RawTensorDict
  /** Makes a lazy stack of the dictionaries. */
  lazyStack(dim: number): RawLazyStack
  /** Joins them along a new batch dimension. */
  stack(dim: number): RawTensorDict
  /** Joins them along a batch dimension. */
  cat(dim: number): RawTensorDict
}

/** A map from dictionaries to dictionaries; its caller hashes the keys. */
export interface RawTensorDictMap extends RawOwner {
  /** Writes a value at each key. */
  insert(keys: RawTensorDict, hashes: RawTensor, values: RawTensorDict): void
  /** Returns the value of each key. */
  get(keys: RawTensorDict, hashes: RawTensor): RawTensorDict
  /** Returns whether each key is there. */
  contains(keys: RawTensorDict, hashes: RawTensor): RawTensor
  /** Returns how many equal keys come before each. */
  repeats(keys: RawTensorDict, hashes: RawTensor): Float64Array
  /** Returns the number of keys. */
  count(): number
  /** Removes all keys. */
  clear(): void
  /** Returns the content. */
  state(): RawTensorDict
  /** Replaces the content. */
  loadState(state: RawTensorDict): void
}

/** A list of tensors. */
export interface RawTensorList extends RawOwner {
  /** Appends to the list. */
  push(tensor: RawTensor): void
  /** Joins them along a new dimension. */
  stack(dim: number): RawTensor
  /** Joins them along a dimension. */
  cat(dim: number): RawTensor
  /** Joins them as rows. */
  ragged(): RawRagged
}

/** The domain of a value. Keys are paths. */
export interface RawTensorSpec extends RawOwner {
  /** Returns the spec as JSON. */
  toJson(): string
  /** Returns the name of its class. */
  kind(): string
  /** Returns the dimensions, -1 for a dynamic one. */
  shape(): Float64Array
  /** Returns the name of the element type, if there is one. */
  dtype(): string | null | undefined
  /** Checks that a value is in the spec. */
  check(value: RawSpecValue, strict: boolean): void
  /** Returns the first problem of a value, as JSON; null if the value is in the spec. */
  explain(value: RawSpecValue, strict: boolean): string | null | undefined
  /** Returns the nearest value of this spec. */
  project(value: RawSpecValue): RawSpecValue
  /** Draws a value from the beginning of the stream of `seed`. */
  rand(seed: number, batch: Float64Array): RawSpecValue
  /** Makes a value of zeros. */
  zero(batch: Float64Array): RawSpecValue
  /** Makes a value of ones. */
  one(batch: Float64Array): RawSpecValue
  /** Returns the value that plain JSON describes. */
  encode(value: string): RawSpecValue
  /** Returns the plain JSON of a value. */
  decode(value: RawSpecValue): string
  /** Returns all values. */
  enumerate(useMask: boolean): RawSpecValue
  /** Returns the number of values, in decimal; null if it is infinite. */
  cardinality(): string | null | undefined
  /** Returns the one-hot blocks of indices. */
  toOneHot(value: RawTensor): RawTensor
  /** Returns the indices of one-hot blocks. */
  toCategorical(value: RawTensor): RawTensor
  /** Returns the elements of a table at the indices that values give. */
  index(value: RawTensor, table: RawTensor): RawTensor
  /** Returns the least values, if the spec is `Bounded`. */
  low(): RawTensor | null | undefined
  /** Returns the largest values, if the spec is `Bounded`. */
  high(): RawTensor | null | undefined
  /** Returns the number of values of each choice, if the spec is discrete. */
  nvec(): RawTensor | null | undefined
  /** Returns the mask of the allowed values, if there is one. */
  mask(): RawTensor | null | undefined
  /** Allows some values. */
  setMask(mask: RawTensor): void
  /** Allows all values. */
  clearMask(): void
  /** Applies an operation. */
  operate(operation: string): RawTensorSpec
  /** Returns one spec for each index of a dimension. */
  unbind(dim: number): RawTensorSpecList
  /** Returns the specs of a stack or of a choice; otherwise an empty list. */
  parts(): RawTensorSpecList
  /** Returns the dimension of a stack. */
  stackDim(): number | null | undefined
  /** Returns the names of the entries. */
  keys(): string
  /** Returns the keys of all entries. */
  nestedKeys(): string
  /** Returns the keys of all entries but the dictionaries. */
  leafKeys(): string
  /** Returns whether there is an entry, also an unconstrained one. */
  has(path: string[]): boolean
  /** Returns the spec at a path; null if it is unconstrained. */
  get(path: string[]): RawTensorSpec | null | undefined
  /** Sets the spec at a path. */
  set(path: string[], entry: RawTensorSpec): void
  /** Sets an unconstrained entry at a path. */
  setAny(path: string[]): void
  /** Removes an entry; returns whether it existed. */
  remove(path: string[]): boolean
  /** Copies all entries of another one into this one. */
  update(other: RawTensorSpec): void
  /** Returns whether it contains a stack of different specs. */
  containsLazy(): boolean
  /** Returns whether the dictionaries of every stack in it have the same keys. */
  noExclusiveKeys(): boolean
  /** Returns whether they are equal. */
  equals(other: RawTensorSpec): boolean
}

/** A list of specs. */
export interface RawTensorSpecList extends RawOwner {
  /** Appends to the list. */
  push(spec: RawTensorSpec): void
  /** Returns the length of the list. */
  count(): number
  /** Returns one element. */
  get(at: number): RawTensorSpec | null | undefined
  /** Returns the spec of values stacked along a new dimension. */
  stack(dim: number): RawTensorSpec
  /** Returns the spec of values that are in one of the specs. */
  choice(): RawTensorSpec
  /** Stacks the specs along a new dimension and keeps each, even if they are equal. */
  stacked(dim: number): RawTensorSpec
}

/** Any `fulmar_tokenizer::Tokenizer`. */
export interface RawTokenizer extends RawOwner {
  /** Returns the special tokens by name, as JSON. */
  specialTokens(): string
  /** Returns the ids before and after a text, as JSON. */
  surroundings(): string
  /** Returns the source of the chat template of that name. */
  chatTemplate(name: string): string | null | undefined
  /** Returns the ids of many texts. */
  encodeBatch(texts: string[], added: boolean): RawEncodingBatch
  /** Returns the JSON form. */
  toJson(): string
  /** Returns the number of ids. */
  vocabSize(): number
  /** Returns the ids of a text; with `added`, markers in the text become their ids. */
  encode(text: string, added: boolean): RawEncoding
  /** Returns the text of ids. */
  decode(ids: Uint32Array, skipSpecial: boolean): string
  /** Returns the id of a token. */
  idOf(token: string): number | null | undefined
  /** Returns the name of an id. */
  tokenOf(id: number): string | null | undefined
  /** Returns whether an id is special. */
  isSpecial(id: number): boolean
}

/** Queues of rollouts, each until its prompt has enough to compare. */
export interface RawTopKQueues extends RawOwner {
  /** Adds a rollout; returns `{ ticket, compared, released }`. */
  push(prompt: string, reward: number): string
}

/** The trajectories in a ring of rows. */
export interface RawTrajectories extends RawOwner {
  /** Returns lane, first step, last step and length of each, concatenated. */
  spans(): Float64Array
}

/** Splits steps into trajectories. */
export interface RawTrajectorySplit extends RawOwner {
  /** Returns the trajectories padded with zeros. */
  padded(dict: RawTensorDict): RawTensorDict
  /** Returns the trajectories as rows. */
  ragged(dict: RawTensorDict): RawTensorDict
}

/** Transforms that run one after another. */
export interface RawTransforms extends RawOwner {
  /** Appends transforms; they share their state with the appended object. */
  push(other: RawTransforms): void
  /** Applies the transforms to a batch that is read. */
  forward(dict: RawTensorDict): RawTensorDict
  /** Applies the inverse transforms to rows that are written; returns null if all rows are held back. */
  inverse(dict: RawTensorDict): RawTensorDict | null | undefined
  /** Returns the rows that were held back. */
  flush(): RawTensorDict | null | undefined
  /** Clears the state. */
  clear(): void
  /** Returns the state. */
  state(): RawTensorDict
  /** Restores a state. */
  loadState(state: RawTensorDict): void
  /** Sets the version of the policy. */
  setPolicyVersion(version: number): void
}

/** A batch of padded rows with the padding removed. */
export interface RawUnpaddedTokenBatch extends RawOwner {
  /** Returns the token ids. */
  ids(): Uint32Array
  /** Returns the bounds of the sequences. */
  offsets(): Uint32Array
  /** Returns the mask of the tokens to score. */
  mask(): Uint8Array
  /** Returns the position of each token; empty if positions are counted. */
  positions(): Uint32Array
  /** Returns one value per token in padded rows. */
  pad(values: Float32Array): Float32Array
  /** Returns padded rows as one value per token. */
  unpad(padded: Float32Array): Float32Array
}

/** Answers of `fulmar_chat::Answers`; without `words` if these are where the steps were. */
export interface RawAnswers {
  readonly words?: Uint32Array | undefined
  readonly text: string
}

/** One drawn token. */
export interface RawDraw {
  /** The token. */
  readonly id: number
  /** Its log-probability under the model. */
  readonly logProb: number
  /** Its log-probability under the distribution that it was drawn from. */
  readonly sampledLogProb: number
}

/**
 * Ids of conversations, concatenated. `offsets` is `[S + 1]`, the others `[T]`; the mask is empty unless
 * it was requested.
 */
export interface RawEncodedChats {
  readonly offsets: Uint32Array
  readonly ids: Uint32Array
  readonly assistantMask: Uint8Array
}

/** Token ids `[T]` and their places in the text, `[T, 2]`. */
export interface RawEncoding {
  readonly ids: Uint32Array
  readonly offsets: Uint32Array
}

/** Concatenated encodings of many texts: text `i` has the tokens `rows[i]..rows[i + 1]`. */
export interface RawEncodingBatch {
  readonly ids: Uint32Array
  readonly offsets: Uint32Array
  readonly rows: Uint32Array
}

/** The sampled tokens and the finished requests of an engine, flat. */
export interface RawEngineOutputs {
  /** `[T]` */
  readonly requests: Float64Array
  /** `[T]` */
  readonly ids: Uint32Array
  /** `[T]` */
  readonly logProb: Float32Array
  /** `[T]` */
  readonly sampledLogProb: Float32Array
  /** `[T]` */
  readonly versions: Float64Array
  /** `[T + 1]` */
  readonly topOffsets: Uint32Array
  /** The likeliest ids of all tokens. */
  readonly topIds: Uint32Array
  /** Their log-probs. */
  readonly topLogProb: Float32Array
  /** `[F]` */
  readonly finished: Float64Array
  /** `[F]`: 0 aborted, 1 stopped, 2 at its length, 3 for logits that are not finite. */
  readonly finish: Uint8Array
  /** Number of speculative tokens since the engine was made. */
  readonly numDraftTokens: number
  /** Number of them that were drawn. */
  readonly numAcceptedTokens: number
}

/** Advantages within groups. */
export interface RawGroupAdvantage {
  /** `[R]` */
  readonly advantage: Float32Array
  /** `[N]` */
  readonly mean: Float64Array
  /** `[N]` */
  readonly std: Float64Array
  /** `[N]` 0 or 1. */
  readonly degenerate: Uint8Array
}

/** A KL divergence over masked tokens. */
export interface RawKlEstimate {
  /** The mean over the masked tokens. */
  readonly mean: number
  /** The number of masked tokens. */
  readonly numTokens: number
  /** `[T]` */
  readonly kl: Float32Array
  /** `[T]` */
  readonly gradLogProb: Float32Array
}

/** Value, metrics and gradients of a loss. */
export interface RawLossOutput {
  /** The sum of all terms. */
  readonly loss: number
  /** The names of the metrics, joined by commas. */
  readonly metricNames: string
  /** The value and the denominator of each metric. */
  readonly metrics: Float64Array
  /** `[T]` */
  readonly gradLogProb: Float32Array
  /** `[T]` */
  readonly gradEntropy?: Float32Array | undefined
  /** `[S]` */
  readonly sequenceLoss?: Float64Array | undefined
}

/** Token ids and where they came from; every column is `[T]`. */
export interface RawRendered {
  readonly ids: Uint32Array
  readonly messageIndices: Int32Array
  readonly sampledMask: Uint8Array
  readonly isContent: Uint8Array
  readonly origins: Uint8Array
}

/** A rendered text; `spans` is `[S, 2]` in UTF-16 code units. */
export interface RawRenderedText {
  readonly text: string
  readonly spans?: Uint32Array | undefined
}

/** Texts of `fulmar_chat::RenderedTexts`. */
export interface RawRenderedTexts {
  readonly text: string
  readonly ends: Uint32Array
}

/** Value, metrics and gradients of a loss of rewards. */
export interface RawRewardLossOutput {
  /** The sum of all terms. */
  readonly loss: number
  /** The names of the metrics, joined by commas. */
  readonly metricNames: string
  /** The value and the denominator of each metric. */
  readonly metrics: Float64Array
  /** The gradient by each reward of a chosen answer. */
  readonly gradChosen: Float32Array
  /** The gradient by each reward of a rejected answer. */
  readonly gradRejected: Float32Array
}

/** Samples, flat: `offsets` is `[S + 1]`, the last three are `[S]`, the rest `[T]`. Without an advantage `advantages` is missing. */
export interface RawSamples {
  readonly offsets: Uint32Array
  readonly ids: Uint32Array
  readonly mask: Uint8Array
  readonly logProbs: Float32Array
  readonly sampledLogProbs: Float32Array
  readonly versions: Uint32Array
  readonly advantages: Float32Array
  readonly turnIds: Uint32Array
  readonly minPolicyVersions: Uint32Array
  readonly maxPolicyVersions: Uint32Array
}

/** Log-probs and entropies of a batch. */
export interface RawScores {
  /** `[T]` */
  readonly logProb: Float32Array
  /** `[T]` */
  readonly entropy: Float32Array
  /** `[T, k]` */
  readonly topIds: Uint32Array
  /** `[T, k]` */
  readonly topLogProb: Float32Array
}

/** The result of an optimiser step. */
export interface RawStepReport {
  /** Counted from 1. */
  readonly step: number
  /** The norm before clipping. */
  readonly gradientNorm: number
  /** The clip coefficient, at most 1. */
  readonly clipCoefficient: number
}

/** Masks by origin, each `[T]`. */
export interface RawTokenMasks {
  readonly assistant: Uint8Array
  readonly sampled: Uint8Array
  readonly endOfTurn: Uint8Array
}
