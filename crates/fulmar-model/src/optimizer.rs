//! AdamW, SGD and Muon over the trained weights of a decoder, with gradient clipping by norm.

mod options;

use std::ops::Range;

use fulmar_compute::{
    AdamwStep, Compute, Floats, FloatsMut, Memory, SgdStep, View, ViewMut, newton_schulz_floats,
};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::safetensors;

use crate::decoder::Decoder;
use crate::parameters::{self, Parameter};

pub use options::{AdamWOptions, Decay, MuonOptions, MuonScale, OptimizerOptions, SgdOptions};

/// The result of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Number of this step, from 1.
    pub step: u64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Factor that clipping applied, <= 1.
    pub clip_coefficient: f64,
}

/// Updates the weights of one decoder from its gradients. Stores the state of its rule: AdamW two moments a
/// weight, Muon one (its momentum), SGD one or none. For weights in bfloat16 it also stores master copies in
/// single precision. A step changes these, so that steps too small for bfloat16 add up, and the weights are
/// rounded from them.
///
/// # Examples
/// ```
/// use fulmar_model::{AdamWOptions, Decoder, DecoderConfig, Optimizer, TokenBatch};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "llama", "vocab_size": 5, "hidden_size": 4, "intermediate_size": 8,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let mut decoder = Decoder::new(config, 1)?;
/// let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default())?;
/// let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1], ..Default::default() };
/// let before = decoder.forward(&batch)?.log_prob[1];
/// decoder.backward(&[0.0, -1.0], None)?;
/// optimizer.step(&mut decoder, Some(1e-2), Some(1.0))?;
/// assert!(decoder.score(&batch)?.log_prob[1] > before);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Optimizer {
    options: OptimizerOptions,
    compute: Compute,
    num_steps: u64,
    groups: Vec<Group>,
    num_weights: usize,
    /// First moment or momentum.
    moment1: Moment,
    moment2: Moment,
    /// The weights before rounding, if they are rounded.
    master: Moment,
}

/// One value for each weight of some parameters.
#[derive(Debug, Clone, Default)]
struct Moment {
    /// The parameters of these values, with their ranges here.
    parameters: Vec<Parameter>,
    values: Memory<f32>,
}

/// Adjacent weights with the same step.
#[derive(Debug, Clone)]
struct Group {
    rule: Rule,
    decays: bool,
    weights: Range<usize>,
    moment1: Range<usize>,
    moment2: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    AdamW,
    Sgd,
    /// The step of one matrix.
    Muon {
        rows: usize,
        cols: usize,
    },
}

impl Optimizer {
    /// Returns zero moments for the trained weights of `decoder`: all, or its adapter's.
    ///
    /// # Errors
    /// `OutOfRange` or `Incompatible`, naming the option; `UnknownName` for a name pattern without a match.
    pub fn new(decoder: &Decoder, options: impl Into<OptimizerOptions>) -> Result<Self> {
        Self::over(decoder.trainable(), decoder.trained(), options.into(), decoder.compute())
    }

    fn over(
        parameters: &[Parameter],
        weights: Floats<'_>,
        options: OptimizerOptions,
        compute: Compute,
    ) -> Result<Self> {
        options.check(parameters)?;
        let mut groups = Vec::<Group>::new();
        let [mut moment1, mut moment2, mut master] = <[Moment; 3]>::default();
        for parameter in parameters {
            let (rule, decay) = rule_of(&options, parameter);
            let keeps_first = !matches!(&options, OptimizerOptions::Sgd(sgd) if sgd.momentum == 0.0);
            let group = Group {
                rule,
                decays: decay.holds(parameter),
                weights: parameter.range.clone(),
                moment1: moment1.add(parameter, keeps_first),
                moment2: moment2.add(parameter, rule == Rule::AdamW),
            };
            master.add(parameter, is_rounded(weights));
            match groups.last_mut() {
                Some(last) if last.extends(&group) => last.extend(&group),
                _ => groups.push(group),
            }
        }
        let num_weights = parameters.iter().map(|parameter| parameter.range.len()).sum();
        for moment in [&mut moment1, &mut moment2] {
            moment.values = compute.zeros(moment.len())?;
        }
        if is_rounded(weights) {
            master.values = compute.hold(weights.read()?.into_owned())?;
        }
        Ok(Self { options, compute, num_steps: 0, groups, num_weights, moment1, moment2, master })
    }

    /// Returns the number of steps taken.
    #[must_use]
    pub const fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Returns the number of floats of the optimizer state.
    #[must_use]
    pub fn num_floats(&self) -> usize {
        self.moment1.values.len() + self.moment2.values.len() + self.master.values.len()
    }

    /// Updates the weights of `decoder` from its gradients, scaled down to norm `max_norm` if longer, and
    /// sets the gradients to 0. `learning_rate` overrides the one of the options, as a schedule needs.
    ///
    /// # Errors
    /// `NonFinite` if the gradient is not finite: weights and moments are then unchanged and the gradients 0.
    /// `OutOfRange` for an invalid rate or norm, `Closed` without gradients, `ShapeMismatch` for another
    /// decoder, `Incompatible` if its dtype or its device has changed. `OutOfMemory` for a GPU without memory for intermediate
    /// results: nothing has then changed. `Unavailable` for a GPU that fails.
    pub fn step(
        &mut self,
        decoder: &mut Decoder,
        learning_rate: Option<f64>,
        max_norm: Option<f64>,
    ) -> Result<StepReport> {
        let learning_rate = learning_rate.unwrap_or(self.options.learning_rate());
        let out_of_range = |name: &str, value: f64, rule: &str| {
            Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")))
        };
        if !(learning_rate.is_finite() && learning_rate >= 0.0) {
            return out_of_range("learning_rate", learning_rate, ">= 0");
        }
        if let Some(max_norm) = max_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return out_of_range("max_norm", max_norm, "> 0");
        }
        if decoder.num_trainable() != self.num_weights {
            let (ours, theirs) = (self.num_weights, decoder.num_trainable());
            let detail = format!("decoder must have this optimizer's {ours} parameters: got {theirs}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if is_rounded(decoder.trained()) == self.master.values.is_empty() {
            let detail = format!(
                "decoder must have the dtype that it had when this optimizer was made: got {}",
                decoder.dtype().name()
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if decoder.compute() != self.compute {
            let (ours, theirs) = (self.compute.device(), decoder.device());
            let detail = format!("decoder must be on {ours}, where this optimizer was made: got {theirs}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if !decoder.has_gradients() {
            return Err(Error::new(ErrorKind::Closed, "step must follow a backward pass"));
        }
        let mut workspace = self.compute.zeros(self.workspace_len())?;
        let gradient_norm = decoder.gradient_norm();
        self.compute.check()?;
        if !gradient_norm.is_finite() {
            decoder.zero_gradients();
            let detail = format!("gradient norm must be finite: got {gradient_norm}");
            return Err(Error::new(ErrorKind::NonFinite, detail));
        }
        let clip_coefficient = max_norm.map_or(1.0, |max| (max / (gradient_norm + 1e-6)).min(1.0));
        match decoder.trainable_and_gradients() {
            (FloatsMut::F32(weights), gradients) => {
                self.update(weights, gradients, learning_rate, clip_coefficient, &mut workspace);
            }
            (FloatsMut::Bf16(weights), gradients) => {
                let mut master = std::mem::take(&mut self.master.values);
                // For example, merging an adapter changes weights without their masters.
                self.compute.take_other_bf16(&weights, &mut master);
                let weights_f32 = master.view_mut();
                self.update(weights_f32, gradients, learning_rate, clip_coefficient, &mut workspace);
                self.compute.f32_to_bf16(&master, weights);
                self.master.values = master;
            }
        }
        decoder.store_for_passes();
        decoder.zero_gradients();
        self.compute.check()?;
        Ok(StepReport { step: self.num_steps, gradient_norm, clip_coefficient })
    }

    fn update(
        &mut self,
        mut weights: ViewMut<'_, f32>,
        gradients: View<'_, f32>,
        learning_rate: f64,
        scale: f64,
        workspace: &mut Memory<f32>,
    ) {
        self.num_steps += 1;
        for group in &self.groups {
            let weights = weights.reborrow().slice(group.weights.clone());
            let gradients = gradients.slice(group.weights.clone());
            let moment1 = self.moment1.values.view_mut().slice(group.moment1.clone());
            let decay = |weight_decay: f64| if group.decays { weight_decay } else { 0.0 };
            let moment2 = self.moment2.values.view_mut().slice(group.moment2.clone());
            let adamw = |options: &AdamWOptions, learning_rate: f64, weights, moment1| {
                let AdamWOptions { beta1, beta2, eps, weight_decay, .. } = *options;
                let decay = decay(weight_decay);
                let step = AdamwStep::at(self.num_steps, learning_rate, (beta1, beta2), eps, decay, scale);
                self.compute.adamw_step(step, weights, gradients, moment1, moment2);
            };
            match (&self.options, group.rule) {
                (OptimizerOptions::AdamW(options), _) => adamw(options, learning_rate, weights, moment1),
                (OptimizerOptions::Sgd(options), _) => {
                    let step = SgdStep {
                        learning_rate: learning_rate as f32,
                        momentum: options.momentum as f32,
                        dampening: options.dampening as f32,
                        nesterov: options.nesterov,
                        decay: decay(options.weight_decay) as f32,
                        gradient_scale: scale as f32,
                        first: self.num_steps == 1,
                    };
                    self.compute.sgd_step(step, weights, gradients, moment1);
                }
                (OptimizerOptions::Muon(options), Rule::Muon { rows, cols }) => {
                    let decay = decay(options.weight_decay);
                    let compute = self.compute;
                    let step = MuonStep { options, learning_rate, decay, scale: scale as f32, compute };
                    let workspace = workspace.view_mut().slice(..workspace_of((rows, cols)));
                    step.take((rows, cols), weights, gradients, moment1, workspace);
                }
                (OptimizerOptions::Muon(options), _) => {
                    let share = learning_rate / options.learning_rate;
                    adamw(&options.adamw, options.adamw.learning_rate * share, weights, moment1);
                }
            }
        }
    }

    /// Returns the number of floats of the workspace of a step, which is allocated before any weight changes.
    fn workspace_len(&self) -> usize {
        let of_group = |group: &Group| match group.rule {
            Rule::Muon { rows, cols } => workspace_of((rows, cols)),
            Rule::AdamW | Rule::Sgd => 0,
        };
        self.groups.iter().map(of_group).max().unwrap_or(0)
    }

    /// Returns moments and step count as a safetensors file: `moment1.<name>`, `moment2.<name>`, and
    /// `master.<name>` for weights in bfloat16.
    ///
    /// # Errors
    /// The errors of [`safetensors::write`]; `ShapeMismatch` for another decoder.
    pub fn to_safetensors(&self, decoder: &Decoder) -> Result<Vec<u8>> {
        if decoder.num_trainable() != self.num_weights {
            let (ours, theirs) = (self.num_weights, decoder.num_trainable());
            let detail = format!("decoder must have this optimizer's {ours} parameters: got {theirs}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut tensors = Vec::new();
        for (prefix, moment) in
            [("moment1", &self.moment1), ("moment2", &self.moment2), ("master", &self.master)]
        {
            for parameter in &moment.parameters {
                let values = moment.values.view().slice(parameter.range.clone()).read()?.into_owned();
                let tensor = fulmar_tensor::Tensor::from_vec_f32(&parameter.shape, values)?;
                tensors.push((format!("{prefix}.{}", parameter.name), tensor));
            }
        }
        let num_steps = self.num_steps.to_string();
        let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        safetensors::write(named, &[("num_steps", num_steps.as_str()), ("optimizer", self.options.name())])
    }

    /// Returns the optimiser that [`Optimizer::to_safetensors`] wrote.
    ///
    /// # Errors
    /// The errors of [`safetensors::read`] and [`Optimizer::new`]; `Incompatible` for the file of another
    /// optimizer or architecture, or without its step count.
    pub fn from_safetensors(
        decoder: &Decoder,
        options: impl Into<OptimizerOptions>,
        bytes: &[u8],
    ) -> Result<Self> {
        let mut optimizer = Self::new(decoder, options)?;
        let mut file = safetensors::read(bytes)?;
        parameters::check_whole(&file)?;
        let incompatible = |detail: String| Error::new(ErrorKind::Incompatible, detail);
        let written = file.metadata.get("optimizer").map_or("", String::as_str);
        if written != optimizer.options.name() {
            let name = optimizer.options.name();
            return Err(incompatible(format!("optimizer file must be that of {name}: got {written:?}")));
        }
        let num_steps = file.metadata.get("num_steps").and_then(|text| text.parse().ok());
        optimizer.num_steps = num_steps
            .ok_or_else(|| incompatible("optimizer file must hold num_steps as a number".to_owned()))?;
        let Self { moment1, moment2, master, compute, .. } = &mut optimizer;
        for (prefix, moment) in [("moment1", moment1), ("moment2", moment2), ("master", master)] {
            let mut part = safetensors::File::default();
            for parameter in &moment.parameters {
                if let Some(tensor) = file.tensors.remove(&format!("{prefix}.{}", parameter.name)) {
                    part.tensors.insert(parameter.name.clone(), tensor);
                }
            }
            moment.values = compute.hold(parameters::read(&moment.parameters, &part)?)?;
        }
        match file.tensors.keys().next() {
            None => Ok(optimizer),
            Some(name) => {
                let detail =
                    format!("optimizer file must hold only this architecture's moments: got {name:?}");
                Err(incompatible(detail))
            }
        }
    }
}

/// Returns the number of floats of a step of Muon: the direction, and the workspace of its orthogonalisation.
fn workspace_of((rows, cols): (usize, usize)) -> usize {
    rows * cols + newton_schulz_floats((rows, cols))
}

/// Returns whether the stored dtype of weights is narrower than that of a step.
const fn is_rounded(weights: Floats<'_>) -> bool {
    matches!(weights, Floats::Bf16(_))
}

impl Moment {
    /// Returns the number of values, allocated or planned.
    fn len(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.range.end)
    }

    /// Reserves the values of `parameter`, if they are stored.
    fn add(&mut self, parameter: &Parameter, is_kept: bool) -> Range<usize> {
        let first = self.len();
        if !is_kept {
            return first..first;
        }
        let range = first..first + parameter.range.len();
        self.parameters.push(Parameter { range: range.clone(), ..parameter.clone() });
        range
    }
}

impl Group {
    /// Returns whether `next` has the same elementwise step and directly follows.
    fn extends(&self, next: &Self) -> bool {
        let is_matrix = matches!(self.rule, Rule::Muon { .. });
        !is_matrix
            && self.rule == next.rule
            && self.decays == next.decays
            && self.weights.end == next.weights.start
    }

    fn extend(&mut self, next: &Self) {
        self.weights.end = next.weights.end;
        self.moment1.end = next.moment1.end;
        self.moment2.end = next.moment2.end;
    }
}

fn rule_of<'a>(options: &'a OptimizerOptions, parameter: &Parameter) -> (Rule, &'a Decay) {
    match options {
        OptimizerOptions::AdamW(options) => (Rule::AdamW, &options.decay),
        OptimizerOptions::Sgd(options) => (Rule::Sgd, &options.decay),
        OptimizerOptions::Muon(options) => match parameter.shape[..] {
            [rows, cols] if MuonOptions::holds(parameter) => (Rule::Muon { rows, cols }, &options.decay),
            _ => (Rule::AdamW, &options.adamw.decay),
        },
    }
}

/// A step of Muon, in the order of operations of `torch.optim.Muon`:
///
/// ```text
/// b += (1 - momentum) (g - b)         u = g + momentum (b - g) with Nesterov, else b
/// w -= lr decay w                     w -= lr scale(out, in) newton_schulz(u)
/// ```
struct MuonStep<'a> {
    options: &'a MuonOptions,
    learning_rate: f64,
    decay: f64,
    scale: f32,
    compute: Compute,
}

impl MuonStep<'_> {
    fn take(
        &self,
        shape: (usize, usize),
        weights: ViewMut<'_, f32>,
        gradients: View<'_, f32>,
        momentum: ViewMut<'_, f32>,
        workspace: ViewMut<'_, f32>,
    ) {
        let MuonOptions { nesterov, num_iterations, coefficients: [a, b, c], eps, .. } = *self.options;
        let (compute, keep) = (self.compute, self.options.momentum as f32);
        let (mut direction, workspace) = workspace.split_at(gradients.len());
        compute.muon_direction(gradients, momentum, &mut direction, self.scale, keep, nesterov);
        let coefficients = (a as f32, b as f32, c as f32);
        compute.newton_schulz(&mut direction, shape, coefficients, num_iterations, eps as f32, workspace);
        let rate = (self.learning_rate * self.options.scale.factor(shape.0, shape.1)) as f32;
        let kept = (1.0 - self.learning_rate * self.decay) as f32;
        compute.mix(&direction, weights, -rate, kept);
    }
}

#[cfg(test)]
mod tests;
