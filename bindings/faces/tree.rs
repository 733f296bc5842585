// The face of `fulmar-tree`, once for Node and for WebAssembly: each includes this table into its own `tree.rs`, see
// `bindings/faces/tensor.rs`. Options are JSON, hashes tensors of `i64`.

use fulmar::core::{Dtype, Error, ErrorKind, Result as CoreResult, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::tensor::{self, Key};
use fulmar::tree::{self, Outcome, RowHash, SearchRoot};
use serde_json::json;

face! {
    /// SipHash-1-3 of rows.
    SipHash(tree::SipHash)
    make {
        /// Makes one from options.
        fn create as create(options: String) { options_from_json("options", &options).map(tree::SipHash::new) }
    }
    call {
        /// Returns the hash of each row.
        fn forward as forward(rows: &Tensor) -> (Tensor) { rows = rows.share()? => |hash| hashed(hash, &rows) }
    }
}

face! {
    /// SipHash of a random projection of rows.
    RandomProjectionHash(std::sync::Arc<tree::RandomProjectionHash>)
    make {
        /// Makes one whose matrix is drawn.
        fn create as create(options: String) {
            tree::RandomProjectionHash::new(&options_from_json("options", &options)?).map(std::sync::Arc::new)
        }
        /// Makes one with a matrix.
        fn with_matrix as withMatrix(matrix: &Tensor, options: String) {{
            let options = options_from_json("options", &options)?;
            tree::RandomProjectionHash::with_matrix(&matrix.share()?, options).map(std::sync::Arc::new)
        }}
    }
    call {
        /// Returns the hash of each row.
        fn forward as forward(rows: &Tensor) -> (Tensor) { rows = rows.share()? => |hash| hashed(&**hash, &rows) }
        /// Returns the matrix, if there is one yet.
        fn matrix as matrix() -> (Option<Tensor>) {
            |hash| CoreResult::Ok(hash.matrix().map(|matrix| matrix.clone().into()))
        }
    }
}

face! {
    /// Binary digits to numbers.
    BinaryToDecimal(tree::BinaryToDecimal)
    make {
        /// Makes one from options.
        fn create as create(options: String) { tree::BinaryToDecimal::new(options_from_json("options", &options)?) }
    }
    call {
        /// Returns a number for each row.
        fn forward as forward(features: &Tensor) -> (Tensor) {
            features = features.share()? => |read| read.forward(&features)
        }
    }
}

face! {
    /// Numbers of hashes.
    HashToInt(tree::HashToInt)
    make {
        /// Makes an empty one.
        fn create as create(max_size: f64) { tree::HashToInt::new(index("max_size", max_size)?) }
        /// Makes one with known hashes.
        fn from_hashes as fromHashes(hashes: &Tensor, max_size: f64) {
            tree::HashToInt::from_hashes(&numbers(&hashes.share()?)?, index("max_size", max_size)?)
        }
    }
    call {
        /// Returns the number of each hash.
        fn forward as forward(hashes: &Tensor, extend: bool) -> (Tensor) {
            hashes = hashes.share()? => |ids| {
                let known = numbers(&hashes)?;
                let ids = if extend { ids.extend(&known)? } else { ids.lookup(&known) };
                tensor::Tensor::from_vec(hashes.shape(), ids)
            }
        }
        /// Returns the known hashes.
        fn hashes as hashes() -> (Tensor) { |ids| tensor::Tensor::from_slice(&[ids.len()], ids.hashes()) }
        /// Returns their number.
        fn count as count() -> (f64) { |ids| CoreResult::Ok(ids.len() as f64) }
    }
}

face! {
    /// A map from dictionaries to dictionaries; its caller hashes the keys.
    TensorDictMap(tree::TensorDictMap)
    make {
        /// Makes an empty map.
        fn create as create(keys: String, options: String) {{
            let keys = options_from_json::<Vec<Key>>("inKeys", &keys)?;
            let query = tree::QueryModule::new(keys, tree::QueryOptions::default())?;
            tree::TensorDictMap::new(query, options_from_json("options", &options)?)
        }}
    }
    call {
        /// Writes a value at each key.
        fn insert as insert(keys: &TensorDict, hashes: &Tensor, values: &TensorDict) -> (()) {
            args = (keys.share()?, numbers(&hashes.share()?)?, values.share()?) =>
                |map| map.insert_hashed(&args.0, &args.1, &args.2).map(|_| ())
        }
        /// Returns the value of each key.
        fn get as get(keys: &TensorDict, hashes: &Tensor) -> (TensorDict) {
            args = (keys.share()?, numbers(&hashes.share()?)?) => |map| map.values_of_hashed(&args.0, &args.1)
        }
        /// Returns whether each key is there.
        fn contains as contains(keys: &TensorDict, hashes: &Tensor) -> (Tensor) {
            args = (keys.share()?, numbers(&hashes.share()?)?) => |map| map.contains_hashed(&args.0, &args.1)
        }
        /// Returns how many equal keys come before each.
        fn repeats as repeats(keys: &TensorDict, hashes: &Tensor) -> (Float64Array) {
            args = (keys.share()?, numbers(&hashes.share()?)?) => |map| {
                let repeats = map.repeats(&args.0, &args.1)?;
                CoreResult::Ok(repeats.into_iter().map(f64::from).collect::<Vec<f64>>())
            }
        }
        /// Returns the number of keys.
        fn count as count() -> (f64) { |map| CoreResult::Ok(map.len() as f64) }
        /// Removes all keys.
        fn clear as clear() -> (()) {
            |map| {
                map.clear();
                CoreResult::Ok(())
            }
        }
        /// Returns the content.
        fn state as state() -> (TensorDict) { |map| map.state() }
        /// Replaces the content.
        fn load_state as loadState(state: &TensorDict) -> (()) { state = state.share()? => |map| map.load_state(&state) }
    }
}

face! {
    /// A forest of rollouts.
    MctsForest(tree::MctsForest)
    make {
        /// Makes an empty forest.
        fn create as create(options: String) { tree::MctsForest::new(options_from_json("options", &options)?) }
    }
    call {
        /// Adds steps; returns the row of the edge of each.
        fn extend as extend(rollout: &TensorDict) -> (Float64Array) {
            rollout = rollout.share()? => |forest| Ok(doubles(&forest.extend(&rollout)?))
        }
        /// Returns the edges of a state.
        fn node as node(root: &TensorDict) -> (TensorDict) {
            root = root.share()? => |forest| {
                let mut dict = tensor::TensorDict::new(&[])?;
                for node in forest.nodes(&root)?.into_iter().take(1) {
                    let wide = |values: Vec<i64>| tensor::Tensor::from_vec(&[values.len()], values);
                    dict.set("_index", wide(node.index.iter().map(|row| *row as i64).collect())?)?;
                    dict.set("_hash", wide(node.hash)?)?;
                    dict.set("visits", wide(node.visits.iter().map(|visits| visits.cast_signed()).collect())?)?;
                    let count = node.visits.iter().sum::<u64>();
                    dict.set("count", tensor::Tensor::from_vec(&[], vec![count.cast_signed()])?)?;
                }
                CoreResult::Ok(dict)
            }
        }
        /// Returns action and outcome of a state and an action.
        fn child as child(root: &TensorDict) -> (TensorDict) { root = root.share()? => |forest| forest.child(&root) }
        /// Reads a tree; a negative depth is no bound.
        fn tree as tree(root: &TensorDict, max_depth: f64, compact: bool) -> (RolloutTree) {
            root = root.share()? => |forest| {
                let max_depth = if max_depth < 0.0 { None } else { Some(index("maxDepth", max_depth)?) };
                forest.tree(&root, max_depth, compact)
            }
        }
        /// Returns the number of edges.
        fn count as count() -> (f64) { |forest| CoreResult::Ok(forest.len() as f64) }
        /// Removes all steps.
        fn clear as clear() -> (()) {
            |forest| {
                forest.clear();
                CoreResult::Ok(())
            }
        }
        /// Returns the content.
        fn state as state() -> (TensorDict) { |forest| forest.state() }
        /// Replaces the content.
        fn load_state as loadState(state: &TensorDict) -> (()) {
            state = state.share()? => |forest| forest.load_state(&state)
        }
    }
}

face! {
    /// A tree of rollouts.
    RolloutTree(tree::Tree)
    make {}
    call {
        /// Returns the number of vertices.
        fn num_vertices as numVertices() -> (f64) { |tree| CoreResult::Ok(tree.num_vertices() as f64) }
        /// Returns children, parents, hash and edges of a vertex, as JSON.
        fn vertex as vertex(id: f64) -> (String) {
            |tree| {
                let id = index("id", id)?;
                let hash = tree.hash(id)?.map(|hash| hash.to_string());
                let (children, parents) = (tree.children(id)?, tree.parents(id)?);
                let vertex = json!({ "children": children, "parents": parents, "hash": hash, "index": tree.index(id)? });
                CoreResult::Ok(vertex.to_string())
            }
        }
        /// Returns the steps to a vertex.
        fn rollout as rollout(id: f64) -> (Option<TensorDict>) {
            |tree| Ok(tree.rollout(index("id", id)?)?.map(TensorDict::from))
        }
        /// Returns the last observation of a vertex.
        fn node_data as nodeData(id: f64) -> (TensorDict) { |tree| tree.node_data(index("id", id)?) }
        /// Returns whether the last step to a vertex ended its episode.
        fn is_terminal as isTerminal(id: f64) -> (bool) { |tree| tree.is_terminal(index("id", id)?) }
        /// Returns the steps along a path.
        fn rollout_from_path as rolloutFromPath(path: &[f64]) -> (Option<TensorDict>) {
            |tree| Ok(tree.rollout_from_path(&indices("path", path)?)?.map(TensorDict::from))
        }
        /// Writes a line for each vertex; without labels their observations.
        fn to_text as toText(labels: Vec<String>) -> (String) {
            |tree| CoreResult::Ok(tree.to_text(&labelled(tree, &labels)))
        }
        /// Draws the tree.
        fn to_svg as toSvg(boxes: bool, labels: Vec<String>) -> (String) {
            |tree| {
                let label = labelled(tree, &labels);
                if boxes { tree.to_box_svg(&label) } else { tree.to_svg(&label) }
            }
        }
    }
}

face! {
    /// A score of actions.
    MctsScore((tree::Score, tree::ScoreKeys))
    make {
        /// Makes one from options.
        fn create as create(options: String, keys: String) {{
            let score = options_from_json::<tree::Score>("options", &options)?.checked()?;
            CoreResult::Ok((score, options_from_json("keys", &keys)?))
        }}
    }
    call {
        /// Returns the scores of nodes.
        fn forward as forward(node: &TensorDict) -> (Tensor) {
            node = node.share()? => |score| score.0.forward(&node, &score.1)
        }
        /// Returns the weights of EXP3.
        fn weights as weights(node: &TensorDict) -> (Tensor) {
            node = node.share()? => |score| tree::weights(&node, &score.1)
        }
        /// Returns the weights of EXP3 after a reward.
        fn updated as updated(weights: &Tensor, probability: &Tensor, action: f64, reward: f64) -> (Tensor) {
            args = (weights.share()?, probability.share()?) => |score| {
                let tree::Score::Exp3 { gamma } = score.0 else {
                    return Err(Error::new(ErrorKind::Incompatible, "score must be EXP3: got another"));
                };
                tree::exp3_update(&args.0, &args.1, index("action", action)?, reward, gamma)
            }
        }
    }
}

face! {
    /// A model that is a table.
    TableModel(std::sync::Arc<tree::TableModel>)
    make {
        /// Makes one of its columns.
        fn create as create(next: &Tensor, reward: &Tensor, discount: &Tensor, logits: &Tensor, value: &Tensor) {{
            let (next, reward, discount) = (next.share()?, reward.share()?, discount.share()?);
            tree::TableModel::new(&next, &reward, &discount, &logits.share()?, &value.share()?).map(std::sync::Arc::new)
        }}
    }
    call {
        /// Returns the number of actions.
        fn num_actions as numActions() -> (f64) { |model| CoreResult::Ok(model.num_actions() as f64) }
        /// Returns logits and then values of states.
        fn root as root(states: &[u32]) -> (Float32Array) {
            |model| {
                let (logits, values) = model.root(states)?;
                CoreResult::Ok([logits, values].concat())
            }
        }
    }
}

/// A search, the states of its nodes if its model is a table, and the nodes that wait for a model.
#[derive(Clone)]
pub struct Searching {
    search: tree::Search,
    kept: Vec<Vec<usize>>,
    states: Vec<Vec<Option<u32>>>,
    leaves: Vec<tree::Leaf>,
}

face! {
    /// A search over many trees.
    Search(Searching)
    make {
        /// Makes trees of their roots.
        fn create as create(logits: &[f32], values: &[f32], invalid: &[u8], gumbel: &[f32], options: String) {{
            let invalid: Vec<bool> = invalid.iter().map(|byte| *byte != 0).collect();
            let root = SearchRoot { logits, values, invalid_actions: &invalid, gumbel };
            let search = tree::Search::new(&root, options_from_json("options", &options)?)?;
            let (kept, states) = (vec![Vec::new(); search.num_trees()], vec![Vec::new(); search.num_trees()]);
            CoreResult::Ok(Searching { search, kept, states, leaves: Vec::new() })
        }}
        /// Makes trees of parts of earlier ones.
        fn reuse as reuse(
            earlier: &Search,
            actions: &[u32],
            logits: &[f32],
            values: &[f32],
            invalid: &[u8],
            gumbel: &[f32],
            options: String
        ) {{
            let invalid: Vec<bool> = invalid.iter().map(|byte| *byte != 0).collect();
            let root = SearchRoot { logits, values, invalid_actions: &invalid, gumbel };
            let earlier = earlier.share()?;
            let options = options_from_json("options", &options)?;
            let (search, kept) = tree::Search::reuse(&root, options, &earlier.search, actions)?;
            let states = kept.iter().zip(&earlier.states);
            let states = states.map(|(kept, states)| kept.iter().map(|node| states.get(*node).copied().flatten()).collect());
            CoreResult::Ok(Searching { search, states: states.collect(), kept, leaves: Vec::new() })
        }}
    }
    call {
        /// Returns the earlier node that each node of a tree was.
        fn kept as kept(tree: f64) -> (Float64Array) {
            |searching| Ok(searching.kept.get(index("tree", tree)?).map(|kept| doubles(kept)).unwrap_or_default())
        }
        /// Returns the number of simulations that are left.
        fn num_left as numLeft() -> (f64) { |searching| CoreResult::Ok(searching.search.num_left() as f64) }
        /// Returns the parents, then the actions, then the nodes of the next simulation.
        fn select as select() -> (Uint32Array) {
            |searching| {
                searching.leaves = searching.search.select()?;
                let of = |field: fn(&tree::Leaf) -> usize| searching.leaves.iter().map(move |leaf| field(leaf) as u32);
                let parts = of(|leaf| leaf.parent).chain(of(|leaf| leaf.action)).chain(of(|leaf| leaf.node));
                CoreResult::Ok(parts.collect::<Vec<u32>>())
            }
        }
        /// Adds the nodes of the last selection.
        fn expand as expand(rewards: &[f32], discounts: &[f32], values: &[f32], logits: &[f32]) -> (()) {
            |searching| {
                let num_trees = searching.search.num_trees();
                if [rewards, discounts, values].iter().any(|column| column.len() != num_trees) {
                    let (reward, discount, value) = (rewards.len(), discounts.len(), values.len());
                    let detail = format!("reward, discount and value must have {num_trees} elements: got {reward}, {discount} and {value}");
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                let outcome = |at: usize| Outcome { reward: rewards[at], discount: discounts[at], value: values[at] };
                let outcomes: Vec<Outcome> = (0..num_trees).map(outcome).collect();
                let leaves = std::mem::take(&mut searching.leaves);
                searching.search.expand(&leaves, &outcomes, logits)
            }
        }
        /// Runs simulations over a table. `states` are those of the roots.
        fn run_table as runTable(model: &TableModel, states: &[u32], count: f64) -> (()) {
            model = model.share()? => |searching| {
                model.root(states)?;
                if states.len() != searching.search.num_trees() {
                    let detail = format!("states must be {}, one for each tree: got {}", searching.search.num_trees(), states.len());
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                for (known, state) in searching.states.iter_mut().zip(states) {
                    known.resize(known.len().max(1), None);
                    known[0] = Some(*state);
                }
                searching.search.run_with(&*model, &mut searching.states, index("count", count)?)
            }
        }
        /// Chooses the action of each tree.
        fn answer as answer() -> (TensorDict) {
            |searching| {
                let answer = searching.search.answer();
                let shape = [searching.search.num_trees(), searching.search.num_actions()];
                let mut dict = tensor::TensorDict::new(&shape[..1])?;
                dict.set("action", tensor::Tensor::from_vec(&shape[..1], answer.actions)?)?;
                dict.set("action_weights", tensor::Tensor::from_vec(&shape, answer.action_weights)?)?;
                CoreResult::Ok(dict)
            }
        }
        /// Returns the values and visits of the roots.
        fn summary as summary() -> (TensorDict) { |searching| searching.search.summary() }
        /// Returns all nodes.
        fn arrays as arrays() -> (TensorDict) { |searching| searching.search.arrays() }
    }
}

fn hashed(hash: &dyn RowHash, rows: &tensor::Tensor) -> CoreResult<tensor::Tensor> {
    let hashes = hash.hash_rows(rows, 1)?;
    tensor::Tensor::from_vec(&[hashes.len()], hashes)
}

fn numbers(hashes: &tensor::Tensor) -> CoreResult<Vec<i64>> {
    if hashes.dtype() != Dtype::I64 {
        let detail = format!("hashes must be i64: got {}", hashes.dtype().name());
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    hashes.to_vec::<i64>()
}

fn doubles(rows: &[usize]) -> Vec<f64> {
    rows.iter().map(|row| *row as f64).collect()
}

fn labelled<'a>(tree: &'a tree::Tree, labels: &'a [String]) -> impl Fn(usize) -> String + 'a {
    |id| match labels.get(id) {
        Some(label) => label.clone(),
        None => tree.label(id).unwrap_or_default(),
    }
}
