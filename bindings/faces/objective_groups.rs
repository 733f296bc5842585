// The face of the queues of groups and of the KL controller of `fulmar-objective`, once for Node and for WebAssembly: each includes
// this table into its own `objective/groups.rs`, see `bindings/faces/tensor.rs`. Tickets and their values are passed as JSON.

use fulmar::compute::Compute;
use fulmar::core::{Error, ErrorKind, Result as CoreResult, index_from_f64, options_from_json};
use fulmar::objective::{
    self, AdaptiveKlController, AdvantageOptions, Groups, HeadGradients, KlReward, LinearHead, McAdvantage, McAdvantageSelector,
    RewardTable, TokenGradients, TokenLogProbs, TopKRewardSelector,
};

/// A value of the core as JSON.
macro_rules! json {
    ($value:expr) => {
        serde_json::to_string($value)
            .map_err(|error| Error::new(ErrorKind::NonFinite, format!("result must be written: {error}")).because(error))
    };
}

face! {
    /// Queues of rollouts, each until its group is complete.
    GroupQueues(McAdvantage)
    make {
        /// Makes empty queues.
        fn create as create(options: String) { McAdvantage::new(options_from_json("MCAdvantage", &options)?) }
    }
    call {
        /// Adds a rollout; returns `[ticket, { tickets, advantages, released }]`.
        fn push as push(group: String, rewards: &[f64]) -> (String) { |queues| json!(&queues.push(&group, rewards)?) }
        /// Adds a rollout without selecting any; returns its ticket.
        fn enqueue as enqueue(group: String, rewards: &[f64]) -> (f64) {
            |queues| Ok(queues.enqueue(&group, rewards)? as f64)
        }
        /// Returns the returns of a group that is ready for selection, or null.
        fn candidates as candidates(group: String) -> (String) { |queues| json!(&queues.candidates(&group)) }
        /// Releases the chosen rollouts, a list of indices or null; returns `{ tickets, advantages, released }`.
        fn settle as settle(group: String, chosen: String) -> (String) {
            |queues| {
                let chosen: Option<Vec<usize>> = options_from_json("choice", &chosen)?;
                json!(&queues.settle(&group, chosen.as_deref())?)
            }
        }
        /// Returns the counts.
        fn stats as stats() -> (String) { |queues| json!(&queues.stats()) }
        /// Resets the counts to 0.
        fn reset_stats as resetStats() -> (()) { |queues| { queues.reset_stats(); CoreResult::Ok(()) } }
        /// Empties the queues; returns the tickets of their rollouts.
        fn clear_queues as clearQueues() -> (String) { |queues| json!(&queues.clear_queues()) }
        /// Removes the oldest group; returns the tickets of its rollouts.
        fn evict_oldest as evictOldest() -> (String) { |queues| json!(&queues.evict_oldest()) }
        /// Returns the state for a restart.
        fn state as state() -> (String) { |queues| queues.state_json() }
        /// Restores a state.
        fn load_state as loadState(state: String) -> (()) { |queues| queues.load_state_json(&state) }
    }
}

face! {
    /// Queues of rollouts, each until its prompt has enough to compare.
    TopKQueues(TopKRewardSelector)
    make {
        /// Makes empty queues.
        fn create as create(options: String) {
            TopKRewardSelector::new(options_from_json("TopKRewardSelector", &options)?)
        }
    }
    call {
        /// Adds a rollout; returns `{ ticket, compared, released }`.
        fn push as push(prompt: String, reward: f64) -> (String) { |queues| json!(&queues.push(&prompt, reward)?) }
    }
}

face! {
    /// A KL coefficient that adapts to the measured divergence.
    KlController(AdaptiveKlController)
    make {
        /// Starts at `coefficient`.
        fn create as create(coefficient: f64, target: f64, horizon: f64) {
            AdaptiveKlController::new(coefficient, target, horizon)
        }
    }
    call {
        /// Returns the coefficient in use.
        fn coefficient as coefficient() -> (f64) { |controller| CoreResult::Ok(controller.coefficient()) }
        /// Returns the coefficient after these divergences.
        fn update as update(kl: &[f64]) -> (f64) { |controller| controller.update(kl) }
    }
}

/// Returns the indices of the chosen candidates as JSON, or null.
fn chosen_of(options: &str, returns: &[f64], group_size: f64, bounds: &str) -> CoreResult<String> {
    let selector: McAdvantageSelector = options_from_json("selectRollouts", options)?;
    let bounds = options_from_json("keepReturnBounds", bounds)?;
    json!(&selector.select(returns, index_from_f64("groupSize", group_size)?, bounds)?)
}

fn advantages_of(
    options: [&str; 2],
    table: RewardTable<'_>,
    group_size: Option<f64>,
    group_offsets: Option<&[u32]>,
) -> CoreResult<objective::GroupAdvantage> {
    let scaling: AdvantageOptions = options_from_json("groupAdvantage", options[0])?;
    let aggregation = options_from_json("aggregation", options[1])?;
    let size = group_size.map(|size| index_from_f64("groupSize", size)).transpose()?;
    objective::multi_reward_advantage(table, Groups::either(size, group_offsets)?, aggregation, &scaling)
}

/// Returns the KL estimates, then the rewards.
fn kl_and_reward(KlReward { kl, reward }: KlReward) -> Vec<f32> {
    [kl, reward].concat()
}

/// Returns log-probabilities, then entropies, then, on request, logarithms of sums of squares.
fn token_log_probs_of(
    (logits, ids): (&[f32], &[u32]),
    temperature: f64,
    device: &str,
    with_squares: bool,
) -> CoreResult<Vec<f32>> {
    let compute = Compute::open(device.parse()?)?;
    if with_squares {
        return Ok(parts_of(objective::token_log_probs_and_squares(logits, ids, temperature, compute)?));
    }
    Ok(parts_of((objective::token_log_probs(logits, ids, temperature, compute)?, Vec::new())))
}

/// Returns the same for the logits of a linear head.
fn head_log_probs_of(
    head: LinearHead<'_>,
    hidden: &[f32],
    ids: &[u32],
    with_squares: bool,
) -> CoreResult<Vec<f32>> {
    if with_squares {
        return Ok(parts_of(head.log_probs_and_squares(hidden, ids)?));
    }
    Ok(parts_of((head.log_probs(hidden, ids)?, Vec::new())))
}

fn parts_of((TokenLogProbs { log_prob, entropy }, squares): (TokenLogProbs, Vec<f32>)) -> Vec<f32> {
    [log_prob, entropy, squares].concat()
}

/// Returns the compute backend of the device with this name, for what runs on the CPU alone.
pub(super) fn compute_of(device: &str) -> CoreResult<Compute> {
    Compute::on(device.parse()?)
}

/// Returns a head `[V, width]`, given `[width, temperature]`.
fn head_of<'a>(
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    [width, temperature]: [f64; 2],
    device: &str,
) -> CoreResult<LinearHead<'a>> {
    let (width, compute) = (index_from_f64("width", width)?, Compute::open(device.parse()?)?);
    let (weight, bias) = (weight.into(), bias.map(Into::into));
    Ok(LinearHead { weight, panels: None, bias, width, temperature, precision: Default::default(), compute })
}

/// Returns the gradients by hidden states, then weights, then bias.
fn all_of(HeadGradients { hidden, weight, bias }: HeadGradients) -> Vec<f32> {
    [hidden, weight, bias.unwrap_or_default()].concat()
}

/// Returns the gradient by logits, given those by log-probabilities and then, if the loss has some, by entropies.
fn logits_gradient(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    gradients: &[f32],
    device: &str,
) -> CoreResult<Vec<f32>> {
    let mut logits = logits.to_vec();
    let TokenGradients { log_prob, entropy } = split(gradients, ids.len());
    objective::logits_loss(&mut logits, ids, temperature, Compute::open(device.parse()?)?, |_| {
        Ok((log_prob.to_vec(), entropy.map(<[f32]>::to_vec), ()))
    })?;
    Ok(logits)
}

fn split(gradients: &[f32], num_ids: usize) -> TokenGradients<'_> {
    let (log_prob, entropy) = gradients.split_at(num_ids.min(gradients.len()));
    TokenGradients { log_prob, entropy: Some(entropy).filter(|entropy| !entropy.is_empty()) }
}
