//! Low-rank adapters (Hu et al., <https://arxiv.org/abs/2106.09685>). A frozen projection `x W^T` becomes
//! `x (W + s B A)^T` with trained A `[r, in]`, B `[out, r]` and `s = alpha / r`, or `alpha / sqrt(r)` for
//! rank-stabilised ones (<https://arxiv.org/abs/2312.03732>). Files are in PEFT's format.
//!
//! The sum is computed once for each version of the adapter, in single precision, and packed. Trainer and
//! sampler both multiply with it, so an adapter costs them nothing, and [`Lora::merge`] changes no log-prob
//! of a model in single precision. The backward pass goes through A and B.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use fulmar_compute::{Compute, FloatMemory, Floats, MatRef, MatmulPrecision, Memory, View, ViewMut};
use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_tensor::safetensors;

use crate::panels::{PanelCache, PanelsByStart};
use crate::parameters::{self, Layout, Linear, Parameter, ScalarRanges};
use crate::weights::Weights;

mod config;
mod layer;
mod targets;

pub use config::LoraConfig;
pub(crate) use layer::LayerLora;
use targets::Targets;

/// The two matrices of one projection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    a: Range<usize>,
    b: Range<usize>,
}

/// An adapter of a decoder: its weights in one buffer.
#[derive(Debug, Clone)]
pub(crate) struct Lora {
    pub config: LoraConfig,
    pub parameters: Vec<Parameter>,
    weights: Memory<f32>,
    /// By layer, then by projection.
    pairs: Vec<BTreeMap<&'static str, Pair>>,
    /// The sums of weights and adapter: packed on the CPU, as they are on a GPU.
    merged: PanelCache,
    merged_on_gpu: MergedCache,
    /// The scalar head that is trained with the adapter, in `weights`; the model's own is unchanged.
    pub scalar: Option<ScalarRanges>,
}

impl Lora {
    /// Returns an adapter of `weights` that changes nothing yet: A is uniform within `1 / sqrt(in)` as in
    /// PEFT, B is 0.
    pub(crate) fn new(config: LoraConfig, layout: &Layout, weights: Floats<'_>, seed: u64) -> Result<Self> {
        config.check_fresh()?;
        let mut lora = Self::blank(config, layout)?;
        for (ours, theirs) in lora.scalar_tensors(layout) {
            lora.weights.cpu_mut()[ours].copy_from_slice(&weights.slice(theirs).read()?);
        }
        let rng = Rng::new(seed).stream("lora");
        for parameter in lora.parameters.iter().filter(|parameter| parameter.name.ends_with(LORA_A)) {
            let mut rng = rng.stream(&parameter.name);
            let bound = 1.0 / libm::sqrt(parameter.shape[1] as f64);
            lora.weights.cpu_mut()[parameter.range.clone()]
                .fill_with(|| ((2.0 * rng.uniform_f64() - 1.0) * bound) as f32);
        }
        Ok(lora)
    }

    fn blank(config: LoraConfig, layout: &Layout) -> Result<Self> {
        config.check(layout)?;
        let targets = Targets::new(&config)?;
        targets.check(layout)?;
        let (mut parameters, mut pairs, mut len) = (Vec::new(), Vec::new(), 0);
        for (index, layer) in layout.layers.iter().enumerate() {
            let mut of_layer = BTreeMap::new();
            for linear in layer.linears() {
                if !targets.holds(&linear.module_name(index), Some(index)) {
                    continue;
                }
                config.check_rank(linear)?;
                let mut add = |end: &str, shape: [usize; 2]| {
                    let range = len..len + shape[0] * shape[1];
                    len = range.end;
                    let name = format!("{PREFIX}{}{end}", linear.module_name(index));
                    parameters.push(Parameter { name, shape: shape.to_vec(), range: range.clone() });
                    range
                };
                let a = add(LORA_A, [config.r, linear.inputs]);
                let b = add(LORA_B, [linear.outputs, config.r]);
                of_layer.insert(linear.name, Pair { a, b });
            }
            pairs.push(of_layer);
        }
        let mut copy = |range: &Range<usize>| {
            let parameter = layout.parameters.iter().find(|parameter| parameter.range == *range)?;
            let range = len..len + range.len();
            len = range.end;
            let name = format!("{PREFIX}{}", parameter.name);
            parameters.push(Parameter { name, shape: parameter.shape.clone(), range: range.clone() });
            Some(range)
        };
        let scalar = layout.scalar.as_ref().and_then(|ScalarRanges { weight, bias }| {
            Some(ScalarRanges { weight: copy(weight)?, bias: bias.as_ref().and_then(&mut copy) })
        });
        let weights = vec![0.0; len].into();
        let (merged, merged_on_gpu) = (PanelCache::default(), MergedCache::default());
        Ok(Self { config, parameters, weights, pairs, merged, merged_on_gpu, scalar })
    }

    /// Returns the ranges of the tensors of the scalar head, here and in the model.
    fn scalar_tensors(&self, layout: &Layout) -> Vec<(Range<usize>, Range<usize>)> {
        let (Some(ours), Some(theirs)) = (&self.scalar, &layout.scalar) else { return Vec::new() };
        let biases = ours.bias.clone().zip(theirs.bias.clone());
        std::iter::once((ours.weight.clone(), theirs.weight.clone())).chain(biases).collect()
    }

    /// Returns the adapter from the bytes of PEFT's two files.
    pub(crate) fn read(config: LoraConfig, layout: &Layout, bytes: &[u8]) -> Result<Self> {
        Self::of_file(config, layout, &safetensors::read(bytes)?)
    }

    /// Returns the adapter from PEFT's two files, one already parsed.
    pub(crate) fn of_file(config: LoraConfig, layout: &Layout, file: &safetensors::File) -> Result<Self> {
        config.check_file()?;
        let mut lora = Self::blank(config, layout)?;
        lora.weights = parameters::read(&lora.parameters, file)?.into();
        Ok(lora)
    }

    /// Returns the weights as PEFT's `adapter_model.safetensors`.
    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        parameters::write(&self.parameters, Floats::F32(self.weights.view()), |_| None)
    }

    pub(crate) fn weights(&self) -> View<'_, f32> {
        self.weights.view()
    }

    /// Returns the weights for a change of them.
    pub(crate) fn weights_mut(&mut self) -> ViewMut<'_, f32> {
        self.forget_merged();
        self.weights.view_mut()
    }

    /// Drops the merged weights when the weights of the adapter or of the model change.
    pub(crate) fn forget_merged(&mut self) {
        self.merged.forget();
        self.merged_on_gpu.0.take();
    }

    /// Copies the weights to the device of `compute`.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them.
    pub(crate) fn copy_to(&mut self, compute: Compute) -> Result<()> {
        self.weights = compute.hold(self.weights.view().read()?.into_owned())?;
        self.forget_merged();
        Ok(())
    }

    /// Returns the adapter merged into `weights`, by the first call for a version of both.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for the sums.
    pub(crate) fn merged(
        &self,
        layout: &Layout,
        weights: Floats<'_>,
        precision: MatmulPrecision,
    ) -> Result<MergedLora<'_>> {
        if self.weights.compute() != Compute::Cpu {
            return Ok(MergedLora { lora: self, merged: self.merged_on_gpu(layout, weights, precision)? });
        }
        let panels = self.merged.packed_by(|packed| {
            let mut scaled = self.room_for_b(layout)?;
            let mut sum = Vec::new();
            for (linear, pair) in self.adapted(layout) {
                sum.resize(linear.weight.len(), 0.0);
                weights.slice(linear.weight.clone()).cpu().copy_to(&mut sum);
                self.add_product(linear, pair, (&mut sum).into(), &mut scaled);
                let panels = packed.entry(linear.weight.start).or_default();
                panels
                    .pack_for(precision, sum.as_slice().into(), linear.outputs, linear.inputs)
                    .map_err(|_| too_large(linear))?;
            }
            Ok(())
        })?;
        Ok(MergedLora { lora: self, merged: MergedWeights::Packed(panels) })
    }

    /// Runs [`Lora::merged`] on a GPU. The sums are rounded once if their products round them.
    fn merged_on_gpu(
        &self,
        layout: &Layout,
        weights: Floats<'_>,
        precision: MatmulPrecision,
    ) -> Result<MergedWeights<'_>> {
        if let Some(sums) = self.merged_on_gpu.0.get() {
            return Ok(MergedWeights::Stored(sums, precision));
        }
        let compute = self.weights.compute();
        let mut scaled = self.room_for_b(layout)?;
        let mut sums = SumsByStart::new();
        for (linear, pair) in self.adapted(layout) {
            let mut sum = compute.zeros(linear.weight.len())?;
            compute.copy(&weights.slice(linear.weight.clone()).to_f32(), &mut sum);
            self.add_product(linear, pair, sum.view_mut(), &mut scaled);
            let sum = match precision {
                MatmulPrecision::F32 => FloatMemory::F32(sum),
                MatmulPrecision::Bf16 => {
                    let mut rounded = compute.zeros(sum.len())?;
                    compute.f32_to_bf16(&sum, &mut rounded);
                    FloatMemory::Bf16(rounded)
                }
            };
            sums.insert(linear.weight.start, sum);
        }
        compute.check()?;
        Ok(MergedWeights::Stored(self.merged_on_gpu.0.get_or_init(|| sums), precision))
    }

    /// Returns whether the adapter changes the projection whose weight begins at `start`.
    pub(crate) fn adapts(&self, layout: &Layout, start: usize) -> bool {
        self.adapted(layout).any(|(linear, _)| linear.weight.start == start)
    }

    /// Returns the projections with an adapter.
    fn adapted<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (&'a Linear, &'a Pair)> {
        layout.layers.iter().zip(&self.pairs).flat_map(|(layer, pairs)| {
            layer.linears().into_iter().filter_map(|linear| Some((linear, pairs.get(linear.name)?)))
        })
    }

    /// Returns memory for the largest B.
    fn room_for_b(&self, layout: &Layout) -> Result<Memory<f32>> {
        self.weights.compute().zeros(self.adapted(layout).map(|(_, pair)| pair.b.len()).max().unwrap_or(0))
    }

    /// Adds `s B A` to the weight of a projection. `scaled` holds [`Lora::room_for_b`].
    fn add_product(&self, linear: &Linear, pair: &Pair, weight: ViewMut<'_, f32>, scaled: &mut Memory<f32>) {
        let (compute, r) = (self.weights.compute(), self.config.r);
        let mut scaled = scaled.view_mut().slice(..pair.b.len());
        compute.copy(self.weights.view().slice(pair.b.clone()), &mut scaled);
        compute.scale(&mut scaled, self.config.scaling());
        let a = MatRef::new(self.weights.view().slice(pair.a.clone()), r, linear.inputs);
        compute.matmul(weight, MatRef::new(&scaled, linear.outputs, r), a, true);
    }

    /// Adds `s B A` to each adapted projection of `weights`, and copies the scalar head into its place.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for intermediate results: the weights are then unchanged. `Unavailable` for a GPU that
    /// fails.
    pub(crate) fn merge(&self, layout: &Layout, weights: &mut Weights) -> Result<()> {
        let compute = self.weights.compute();
        let mut scaled = self.room_for_b(layout)?;
        let copies = self.scalar_tensors(layout);
        let changed = self.adapted(layout).map(|(linear, _)| linear.weight.len());
        let mut wide = weights.room_for_change(
            changed.chain(copies.iter().map(|(_, theirs)| theirs.len())).max().unwrap_or(0),
            compute,
        )?;
        for (ours, theirs) in copies {
            weights.change(theirs, compute, &mut wide, |theirs| {
                compute.copy(self.weights.view().slice(ours), theirs);
            });
        }
        for (linear, pair) in self.adapted(layout) {
            weights.change(linear.weight.clone(), compute, &mut wide, |weight| {
                self.add_product(linear, pair, weight, &mut scaled);
            });
        }
        compute.check()
    }
}

/// The sums of weights and an adapter, by where the weights begin.
type SumsByStart = BTreeMap<usize, FloatMemory>;

/// The sums on a GPU, once they are computed.
#[derive(Debug, Default)]
struct MergedCache(OnceLock<SumsByStart>);

/// A copy of an adapter computes its own.
impl Clone for MergedCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The projections that an adapter is merged into.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MergedWeights<'a> {
    Packed(&'a PanelsByStart),
    Stored(&'a SumsByStart, MatmulPrecision),
}

impl<'a> MergedWeights<'a> {
    /// Returns the transposed sum of the weight of `linear` and its adapter, if it has one.
    fn get(self, linear: &Linear) -> Option<MatRef<'a>> {
        let start = &linear.weight.start;
        match self {
            Self::Packed(panels) => panels.get(start).map(|panels| MatRef::of_panels(panels.view())),
            Self::Stored(sums, precision) => {
                let sum = MatRef::of(sums.get(start)?.view(), linear.outputs, linear.inputs);
                Some(sum.in_precision(precision).transposed())
            }
        }
    }
}

/// An adapter with the projections that it is merged into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergedLora<'a> {
    lora: &'a Lora,
    merged: MergedWeights<'a>,
}

impl<'a> MergedLora<'a> {
    /// Returns where the weights of each sum on a GPU begin, and its address.
    pub(crate) fn places(self) -> Vec<u64> {
        match self.merged {
            MergedWeights::Packed(_) => Vec::new(),
            MergedWeights::Stored(sums, _) => {
                sums.iter().flat_map(|(start, sum)| [*start as u64, sum.view().place()]).collect()
            }
        }
    }

    /// Returns the projections of one layer.
    pub(crate) fn layer(self, index: usize) -> LayerLora<'a> {
        LayerLora {
            pairs: &self.lora.pairs[index],
            weights: self.lora.weights.view(),
            merged: self.merged,
            scaling: self.lora.config.scaling(),
            rank: self.lora.config.r,
            compute: self.lora.weights.compute(),
        }
    }
}

fn too_large(linear: &Linear) -> Error {
    let Linear { name, outputs, inputs, .. } = linear;
    let detail = format!(
        "out of memory: it cannot hold {outputs} x {inputs} weights of {name} merged with its adapter"
    );
    Error::new(ErrorKind::OutOfMemory, detail)
}

const PREFIX: &str = "base_model.model.";
const LORA_A: &str = ".lora_A.weight";
const LORA_B: &str = ".lora_B.weight";

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;
    use crate::config::DecoderConfig;

    fn layout() -> Layout {
        let config = r#"{"model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1}"#;
        Layout::new(&DecoderConfig::from_json(config).unwrap())
    }

    #[test]
    fn what_an_adapter_cannot_be_is_refused_by_name() {
        let of = |r, lora_alpha, targets: &[&str]| {
            let target_modules = targets.iter().map(|name| (*name).to_owned()).collect();
            let config = LoraConfig { r, lora_alpha, target_modules, ..LoraConfig::default() };
            Lora::new(config, &layout(), Floats::from(&[][..] as &[f32]), 0)
        };
        assert!(of(8, 1.0, &["q_proj", "gate_proj"]).is_ok());
        let cases = [
            (of(0, 1.0, &["q_proj"]), "r must be from 1 to 8, the narrower side of q_proj: got 0"),
            (of(3, 1.0, &["k_proj"]), "r must be from 1 to 2, the narrower side of k_proj: got 3"),
            (of(1, 0.0, &["q_proj"]), "lora_alpha must be > 0: got 0"),
            (of(1, 1.0, &[]), "target_modules must name at least one projection: got 0"),
            (
                of(1, 1.0, &["lm_head"]),
                "target_modules must be of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj: got \"lm_head\"",
            ),
        ];
        for (refused, detail) in cases {
            assert_eq!(refused.unwrap_err().detail(), detail);
        }
    }

    #[test]
    fn variants_that_are_not_built_are_refused_and_ours_reads_back() {
        let config = LoraConfig { r: 4, use_rslora: true, ..LoraConfig::default() };
        assert_eq!(LoraConfig::from_json(&config.to_json()), Ok(config.clone()));
        assert_eq!(config.scaling(), 4.0);
        for (key, value) in [
            ("use_dora", "true"),
            ("bias", "\"all\""),
            ("rank_pattern", "{\"q_proj\": 2}"),
            ("target_parameters", "[\"mlp.experts\"]"),
            ("layers_pattern", "\"h\""),
            ("modules_to_save", "[\"lm_head\"]"),
        ] {
            let text = format!("{{\"r\": 4, \"{key}\": {value}}}");
            let error = LoraConfig::from_json(&text).unwrap_err();
            assert!(error.kind() == ErrorKind::Incompatible && error.detail().starts_with(key), "{error}");
        }
    }

    fn names(text: &str) -> std::result::Result<Vec<String>, (ErrorKind, String)> {
        let lora = LoraConfig::from_json(text)
            .and_then(|config| Lora::new(config, &layout(), Floats::from(&[][..] as &[f32]), 0));
        let lora = lora.map_err(|error| (error.kind(), error.detail().to_owned()))?;
        let a = lora.parameters.iter().filter_map(|parameter| parameter.name.strip_suffix(LORA_A));
        Ok(a.map(|name| name.trim_start_matches(PREFIX).trim_start_matches("model.layers.").to_owned())
            .collect())
    }

    #[test]
    fn projections_are_chosen_by_the_rules_of_peft() {
        for (text, expected) in [
            (r#"{"r": 1, "target_modules": ["o_proj"]}"#, &["0.self_attn.o_proj", "1.self_attn.o_proj"][..]),
            (
                r#"{"r": 1, "target_modules": "model\\.layers\\.1\\.mlp\\.(up|gate)_proj"}"#,
                &["1.mlp.gate_proj", "1.mlp.up_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj", "o_proj"], "layers_to_transform": [1]}"#,
                &["1.self_attn.q_proj", "1.self_attn.o_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}"#,
                &["0.self_attn.q_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["model.layers.1.self_attn.q_proj", "mlp.up_proj"], "exclude_modules": ["layers.0.mlp.up_proj"]}"#,
                &["1.self_attn.q_proj", "1.mlp.up_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "exclude_modules": ".*\\.1\\..*"}"#,
                &["0.self_attn.q_proj"],
            ),
        ] {
            let found = names(text).unwrap();
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{text}");
            let config = LoraConfig::from_json(text).unwrap();
            assert_eq!(LoraConfig::from_json(&config.to_json()), Ok(config), "{text}");
        }
        assert_eq!(names(r#"{"r": 1, "target_modules": "all-linear"}"#).unwrap().len(), 14);
    }

    #[test]
    fn what_peft_would_do_and_we_do_not_is_refused_by_its_key() {
        for (text, kind, word) in [
            (r#"{"lora_dropout": 0.1}"#, ErrorKind::Incompatible, "lora_dropout"),
            (r#"{"init_lora_weights": "pissa"}"#, ErrorKind::Incompatible, "init_lora_weights"),
            (r#"{"target_modules": ".*"}"#, ErrorKind::UnknownName, "embed_tokens"),
            (r#"{"target_modules": "(?=q_proj).*"}"#, ErrorKind::Malformed, "regular expression"),
            (
                r#"{"r": 1, "target_modules": ".*q_proj", "layers_to_transform": [0]}"#,
                ErrorKind::Incompatible,
                "layers_to_transform",
            ),
            (r#"{"r": 1, "layers_to_transform": [2]}"#, ErrorKind::OutOfRange, "layers_to_transform"),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "exclude_modules": ["q_proj"]}"#,
                ErrorKind::Empty,
                "exclude_modules",
            ),
            (r#"{"r": 1, "target_modules": "nothing"}"#, ErrorKind::Empty, "target_modules"),
            (r#"{"r": 1, "target_modules": ["query_proj"]}"#, ErrorKind::UnknownName, "target_modules"),
            (r#"{"lora_aplha": 3}"#, ErrorKind::UnknownName, "did you mean 'lora_alpha'"),
            (r#"{"brand_new_trick": 3}"#, ErrorKind::UnknownName, "brand_new_trick"),
            (r#"{"r": "four"}"#, ErrorKind::Malformed, "adapter config.r must be an integer >= 0"),
        ] {
            let (found, detail) = names(text).unwrap_err();
            assert!(found == kind && detail.contains(word), "{text}: {found:?} {detail}");
        }
        let newer = r#"{"r": 1, "task_type": "CAUSAL_LM", "brand_new_trick": false, "another": null}"#;
        assert_eq!(names(newer).unwrap().len(), 4, "keys of newer versions that are off change nothing");
    }

    #[test]
    fn a_trained_file_may_have_dropout_but_no_other_base() {
        let trained = Lora::new(
            LoraConfig { r: 1, ..LoraConfig::default() },
            &layout(),
            Floats::from(&[][..] as &[f32]),
            0,
        )
        .unwrap();
        let bytes = trained.write().unwrap();
        let read = |text: &str| Lora::read(LoraConfig::from_json(text).unwrap(), &layout(), &bytes);
        assert!(read(r#"{"r": 1, "lora_dropout": 0.05, "init_lora_weights": "gaussian"}"#).is_ok());
        for init in ["pissa", "pissa_niter_4", "olora", "corda", "loftq"] {
            let error = read(&format!(r#"{{"r": 1, "init_lora_weights": "{init}"}}"#)).unwrap_err();
            assert!(
                error.detail().starts_with("init_lora_weights") && error.detail().contains(init),
                "{error}"
            );
        }
    }

    #[test]
    fn a_fresh_adapter_adds_nothing() {
        let lora = Lora::new(
            LoraConfig { r: 2, ..LoraConfig::default() },
            &layout(),
            Floats::from(&[][..] as &[f32]),
            7,
        )
        .unwrap();
        let (layout, base) = (layout(), vec![0.5; layout().len]);
        let merged = lora.merged(&layout, Floats::from(base.as_slice()), MatmulPrecision::F32).unwrap();
        let sum = merged.layer(1).merged(&layout.layers[1].q).unwrap();
        let (input, mut out) = ([1.0; 8], [0.0; 8]);
        Compute::Cpu.matmul(&mut out, MatRef::new(&input, 1, 8), sum, false);
        assert_eq!(out, [4.0; 8]);
        assert!(merged.layer(1).merged(&layout.layers[1].k).is_none(), "only q and v have an adapter");
        assert!(lora.weights.cpu().iter().any(|weight| *weight != 0.0), "or B could not learn");
    }
}
