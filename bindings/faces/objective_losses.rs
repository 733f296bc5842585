// The face of the losses of `fulmar-objective`, once for Node and for WebAssembly: each includes these tables into its own
// `objective/losses.rs`, see `bindings/faces/tensor.rs`. A loss reads its options once, when it is made. The columns of a batch
// are lent to it, and one that is absent is `None`: an empty array is a column of the wrong length. A record has its name as a text
// too, for the declarations of wasm-bindgen.

use fulmar::core::{Result as CoreResult, options_from_json};
use fulmar::objective::{
    self, Advantage, GrpoOptions, KtoBatch, LossBatch, Metric, PreferenceBatch, RewardPairs, SftBatch,
};

record! {
    /// Value, metrics and gradients of a loss.
    LossOutput as "LossOutput" {
        /// The sum of all terms.
        loss as loss: f64,
        /// The names of the metrics, joined by commas.
        metric_names as metricNames: String,
        /// The value and the denominator of each metric.
        metrics as metrics: Float64Array,
        /// `[T]`
        grad_log_prob as gradLogProb: Float32Array,
        /// `[T]`
        grad_entropy as gradEntropy: Option<Float32Array>,
        /// `[S]`
        sequence_loss as sequenceLoss: Option<Float64Array>,
    }
}

record! {
    /// Value, metrics and gradients of a loss of rewards.
    RewardLossOutput as "RewardLossOutput" {
        /// The sum of all terms.
        loss as loss: f64,
        /// The names of the metrics, joined by commas.
        metric_names as metricNames: String,
        /// The value and the denominator of each metric.
        metrics as metrics: Float64Array,
        /// The gradient by each reward of a chosen answer.
        grad_chosen as gradChosen: Float32Array,
        /// The gradient by each reward of a rejected answer.
        grad_rejected as gradRejected: Float32Array,
    }
}

face! {
    /// A policy gradient loss.
    GrpoLoss(objective::GrpoLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) { objective::GrpoLoss::new(GrpoOptions::from_json("GRPOLoss", &options)?) }
    }
    call {
        /// Computes the loss of a batch.
        fn forward as forward(
            log_prob: &[f32],
            old_log_prob: &[f32],
            ref_log_prob: Option<Float32ArraySlice>,
            sampler_log_prob: Option<Float32ArraySlice>,
            entropy: Option<Float32ArraySlice>,
            advantage: &[f32],
            mask: &[u8],
            offsets: &[u32],
        ) -> (LossOutput) {
            |loss| loss.forward(&LossBatch {
                log_prob,
                old_log_prob,
                ref_log_prob: ref_log_prob.as_deref(),
                sampler_log_prob: sampler_log_prob.as_deref(),
                entropy: entropy.as_deref(),
                advantage: Advantage::infer(advantage, offsets)?,
                mask,
                offsets,
            })
        }
    }
}

face! {
    /// The loss of supervised fine-tuning.
    SftLoss(objective::SftLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) { objective::SftLoss::new(options_from_json("SFTLoss", &options)?) }
    }
    call {
        /// Computes the loss of a batch.
        fn forward as forward(
            log_prob: &[f32],
            ref_log_prob: Option<Float32ArraySlice>,
            mask: &[u8],
            offsets: &[u32],
        ) -> (LossOutput) {
            |loss| loss.forward(&SftBatch { log_prob, ref_log_prob: ref_log_prob.as_deref(), mask, offsets })
        }
    }
}

face! {
    /// The loss of distillation from a teacher's log-probabilities.
    DistillationLoss(objective::DistillationLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) {
            objective::DistillationLoss::new(options_from_json("DistillationLoss", &options)?)
        }
    }
    call {
        /// Computes the loss of a batch.
        fn forward as forward(log_prob: &[f32], teacher_log_prob: &[f32], mask: &[u8], offsets: &[u32]) -> (LossOutput) {
            |loss| loss.forward(&SftBatch { log_prob, ref_log_prob: Some(teacher_log_prob), mask, offsets })
        }
    }
}

face! {
    /// The DPO loss of pairs of answers.
    DpoLoss(objective::DpoLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) { objective::DpoLoss::new(options_from_json("DPOLoss", &options)?) }
    }
    call {
        /// Computes the loss of a batch.
        fn forward as forward(
            log_prob: &[f32],
            ref_log_prob: &[f32],
            log_sum_sq_prob: Option<Float32ArraySlice>,
            mask: &[u8],
            offsets: &[u32],
        ) -> (LossOutput) {
            |loss| loss.forward(&PreferenceBatch {
                log_prob,
                ref_log_prob,
                log_sum_sq_prob: log_sum_sq_prob.as_deref(),
                mask,
                offsets,
            })
        }
    }
}

face! {
    /// The KTO loss of single answers.
    KtoLoss(objective::KtoLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) { objective::KtoLoss::new(options_from_json("KTOLoss", &options)?) }
    }
    call {
        /// Computes the loss of a batch; `desirable` holds 1 for each sequence that is desirable, else 0.
        fn forward as forward(
            log_prob: &[f32],
            ref_log_prob: &[f32],
            desirable: &[u8],
            kl_log_ratio: Option<Float32ArraySlice>,
            mask: &[u8],
            offsets: &[u32],
        ) -> (LossOutput) {
            |loss| loss.forward(&KtoBatch {
                log_prob,
                ref_log_prob,
                desirable,
                kl_log_ratio: kl_log_ratio.as_deref(),
                mask,
                offsets,
            })
        }
    }
}

face! {
    /// The Bradley-Terry loss of pairs of rewards.
    BradleyTerryLoss(objective::BradleyTerryLoss)
    make {
        /// Reads and checks the options.
        fn create as create(options: String) {
            objective::BradleyTerryLoss::new(options_from_json("BradleyTerryLoss", &options)?)
        }
    }
    call {
        /// Computes the loss of a batch; without `offsets` each entry is a pair.
        fn forward as forward(
            chosen: &[f32],
            rejected: &[f32],
            margin: Option<Float32ArraySlice>,
            offsets: Option<Uint32ArraySlice>,
        ) -> (RewardLossOutput) {
            |loss| loss.forward(&RewardPairs { chosen, rejected, margin: margin.as_deref(), offsets: offsets.as_deref() })
        }
    }
}

impl From<objective::LossOutput> for LossOutput {
    fn from(output: objective::LossOutput) -> Self {
        Self {
            loss: output.loss,
            metric_names: names_of(&output.metrics),
            metrics: numbers_of(&output.metrics).into(),
            grad_log_prob: output.grad_log_prob.into(),
            grad_entropy: output.grad_entropy.map(Into::into),
            sequence_loss: None,
        }
    }
}

impl From<objective::SftOutput> for LossOutput {
    fn from(result: objective::SftOutput) -> Self {
        let sequence_loss = Some(result.sequence_loss.into());
        Self { sequence_loss, ..result.output.into() }
    }
}

impl From<objective::BradleyTerryOutput> for RewardLossOutput {
    fn from(output: objective::BradleyTerryOutput) -> Self {
        Self {
            loss: output.loss,
            metric_names: names_of(&output.metrics),
            metrics: numbers_of(&output.metrics).into(),
            grad_chosen: output.grad_chosen.into(),
            grad_rejected: output.grad_rejected.into(),
        }
    }
}

fn names_of(metrics: &[Metric]) -> String {
    metrics.iter().map(|metric| metric.name).collect::<Vec<_>>().join(",")
}

fn numbers_of(metrics: &[Metric]) -> Vec<f64> {
    metrics.iter().flat_map(|metric| [metric.value, metric.denominator]).collect()
}
