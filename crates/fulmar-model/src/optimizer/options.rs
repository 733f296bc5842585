//! Options of optimizers: AdamW, SGD or Muon, and the parameters with weight decay.

use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use serde::Deserialize;

use crate::parameters::Parameter;

/// The parameters with weight decay. In JSON `"matrices"`, `"all"` or a list of name patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "DecayForm")]
pub enum Decay {
    /// Parameters of two dimensions: projections, embeddings and adapters; not norms and biases.
    #[default]
    Matrices,
    /// Every parameter that is trained.
    All,
    /// Parameters whose whole name matches a pattern, in which `*` matches any characters. Each pattern must
    /// match at least one.
    Named(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`matrices`, `all` or a list of name patterns")]
enum DecayForm {
    Word(String),
    Patterns(Vec<String>),
}

impl TryFrom<DecayForm> for Decay {
    type Error = String;

    fn try_from(form: DecayForm) -> std::result::Result<Self, String> {
        match form {
            DecayForm::Patterns(patterns) => Ok(Self::Named(patterns)),
            DecayForm::Word(word) => match word.as_str() {
                "matrices" => Ok(Self::Matrices),
                "all" => Ok(Self::All),
                _ => Err(format!(
                    "unknown variant `{word}`, expected `matrices`, `all` or a list of name patterns"
                )),
            },
        }
    }
}

impl Decay {
    /// Returns whether `parameter` has weight decay.
    pub(crate) fn holds(&self, parameter: &Parameter) -> bool {
        match self {
            Self::Matrices => parameter.shape.len() == 2,
            Self::All => true,
            Self::Named(patterns) => patterns.iter().any(|pattern| matches(pattern, &parameter.name)),
        }
    }

    /// Refuses a pattern that matches none of `parameters`.
    pub(crate) fn check(&self, parameters: &[Parameter]) -> Result<()> {
        let Self::Named(patterns) = self else { return Ok(()) };
        let names_none = |pattern: &&String| !parameters.iter().any(|known| matches(pattern, &known.name));
        match patterns.iter().find(names_none) {
            None => Ok(()),
            Some(pattern) => {
                let detail = format!("decay must name a parameter with each pattern: got {pattern:?}");
                Err(Error::new(ErrorKind::UnknownName, detail))
            }
        }
    }
}

/// Returns whether `name` matches `pattern`, in which `*` matches any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|start| name.strip_prefix(start)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(end) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(end)
}

/// Options of AdamW (Loshchilov and Hutter, <https://arxiv.org/abs/1711.05101>); the defaults are PyTorch's
/// except for the weight decay, which is 0. Stores two floats a parameter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdamWOptions {
    /// The learning rate, >= 0; a step may override it.
    pub learning_rate: f64,
    /// Decay of the first moment, in `[0, 1)`.
    pub beta1: f64,
    /// Decay of the second moment, in `[0, 1)`.
    pub beta2: f64,
    /// Added to the root of the second moment, > 0.
    pub eps: f64,
    /// Decoupled weight decay, >= 0.
    pub weight_decay: f64,
    /// The parameters with weight decay.
    pub decay: Decay,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }
}

impl AdamWOptions {
    fn check(&self) -> Result<()> {
        check_all(&[
            at_least_0("learningRate", self.learning_rate),
            below_1("beta1", self.beta1),
            below_1("beta2", self.beta2),
            positive("eps", self.eps),
            at_least_0("weightDecay", self.weight_decay),
        ])
    }
}

/// Options of stochastic gradient descent; the defaults are PyTorch's. Stores a float a parameter if
/// `momentum` is not 0.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SgdOptions {
    /// The learning rate, >= 0; a step may override it.
    pub learning_rate: f64,
    /// Factor of the old momentum buffer, in `[0, 1)`.
    pub momentum: f64,
    /// Reduces the gradient's share in the momentum buffer, in `[0, 1)`.
    pub dampening: f64,
    /// If true, a step uses Nesterov's momentum; needs a momentum, and no dampening.
    pub nesterov: bool,
    /// Weight decay, >= 0: this factor times the weight is added to the gradient, so unlike in the other
    /// optimizers it passes through the momentum.
    pub weight_decay: f64,
    /// The parameters with weight decay.
    pub decay: Decay,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }
}

impl SgdOptions {
    fn check(&self) -> Result<()> {
        check_all(&[
            at_least_0("learningRate", self.learning_rate),
            below_1("momentum", self.momentum),
            below_1("dampening", self.dampening),
            at_least_0("weightDecay", self.weight_decay),
        ])?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let detail = format!(
                "nesterov must go with a momentum and without dampening: got {} and {}",
                self.momentum, self.dampening
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(())
    }
}

/// The factor of Muon's rate for a matrix `[out, in]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MuonScale {
    /// `sqrt(max(1, out / in))`, Keller Jordan's.
    #[default]
    Original,
    /// `0.2 sqrt(max(out, in))` (<https://arxiv.org/abs/2502.16982>): rates and decays tuned for AdamW then
    /// suit Muon.
    MatchRmsAdamw,
}

impl MuonScale {
    pub(crate) fn factor(self, rows: usize, cols: usize) -> f64 {
        match self {
            Self::Original => libm::sqrt((rows as f64 / cols as f64).max(1.0)),
            Self::MatchRmsAdamw => 0.2 * libm::sqrt(rows.max(cols) as f64),
        }
    }
}

/// Options of Muon (Jordan et al., <https://kellerjordan.github.io/posts/muon/>): the momentum of each matrix
/// between hidden layers is made orthogonal by
/// [`Compute::newton_schulz`](fulmar_compute::Compute::newton_schulz) before it is applied. AdamW updates
/// embeddings, output heads, norms and biases. The defaults are PyTorch's, which are Keller Jordan's. Stores
/// a float a parameter of Muon, and two of AdamW.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MuonOptions {
    /// The learning rate, > 0. A step may override it; AdamW's rate then changes in the same proportion.
    pub learning_rate: f64,
    /// Factor of the old momentum buffer, in `[0, 1)`.
    pub momentum: f64,
    /// If true, a step uses Nesterov's momentum.
    pub nesterov: bool,
    /// Iterations of Newton-Schulz, from 1 to 99.
    pub num_iterations: usize,
    /// Coefficients of an iteration.
    pub coefficients: [f64; 3],
    /// The least norm by which a direction is divided, > 0.
    pub eps: f64,
    /// The factor of the rate for a matrix.
    pub scale: MuonScale,
    /// Decoupled weight decay of the matrices, >= 0.
    pub weight_decay: f64,
    /// The matrices with weight decay.
    pub decay: Decay,
    /// Options of AdamW for all other parameters.
    pub adamw: AdamWOptions,
}

impl Default for MuonOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            momentum: 0.95,
            nesterov: true,
            num_iterations: 5,
            coefficients: [3.4445, -4.775, 2.0315],
            eps: 1e-7,
            scale: MuonScale::default(),
            weight_decay: 0.1,
            decay: Decay::default(),
            adamw: AdamWOptions::default(),
        }
    }
}

impl MuonOptions {
    fn check(&self) -> Result<()> {
        check_all(&[
            positive("learningRate", self.learning_rate),
            below_1("momentum", self.momentum),
            positive("eps", self.eps),
            at_least_0("weightDecay", self.weight_decay),
            (
                "numIterations",
                self.num_iterations as f64,
                "from 1 to 99",
                (1..100).contains(&self.num_iterations),
            ),
        ])?;
        if let Some(value) = self.coefficients.iter().find(|value| !value.is_finite()) {
            let detail = format!("coefficients must be finite: got {value}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.adamw.check().map_err(|error| error.at("adamw"))
    }

    /// Returns whether `parameter` is a matrix between hidden layers.
    pub(crate) fn holds(parameter: &Parameter) -> bool {
        const OTHERS: [&str; 4] = ["embed_tokens.", "lm_head.", "score.", "v_head."];
        parameter.shape.len() == 2 && !OTHERS.iter().any(|part| parameter.name.contains(part))
    }
}

/// An optimizer with its options.
///
/// # Examples
/// ```
/// use fulmar_model::{Decay, OptimizerOptions, SgdOptions};
/// let options = OptimizerOptions::from_json("sgd", r#"{"momentum": 0.9, "decay": ["*.mlp.*"]}"#)?;
/// let decay = Decay::Named(vec!["*.mlp.*".to_owned()]);
/// assert_eq!(options, SgdOptions { momentum: 0.9, decay, ..Default::default() }.into());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum OptimizerOptions {
    /// AdamW for all parameters.
    AdamW(AdamWOptions),
    /// Gradient descent for all parameters.
    Sgd(SgdOptions),
    /// Muon for the hidden matrices, AdamW for the rest.
    Muon(MuonOptions),
}

impl OptimizerOptions {
    /// Returns the options of the optimiser named `adamw`, `sgd` or `muon`, from JSON with camelCase keys.
    ///
    /// # Errors
    /// `UnknownName` for another optimiser or an unknown key; `Malformed` for text of another form.
    pub fn from_json(name: &str, json: &str) -> Result<Self> {
        match name {
            "adamw" => Ok(Self::AdamW(options_from_json("options", json)?)),
            "sgd" => Ok(Self::Sgd(options_from_json("options", json)?)),
            "muon" => Ok(Self::Muon(options_from_json("options", json)?)),
            _ => {
                let detail = format!("optimizer must be adamw, sgd or muon: got {name:?}");
                Err(Error::new(ErrorKind::UnknownName, detail))
            }
        }
    }

    /// Returns the name that [`OptimizerOptions::from_json`] takes.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AdamW(_) => "adamw",
            Self::Sgd(_) => "sgd",
            Self::Muon(_) => "muon",
        }
    }

    pub(crate) const fn learning_rate(&self) -> f64 {
        match self {
            Self::AdamW(options) => options.learning_rate,
            Self::Sgd(options) => options.learning_rate,
            Self::Muon(options) => options.learning_rate,
        }
    }

    /// Refuses options outside their ranges, and patterns that name none of `parameters`.
    pub(crate) fn check(&self, parameters: &[Parameter]) -> Result<()> {
        match self {
            Self::AdamW(options) => options.check().and_then(|()| options.decay.check(parameters)),
            Self::Sgd(options) => options.check().and_then(|()| options.decay.check(parameters)),
            Self::Muon(options) => {
                options.check()?;
                options.decay.check(parameters)?;
                options.adamw.decay.check(parameters).map_err(|error| error.at("adamw"))
            }
        }
    }
}

impl From<AdamWOptions> for OptimizerOptions {
    fn from(options: AdamWOptions) -> Self {
        Self::AdamW(options)
    }
}

impl From<SgdOptions> for OptimizerOptions {
    fn from(options: SgdOptions) -> Self {
        Self::Sgd(options)
    }
}

impl From<MuonOptions> for OptimizerOptions {
    fn from(options: MuonOptions) -> Self {
        Self::Muon(options)
    }
}

/// An option's name and value, its rule, and whether the value satisfies it.
type Rule = (&'static str, f64, &'static str, bool);

fn at_least_0(name: &'static str, value: f64) -> Rule {
    (name, value, ">= 0", value >= 0.0 && value.is_finite())
}

fn positive(name: &'static str, value: f64) -> Rule {
    (name, value, "> 0", value > 0.0 && value.is_finite())
}

fn below_1(name: &'static str, value: f64) -> Rule {
    (name, value, "in [0, 1)", (0.0..1.0).contains(&value))
}

fn check_all(rules: &[Rule]) -> Result<()> {
    match rules.iter().find(|(.., holds)| !holds) {
        None => Ok(()),
        Some((name, value, rule, _)) => {
            Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, shape: &[usize]) -> Parameter {
        let len = shape.iter().product();
        Parameter { name: name.to_owned(), shape: shape.to_vec(), range: 0..len }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*", "anything", true),
            ("a.*.b", "a.x.y.b", true),
            ("a.*.b", "a.b", false),
            ("*norm*", "model.norm.weight", true),
            ("*ab", "aab", true),
            ("a*a", "a", false),
            ("*.weight", "q.bias", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn decay_spares_norms_and_biases_unless_it_is_told() {
        let (matrix, norm) = (parameter("q.weight", &[2, 2]), parameter("norm.weight", &[2]));
        let of = |decay: &Decay| (decay.holds(&matrix), decay.holds(&norm));
        assert_eq!(of(&Decay::default()), (true, false));
        assert_eq!(of(&Decay::All), (true, true));
        let named = Decay::Named(vec!["norm.*".to_owned()]);
        assert_eq!(of(&named), (false, true));
        assert!(named.check(std::slice::from_ref(&norm)).is_ok());
        assert_eq!(named.check(std::slice::from_ref(&matrix)).unwrap_err().kind(), ErrorKind::UnknownName);
    }

    #[test]
    fn muon_takes_the_hidden_matrices_alone() {
        let of = |name: &str, shape: &[usize]| MuonOptions::holds(&parameter(name, shape));
        assert!(of("model.layers.0.mlp.up_proj.weight", &[4, 2]));
        assert!(of("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", &[2, 4]));
        assert!(!of("model.embed_tokens.weight", &[4, 2]) && !of("lm_head.weight", &[4, 2]));
        assert!(!of("score.weight", &[1, 2]) && !of("v_head.summary.weight", &[1, 2]));
        assert!(!of("model.norm.weight", &[4]));
    }

    #[test]
    fn bad_options_are_refused_by_name() {
        let error = |name: &str, json: &str| {
            OptimizerOptions::from_json(name, json).and_then(|options| options.check(&[])).unwrap_err()
        };
        let cases = [
            ("adamw", r#"{"beta1": 1}"#, "beta1 must be in [0, 1): got 1"),
            ("adamw", r#"{"eps": 0}"#, "eps must be > 0: got 0"),
            ("adamw", r#"{"weightDecay": -1}"#, "weightDecay must be >= 0: got -1"),
            (
                "adamw",
                r#"{"decay": ["no.such"]}"#,
                r#"decay must name a parameter with each pattern: got "no.such""#,
            ),
            ("sgd", r#"{"momentum": 1.5}"#, "momentum must be in [0, 1): got 1.5"),
            (
                "sgd",
                r#"{"nesterov": true}"#,
                "nesterov must go with a momentum and without dampening: got 0 and 0",
            ),
            ("muon", r#"{"numIterations": 0}"#, "numIterations must be from 1 to 99: got 0"),
            ("muon", r#"{"numIterations": 100}"#, "numIterations must be from 1 to 99: got 100"),
            ("muon", r#"{"learningRate": 0}"#, "learningRate must be > 0: got 0"),
            ("lion", "{}", r#"optimizer must be adamw, sgd or muon: got "lion""#),
        ];
        for (name, json, detail) in cases {
            assert_eq!(error(name, json).detail(), detail);
        }
        assert_eq!(error("muon", r#"{"adamw": {"beta2": 2}}"#).kind(), ErrorKind::OutOfRange);
        assert_eq!(error("adamw", r#"{"decay": "none"}"#).kind(), ErrorKind::UnknownName);
        assert_eq!(error("adamw", r#"{"decay": 3}"#).kind(), ErrorKind::Malformed);
        assert_eq!(error("sgd", r#"{"beta1": 0.9}"#).kind(), ErrorKind::UnknownName);
    }
}
