// The face of `fulmar-replay`, once for Node and for WebAssembly: each includes this table into its own `replay.rs`, see
// `bindings/faces/tensor.rs`. Parts and their states cross as JSON, rows as doubles, -1 for an item that was not kept.

use fulmar::core::{Error, ErrorKind, Result as CoreResult, integer_from_f64, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::replay::{
    self, Batch, ConditionalUpdate, EnsembleOptions, ReplayBufferState, SharedReplayBuffer, SharedStorage, SharedWrites as _, Storage as _, StorageOptions,
};
use fulmar::tensor::{Index, Key};
use serde_json::json;

face! {
    /// The storage of a buffer's items; several buffers may share it.
    Storage(SharedStorage)
    make {
        /// Makes the storage that options describe.
        fn create as create(options: String) {
            options_from_json::<StorageOptions>("storage", &options)?.build().map(SharedStorage::new)
        }
        /// Makes a storage over the rows of a dictionary.
        fn over as over(dict: &TensorDict) {
            Ok(SharedStorage::new(Box::new(replay::TensorStorage::over(&dict.share()?)?)))
        }
    }
    call {
        /// Returns the maximum number of rows.
        fn capacity as capacity() -> (f64) { |storage| CoreResult::Ok(storage.capacity() as f64) }
        /// `[capacity]`, or `[time, lanes..]`.
        fn shape as shape() -> (Float64Array) {
            |storage| Ok(storage.shape().iter().map(|len| *len as f64).collect::<Vec<_>>())
        }
        /// Returns the number of rows with an item.
        fn count as count() -> (f64) {
            |storage| {
                storage.refresh()?;
                CoreResult::Ok(storage.len() as f64)
            }
        }
        /// Writes items.
        fn set as set(rows: &[f64], items: &TensorDict) -> (()) {
            items = items.share()? => |storage| storage.set(&indices("rows", rows)?, &items)
        }
        /// Returns the items in rows.
        fn get as get(rows: &[f64]) -> (TensorDict) { |storage| storage.get(&indices("rows", rows)?) }
        /// Empties every row.
        fn clear as clear() -> (()) {
            |storage| {
                storage.check_free()?;
                storage.clear();
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// A mailbox between the core and a part that is written in JavaScript.
    Mailbox(replay::Mailbox)
    make {
        /// Makes an empty mailbox.
        fn empty as empty() { CoreResult::Ok(replay::Mailbox::default()) }
    }
    call {
        /// Puts items in.
        fn put_items as putItems(items: &TensorDict) -> (()) {
            items = items.share()? => |mailbox| {
                mailbox.put_items(items);
                CoreResult::Ok(())
            }
        }
        /// Takes the items out.
        fn take_items as takeItems() -> (Option<TensorDict>) {
            |mailbox| CoreResult::Ok(mailbox.take_items().map(TensorDict::from))
        }
        /// Puts numbers in.
        fn put_numbers as putNumbers(numbers: &[f64]) -> (()) {
            |mailbox| {
                mailbox.put_numbers(numbers.to_vec());
                CoreResult::Ok(())
            }
        }
        /// Puts text in.
        fn put_text as putText(text: String) -> (()) {
            |mailbox| {
                mailbox.put_text(text);
                CoreResult::Ok(())
            }
        }
        /// Takes the text out.
        fn take_text as takeText() -> (Option<String>) { |mailbox| CoreResult::Ok(mailbox.take_text()) }
    }
}

face! {
    /// A batch of drawn items.
    ReplayBatch(Batch)
    make {
        /// Makes an empty batch: memory to draw into.
        fn empty as empty() {{
            let none = fulmar::tensor::TensorDict::new(&[0])?;
            Ok(Batch { items: none.clone(), rows: Vec::new(), info: none })
        }}
    }
    call {
        /// Returns the items.
        fn items as items() -> (TensorDict) { |batch| CoreResult::Ok(batch.items.clone()) }
        /// Returns the items, and leaves none.
        fn take_items as takeItems() -> (TensorDict) {
            |batch| Ok(std::mem::replace(&mut batch.items, fulmar::tensor::TensorDict::new(&[0])?))
        }
        /// Returns the entries of [`ReplayBatch::info`], and leaves none.
        fn take_info as takeInfo() -> (TensorDict) {
            |batch| Ok(std::mem::replace(&mut batch.info, fulmar::tensor::TensorDict::new(&[0])?))
        }
        /// Returns the rows of the items.
        fn rows as rows() -> (Float64Array) { |batch| Ok(batch.rows.iter().map(|row| *row as f64).collect::<Vec<_>>()) }
        /// Returns the entries that sampler and sample unit add for each row.
        fn info as info() -> (TensorDict) { |batch| CoreResult::Ok(batch.info.clone()) }
    }
}

face! {
    /// A drawn batch, perhaps not copied yet.
    PendingBatch(replay::PendingBatch)
    make {}
    call {
        /// Returns whether it was the last of an epoch.
        fn is_last as isLast() -> (bool) { |pending| CoreResult::Ok(pending.is_last()) }
        /// Returns whether it is copied.
        fn is_ready as isReady() -> (bool) { |pending| CoreResult::Ok(pending.is_ready()) }
        /// Returns the batch, and copies it first if necessary.
        fn batch as batch() -> (ReplayBatch) { |pending| pending.batch() }
    }
}

face! {
    /// A storage, a writer, a sampler and a sample unit.
    ReplayBuffer(SharedReplayBuffer)
    make {
        /// Makes a buffer over a storage.
        fn create as create(storage: &Storage, options: String) {{
            let options = options_from_json("options", &options)?;
            SharedReplayBuffer::over(storage.share()?, options)
        }}
    }
    call {
        /// Returns the storage.
        fn storage as storage() -> (Storage) { |buffer| CoreResult::Ok(buffer.storage().clone()) }
        /// Returns the number of rows that can be drawn.
        fn count as count() -> (f64) {
            |buffer| {
                buffer.with(replay::ReplayBuffer::catch_up)?;
                CoreResult::Ok(buffer.len()? as f64)
            }
        }
        /// Returns the statistics, as JSON.
        fn stats as stats() -> (String) { |buffer| CoreResult::Ok(json!(buffer.stats()?).to_string()) }
        /// Writes one item; returns its row.
        fn add as add(item: &TensorDict) -> (f64) {
            |buffer| {
                let row = buffer.with(|buffer| buffer.add_batch(|memory| item.lend(|item| memory.of(item))))?;
                CoreResult::Ok(number(row))
            }
        }
        /// Writes items; returns their rows.
        fn extend as extend(items: &TensorDict, prioritized: bool) -> (Float64Array) {
            items = items.share()? => |buffer| {
                let rows = if prioritized {
                    buffer.extend(&items)?
                } else {
                    buffer.with(|buffer| buffer.extend_without_priorities(&items))?
                };
                CoreResult::Ok(rows.into_iter().map(number).collect::<Vec<_>>())
            }
        }
        /// Draws a batch.
        fn sample as sample(count: Option<f64>) -> (ReplayBatch) {
            |buffer| buffer.sample(count.map(|count| index("count", count)).transpose()?)
        }
        /// Returns the next batch, from the prefetched ones if there are any.
        fn next_batch as nextBatch() -> (PendingBatch) { |buffer| buffer.next_batch() }
        /// Draws a batch into the memory of another.
        fn sample_into as sampleInto(count: Option<f64>, out: &ReplayBatch) -> (()) {
            |buffer| {
                let count = count.map(|count| index("count", count)).transpose()?;
                out.lend(|out| buffer.with(|buffer| buffer.sample_into(count, out)))
            }
        }
        /// Returns the batch of given rows.
        fn batch_of as batchOf(rows: &[f64]) -> (ReplayBatch) { |buffer| buffer.with(|buffer| buffer.batch_of(&indices("rows", rows)?)) }
        /// Returns items by index.
        fn at as at(at: String) -> (TensorDict) {
            |buffer| buffer.with(|buffer| buffer.at(&options_from_json::<Vec<Index>>("index", &at)?))
        }
        /// Writes over items by index.
        fn set_at as setAt(at: String, items: &TensorDict) -> (()) {
            items = items.share()? =>
                |buffer| buffer.with(|buffer| buffer.set_at(&options_from_json::<Vec<Index>>("index", &at)?, &items))
        }
        /// Writes over one leaf of items by index.
        fn set_key_at as setKeyAt(path: Vec<String>, value: &Tensor, at: String) -> (()) {
            value = value.share()? => |buffer| {
                let at = options_from_json::<Vec<Index>>("index", &at)?;
                buffer.with(|buffer| buffer.set_key_at(&Key::from(path), &value, &at))
            }
        }
        /// Sets priorities.
        fn update_priority as updatePriority(rows: &[f64], priorities: &[f32]) -> (()) {
            |buffer| buffer.update_priority(&signed("index", rows)?, priorities)
        }
        /// Sets the priorities that a batch holds.
        fn update_tensor_dict_priority as updateTensorDictPriority(batch: &TensorDict) -> (()) {
            batch = batch.share()? => |buffer| buffer.with(|buffer| buffer.update_tensordict_priority(&batch))
        }
        /// Notifies the sampler of rows that were written directly to the storage.
        fn mark_update as markUpdate(rows: &[f64]) -> (()) { |buffer| buffer.with(|buffer| buffer.mark_update(&indices("index", rows)?)) }
        /// Returns how often each row was rewritten.
        fn generations_of as generationsOf(rows: &[f64]) -> (Float64Array) {
            |buffer| {
                let rows = signed("index", rows)?;
                let generations = buffer.with(|buffer| Ok(buffer.generations_of(&rows)))?;
                CoreResult::Ok(generations.into_iter().map(|count| count as f64).collect::<Vec<_>>())
            }
        }
        /// Patches the rows that did not change since they were read; returns which, as JSON. Without a path of a version, none is
        /// compared.
        fn update_if_present as updateIfPresent(
            rows: &[f64], generations: &[f64], patch: &TensorDict, version_path: Vec<String>, versions: &[f64], require_newer: bool
        ) -> (String) {
            patch = patch.share()? => |buffer| {
                let (rows, generations) = (signed("index", rows)?, signed("generation", generations)?);
                let (key, versions) = (Key::from(version_path), signed("version", versions)?);
                let versions = if key.path().is_empty() { None } else { Some((&key, versions.as_slice())) };
                let update =
                    ConditionalUpdate { rows: &rows, generations: &generations, patch: &patch, versions, require_newer };
                let result = buffer.with(|buffer| buffer.update_if_present(&update))?;
                CoreResult::Ok(json!({ "updated": result.updated, "versionRejected": result.version_rejected }).to_string())
            }
        }
        /// Writes whole items over rows, as new ones.
        fn write_at as writeAt(rows: &[f64], items: &TensorDict) -> (()) {
            items = items.share()? => |buffer| buffer.with(|buffer| buffer.write_at(&indices("index", rows)?, &items))
        }
        /// Returns the first items, or all.
        fn read_all as readAll(end: Option<f64>) -> (TensorDict) {
            |buffer| buffer.with(|buffer| buffer.read_all_in_order(end.map(|end| index("end", end)).transpose()?))
        }
        /// Writes over the first items, or all.
        fn write_all as writeAll(items: &TensorDict, end: Option<f64>) -> (()) {
            items = items.share()? =>
                |buffer| buffer.with(|buffer| buffer.write_all(&items, end.map(|end| index("end", end)).transpose()?))
        }
        /// Returns the trajectories that satisfy a predicate; all for JSON `null`.
        fn query as query(predicate: String, trajectories: String) -> (TensorDictList) {
            |buffer| {
                let predicate: Option<replay::TrajectoryPredicate> = options_from_json("predicate", &predicate)?;
                let keys = options_from_json("trajectories", &trajectories)?;
                buffer.with(|buffer| buffer.query(predicate.as_ref(), &keys))
            }
        }
        /// Returns a parameter of the sampler.
        fn parameter as parameter(name: String) -> (f64) { |buffer| buffer.with(|buffer| buffer.sampler().parameter(&name)) }
        /// Sets a parameter of the sampler.
        fn set_parameter as setParameter(name: String, value: f64) -> (()) {
            |buffer| buffer.with(|buffer| buffer.sampler_mut().set_parameter(&name, value))
        }
        /// Returns whether the last draw ended an epoch.
        fn ran_out as ranOut() -> (bool) { |buffer| buffer.with(|buffer| Ok(buffer.ran_out())) }
        /// Empties every row.
        fn clear as clear(keeps_count: bool) -> (()) { |buffer| buffer.clear(keeps_count) }
        /// Returns the state of the buffer.
        fn state as state() -> (ReplayState) { |buffer| buffer.state() }
        /// Restores a state.
        fn restore as restore(state: &ReplayState) -> (()) { state = state.share()? => |buffer| buffer.restore(&state) }
    }
}

face! {
    /// A list of buffers, from which an ensemble is made.
    ReplayBufferList(Vec<SharedReplayBuffer>)
    make {
        /// Makes an empty list.
        fn empty as empty() { Ok(Vec::new()) }
    }
    call {
        /// Appends to the list.
        fn push as push(buffer: &ReplayBuffer) -> (()) {
            buffer = buffer.share()? => |list| {
                list.push(buffer);
                CoreResult::Ok(())
            }
        }
        /// Makes an ensemble of the buffers.
        fn ensemble as ensemble(options: String) -> (ReplayBufferEnsemble) {
            |list| replay::ReplayBufferEnsemble::new(list.clone(), options_from_json::<EnsembleOptions>("options", &options)?)
        }
    }
}

face! {
    /// Several buffers that are sampled as one.
    ReplayBufferEnsemble(replay::ReplayBufferEnsemble)
    make {}
    call {
        /// Draws a batch, `[buffers drawn, rows of each]`.
        fn sample as sample(count: Option<f64>) -> (EnsembleBatch) {
            |ensemble| ensemble.sample(count.map(|count| index("count", count)).transpose()?)
        }
        /// Returns items by index, of every buffer.
        fn at as at(at: String) -> (TensorDict) { |ensemble| ensemble.at(&options_from_json::<Vec<Index>>("index", &at)?) }
        /// Writes items to the buffers that they name; returns buffer and row of each, concatenated.
        fn extend as extend(items: &TensorDict) -> (Float64Array) {
            items = items.share()? => |ensemble| {
                let taken = ensemble.extend(&items)?;
                CoreResult::Ok(taken.into_iter().flat_map(|(id, row)| [id as f64, number(row)]).collect::<Vec<_>>())
            }
        }
    }
}

face! {
    /// A batch of several buffers.
    EnsembleBatch(replay::EnsembleBatch)
    make {}
    call {
        /// Returns the items.
        fn items as items() -> (TensorDict) { |batch| CoreResult::Ok(batch.items.clone()) }
        /// Returns the buffer of each part.
        fn buffer_ids as bufferIds() -> (Float64Array) {
            |batch| Ok(batch.buffer_ids.iter().map(|id| *id as f64).collect::<Vec<_>>())
        }
        /// Returns one part.
        fn part as part(at: f64) -> (ReplayBatch) {
            |batch| {
                let none = || Error::new(ErrorKind::OutOfRange, format!("part must be < {}: got {at}", batch.parts.len()));
                batch.parts.get(index("part", at)?).cloned().ok_or_else(none)
            }
        }
    }
}

face! {
    /// Relabels the batches of a buffer with achieved goals.
    Hindsight(replay::Hindsight)
    make {
        /// Makes a relabeller for an empty buffer.
        fn create as create(buffer: &ReplayBuffer, options: String, seed: f64) {{
            let (options, seed) = (options_from_json("options", &options)?, integer_from_f64("seed", seed)?);
            buffer.share()?.with(|buffer| replay::Hindsight::new(buffer, options, seed))
        }}
    }
    call {
        /// Checks that items have the flags of the ends of episodes.
        fn check as check(items: &TensorDict) -> (()) { items = items.share()? => |hindsight| hindsight.check(&items) }
        /// Records items that were written.
        fn extend as extend(rows: &[f64], items: &TensorDict) -> (()) {
            items = items.share()? => |hindsight| {
                let rows: Vec<Option<usize>> =
                    signed("rows", rows)?.into_iter().map(|row| usize::try_from(row).ok()).collect();
                hindsight.extend(&rows, &items)
            }
        }
        /// Writes other goals to the first rows of a batch; returns their number.
        fn relabel as relabel(buffer: &ReplayBuffer, batch: &ReplayBatch) -> (f64) {
            buffer = buffer.share()? => |hindsight| {
                let count = batch.lend(|batch| buffer.with(|buffer| hindsight.relabel(buffer, batch)))?;
                CoreResult::Ok(count as f64)
            }
        }
        /// Writes the rewards of relabelled rows.
        fn set_rewards as setRewards(batch: &ReplayBatch, count: f64, rewards: &Tensor) -> (()) {
            rewards = rewards.share()? =>
                |hindsight| batch.lend(|batch| hindsight.set_rewards(batch, index("count", count)?, &rewards))
        }
        /// Clears every row.
        fn clear as clear() -> (()) {
            |hindsight| {
                hindsight.clear();
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// A limit of the number of samples per insert.
    RateLimiter(replay::RateLimiter)
    make {
        /// Makes a limiter with counts of 0.
        fn create as create(options: String) { replay::RateLimiter::new(options_from_json("limiter", &options)?) }
    }
    call {
        /// Counts samples, or refuses them.
        fn sample as sample(count: f64) -> (()) { |limiter| limiter.sample(integer_from_f64("count", count)?) }
        /// Counts inserts, or refuses them.
        fn insert as insert(count: f64) -> (()) { |limiter| limiter.insert(integer_from_f64("count", count)?) }
        /// Counts deletes.
        fn remove as remove(count: f64) -> (()) { |limiter| limiter.delete(integer_from_f64("count", count)?) }
        /// Returns the numbers of inserts, samples and deletes.
        fn counts as counts() -> (Float64Array) { |limiter| CoreResult::Ok(limiter.counts().map(|count| count as f64).to_vec()) }
    }
}

face! {
    /// Sums of priorities over ranges of rows.
    PriorityTree(replay::PriorityTree)
    make {
        /// Makes a tree for `capacity` rows.
        fn create as create(capacity: f64) { replay::PriorityTree::new(index("capacity", capacity)?) }
    }
    call {
        /// Sets the leaves of rows.
        fn update as update(rows: &[f64], leaves: &[f64]) -> (()) {
            |tree| {
                let leaves: Vec<f32> = leaves.iter().map(|leaf| *leaf as f32).collect();
                tree.update(&indices("rows", rows)?, &leaves)
            }
        }
        /// Returns the sum of the leaves of a range of rows.
        fn sum_in as sumIn(start: f64, end: f64) -> (f64) { |tree| tree.sum_in(index("start", start)?, index("end", end)?) }
        /// Returns the smallest leaf that is set in a range of rows.
        fn min_in as minIn(start: f64, end: f64) -> (Option<f64>) {
            |tree| Ok(tree.min_in(index("start", start)?, index("end", end)?)?.map(f64::from))
        }
        /// Returns the first row with the largest leaf, and that leaf; empty if no leaf is set.
        fn max as max() -> (Float64Array) {
            |tree| CoreResult::Ok(tree.max().map_or_else(Vec::new, |(row, leaf)| vec![row as f64, f64::from(leaf)]))
        }
        /// Returns the leaf of each row; NaN if it is not set.
        fn leaves as leaves(rows: &[f64]) -> (Float64Array) {
            |tree| Ok(indices("rows", rows)?.into_iter().map(|row| tree.leaf(row).map_or(f64::NAN, f64::from)).collect::<Vec<_>>())
        }
        /// Returns, for each sum, the first row at which the cumulative sum of the leaves reaches it.
        fn lower_bound as lowerBound(sums: &[f64]) -> (Float64Array) {
            |tree| CoreResult::Ok(sums.iter().map(|sum| tree.lower_bound(*sum) as f64).collect::<Vec<_>>())
        }
        /// Clears every leaf.
        fn clear as clear() -> (()) {
            |tree| {
                tree.clear();
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// A parameter of a sampler on a schedule.
    ParameterScheduler(replay::ParameterScheduler)
    make {
        /// Makes the scheduler that options describe.
        fn create as create(options: String) {
            options_from_json::<replay::ParameterScheduler>("scheduler", &options)
        }
    }
    call {
        /// Takes a step.
        fn step as step(buffer: &ReplayBuffer) -> (()) {
            buffer = buffer.share()? => |scheduler| buffer.with(|buffer| scheduler.step(buffer.sampler_mut()))
        }
    }
}

face! {
    /// The state of a buffer.
    ReplayState(ReplayBufferState)
    make {
        /// Takes the states of the parts, as JSON, every item, and the prefetched batches.
        fn of as of(parts: String, items: &TensorDictList, ahead: &TensorDictList) {{
            let parts = options_from_json("parts", &parts)?;
            Ok(ReplayBufferState { parts, items: items.share()?, ahead: ahead.share()? })
        }}
    }
    call {
        /// Returns the states of the parts, as JSON.
        fn parts as parts() -> (String) { |state| CoreResult::Ok(state.parts.to_string()) }
        /// Returns every item.
        fn items as items() -> (TensorDictList) { |state| CoreResult::Ok(state.items.clone()) }
        /// Returns the prefetched batches.
        fn ahead as ahead() -> (TensorDictList) { |state| CoreResult::Ok(state.ahead.clone()) }
    }
}

face! {
    /// The trajectories in a ring of rows.
    Trajectories(Vec<replay::Trajectory>)
    make {
        /// Finds trajectories by flags of their last steps, `[T, lanes]`.
        fn of_ends as ofEnds(ends: &[f64], num_lanes: f64, is_full: bool, newest: Option<f64>) {{
            let ends: Vec<bool> = ends.iter().map(|flag| *flag != 0.0).collect();
            let newest = newest.map(|step| index("cursor", step)).transpose()?;
            replay::find_trajectories(&ends, index("lanes", num_lanes)?, is_full, newest)
        }}
        /// Finds trajectories by ids, `[T, lanes]`.
        fn of_ids as ofIds(ids: &[f64], num_lanes: f64, is_full: bool, newest: Option<f64>) {{
            let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
            let (num_lanes, newest) = (index("lanes", num_lanes)?, newest.map(|step| index("cursor", step)).transpose()?);
            replay::find_trajectories(&replay::ends_of_ids(&ids, num_lanes, is_full)?, num_lanes, is_full, newest)
        }}
    }
    call {
        /// Returns lane, first step, last step and length of each, concatenated.
        fn spans as spans() -> (Float64Array) {
            |found| {
                let one = |one: &replay::Trajectory| [one.lane, one.start, one.stop, one.len].map(|number| number as f64);
                CoreResult::Ok(found.iter().flat_map(one).collect::<Vec<_>>())
            }
        }
    }
}

/// Returns a row, -1 for none.
fn number(row: Option<usize>) -> f64 {
    row.map_or(-1.0, |row| row as f64)
}

/// Rows, -1 for none.
fn signed(name: &str, rows: &[f64]) -> CoreResult<Vec<i64>> {
    let one = |row: &f64| if *row == -1.0 { Ok(-1) } else { integer_from_f64(name, *row).map(|row| row as i64) };
    rows.iter().map(one).collect()
}
