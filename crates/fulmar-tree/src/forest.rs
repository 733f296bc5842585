//! A forest of rollouts: the graph of the states and actions that they went through.

use std::collections::HashSet;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::key_table::KeyTable;
use crate::query_module::{QueryModule, QueryOptions};
use crate::tensor_dict_map::{TensorDictMap, TensorDictMapOptions};
use crate::tree::Tree;
use crate::tree_builder::build;

/// Options of [`MctsForest`]. Keys are paths of a step at the root; below `next` they are the same.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct MctsForestOptions {
    /// Most pairs of a state and an action, from 1 to [`MAP_KEYS_MAX`](fulmar_core::limits::MAP_KEYS_MAX).
    pub max_size: usize,
    /// The entries that make up a state.
    pub observation_keys: Vec<Key>,
    /// The entries that make up an action.
    pub action_keys: Vec<Key>,
    /// The rewards of a step, below `next`.
    pub reward_keys: Vec<Key>,
    /// The marks of an end, below `next`; a vertex is terminal by the first of them that its last step has.
    pub done_keys: Vec<Key>,
    /// Entries of `next` and of the root that are not kept.
    pub excluded_keys: Vec<Key>,
    /// True: states are compared by their bytes, and the children of a vertex have their hashes in ascending order, as in torchrl.
    pub compatible: bool,
}

impl Default for MctsForestOptions {
    fn default() -> Self {
        Self {
            max_size: 1000,
            observation_keys: vec!["observation".into()],
            action_keys: vec!["action".into()],
            reward_keys: vec!["reward".into()],
            done_keys: vec!["done".into(), "truncated".into(), "terminated".into()],
            excluded_keys: Vec::new(),
            compatible: false,
        }
    }
}

/// The known actions of a state: one edge each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForestNode {
    /// Rows of the edges, ascending.
    pub index: Vec<usize>,
    /// The hash of each edge.
    pub hash: Vec<i64>,
    /// Number of writes of each edge.
    pub visits: Vec<u64>,
}

/// All steps of some rollouts, each pair of a state and an action once; a pair that comes again keeps its row and takes the new outcome.
/// Any tree that begins at a known state can be read from it: states that several paths reach are shared, and cycles end.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_tree::{MctsForest, MctsForestOptions};
/// let rollout = |observation: Vec<i64>, action: Vec<i64>, next: Vec<i64>| -> fulmar_core::Result<TensorDict> {
///     let mut steps = TensorDict::new(&[3])?;
///     steps.set("observation", Tensor::from_vec(&[3], observation)?)?;
///     steps.set("action", Tensor::from_vec(&[3], action)?)?;
///     steps.set(["next", "observation"], Tensor::from_vec(&[3], next)?)?;
///     Ok(steps)
/// };
/// let mut forest = MctsForest::new(MctsForestOptions::default())?;
/// let first = rollout(vec![0, 1, 2], vec![0, 0, 0], vec![1, 2, 3])?;
/// forest.extend(&first)?;
/// forest.extend(&rollout(vec![0, 1, 4], vec![0, 1, 0], vec![1, 4, 5])?)?;
/// let tree = forest.tree(&first.index(0)?, None, true)?;
/// assert_eq!((forest.len(), tree.num_vertices()), (5, 3));
/// assert_eq!(tree.valid_paths().collect::<Vec<_>>(), [[0], [1]]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct MctsForest {
    options: MctsForestOptions,
    edges: TensorDictMap,
    states: KeyTable,
    state_query: QueryModule,
    /// Edges that leave each state, ascending.
    outgoing: Vec<Vec<u32>>,
    /// The state that each edge leads to.
    target: Vec<u32>,
    visits: Vec<u64>,
}

impl MctsForest {
    /// Makes an empty forest.
    ///
    /// # Errors
    /// `OutOfRange` if `max_size` is not in its range; `Empty` without keys of observations or actions.
    pub fn new(options: MctsForestOptions) -> Result<Self> {
        if options.action_keys.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "action_keys must have at least one key: got 0"));
        }
        let state_query = QueryModule::new(options.observation_keys.clone(), QueryOptions::default())?;
        let states = KeyTable::new(options.observation_keys.clone(), options.compatible);
        let keys = [&options.observation_keys[..], &options.action_keys].concat();
        let map_options = TensorDictMapOptions {
            max_size: options.max_size,
            compatible: options.compatible,
            out_keys: None,
        };
        let edges = TensorDictMap::new(QueryModule::new(keys, QueryOptions::default())?, map_options)?;
        Ok(Self {
            options,
            edges,
            states,
            state_query,
            outgoing: Vec::new(),
            target: Vec::new(),
            visits: Vec::new(),
        })
    }

    /// Returns the number of edges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns true without edges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &MctsForestOptions {
        &self.options
    }

    /// Adds the steps of a rollout, or one step without a batch dimension. Returns the row of the edge of each.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible`, with the key, if an observation, an action or a next observation is missing or not a tensor;
    /// `ShapeMismatch` or `Incompatible` if it is not like the first; `LimitExceeded` if there would be more than `max_size` edges. After
    /// an error nothing has changed.
    pub fn extend(&mut self, rollout: &TensorDict) -> Result<Vec<usize>> {
        let steps = if rollout.batch_size().len() == 1 { rollout.clone() } else { rollout.reshape(&[-1])? };
        let values = self.values_of(&steps)?;
        let (now, next) = (self.observation(&steps)?, self.observation(steps.dict("next")?)?);
        let (now_hashes, next_hashes) = (self.state_query.hash(&now)?, self.state_query.hash(&next)?);
        // The first rollout decides shapes, also those of its own next observations.
        let mut states = if self.states.len() == 0 { Some(self.states.clone()) } else { None };
        let table = states.as_mut().unwrap_or(&mut self.states);
        table.keep_parts(&now)?;
        let now = table.rows_of(&now, &now_hashes)?;
        let next = table.rows_of(&next, &next_hashes).map_err(|error| error.at("next"))?;
        let rows = self.edges.insert(&steps, &values)?;
        if let Some(states) = states {
            self.states = states;
        }
        for (at, &edge) in rows.iter().enumerate() {
            let from = self.states.insert(&now, at);
            let to = self.states.insert(&next, at);
            self.outgoing.resize(self.states.len(), Vec::new());
            if edge == self.target.len() {
                self.target.push(to as u32);
                self.visits.push(0);
                self.outgoing[from].push(edge as u32);
            }
            self.target[edge] = to as u32;
            self.visits[edge] += 1;
        }
        Ok(rows)
    }

    /// Returns the edges of the state of each element of a batch, row-major; no edges for an unknown state.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible`, with the key, if an observation is missing or not a tensor; `ShapeMismatch` or `Incompatible` if it
    /// is not like the first.
    pub fn nodes(&self, root: &TensorDict) -> Result<Vec<ForestNode>> {
        let states = self.find_states(root)?;
        let node_of = |state: Option<usize>| {
            let index: Vec<usize> = state
                .map_or(&[][..], |state| self.edges_of(state))
                .iter()
                .map(|edge| *edge as usize)
                .collect();
            let hash = index.iter().map(|edge| self.edges.hashes()[*edge]).collect();
            let visits = index.iter().map(|edge| self.visits[*edge]).collect();
            ForestNode { index, hash, visits }
        };
        Ok(states.into_iter().map(node_of).collect())
    }

    /// Returns the action and the outcome `next` of the state and action of each element of a batch.
    ///
    /// # Errors
    /// `OutOfRange` if one is not an edge; those of [`MctsForest::extend`] for wrong keys.
    pub fn child(&self, root: &TensorDict) -> Result<TensorDict> {
        Ok(self.edges.get(root)?.exclude(&self.options.observation_keys))
    }

    /// Reads the tree below the state of `root`, which has no batch dimension. A compact tree has a vertex for each state with several known
    /// actions and each last state; otherwise each step leads to a vertex. `max_depth` bounds the depth of the vertices that branch.
    ///
    /// # Errors
    /// `OutOfRange` if the state has no known action; those of [`MctsForest::nodes`].
    pub fn tree(&self, root: &TensorDict, max_depth: Option<usize>, compact: bool) -> Result<Tree> {
        if !root.batch_size().is_empty() {
            let detail = format!("root must have no batch dimension: got batch size {:?}", root.batch_size());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let state = self.find_states(root)?.into_iter().flatten().next();
        let Some(state) = state.filter(|state| !self.edges_of(*state).is_empty()) else {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                "root must be a state with known actions: got another",
            ));
        };
        let plan = build(self, state, max_depth, compact);
        let rows: Vec<usize> = plan.steps.iter().map(|edge| *edge as usize).collect();
        let steps = self.edges.values_at(&rows)?;
        Tree::new(plan, &self.observation(root)?, steps, &self.options)
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.edges.clear();
        self.states.clear();
        (self.outgoing, self.target, self.visits) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Returns the content: `edges`, as [`TensorDictMap::state`] gives it, and `visits`.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it.
    pub fn state(&self) -> Result<TensorDict> {
        let mut state = TensorDict::new(&[])?;
        if !self.is_empty() {
            state.set("edges", self.edges.state()?)?;
            let visits = self.visits.iter().map(|visits| visits.cast_signed()).collect();
            state.set("visits", Tensor::from_vec(&[self.len()], visits)?)?;
        }
        Ok(state)
    }

    /// Replaces the content by one that [`MctsForest::state`] returned.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible` if an entry is missing or of another kind; `Corrupt` if the numbers of edges differ; those of
    /// [`MctsForest::extend`]. After an error nothing has changed.
    pub fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        let mut loaded = Self::new(self.options.clone())?;
        if state.num_entries() > 0 {
            let visits = state.tensor("visits")?.to_vec::<i64>()?;
            loaded.extend(state.dict(["edges", "values"])?)?;
            if visits.len() != loaded.len() {
                let detail =
                    format!("visits must be {}, one for each edge: got {}", loaded.len(), visits.len());
                return Err(Error::new(ErrorKind::Corrupt, detail));
            }
            loaded.visits = visits.into_iter().map(i64::cast_unsigned).collect();
        }
        *self = loaded;
        Ok(())
    }

    pub(crate) fn edges_of(&self, state: usize) -> &[u32] {
        self.outgoing.get(state).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn target_of(&self, edge: u32) -> usize {
        self.target[edge as usize] as usize
    }

    pub(crate) fn hash_of(&self, edge: u32) -> i64 {
        self.edges.hashes()[edge as usize]
    }

    fn find_states(&self, dict: &TensorDict) -> Result<Vec<Option<usize>>> {
        let observation = self.observation(dict)?;
        let hashes = self.state_query.hash(&observation)?;
        let rows = self.states.rows_of(&observation, &hashes)?;
        Ok((0..rows.count()).map(|at| self.states.find(&rows, at)).collect())
    }

    fn observation(&self, dict: &TensorDict) -> Result<TensorDict> {
        dict.select(&self.options.observation_keys)
    }

    /// Returns what is kept of steps: `next`, the actions, the observations.
    fn values_of(&self, steps: &TensorDict) -> Result<TensorDict> {
        let mut values = TensorDict::new(steps.batch_size())?;
        values.set("next", steps.dict("next")?.exclude(&self.options.excluded_keys))?;
        let excluded: HashSet<&Key> = self.options.excluded_keys.iter().collect();
        for key in self.options.action_keys.iter().chain(&self.options.observation_keys) {
            let entry = Entry::from(steps.tensor(key.clone())?.clone());
            if !excluded.contains(key) || self.options.observation_keys.contains(key) {
                values.set(key.clone(), entry)?;
            }
        }
        Ok(values)
    }
}
