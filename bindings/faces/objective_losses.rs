// The face of the losses of `fulmar-objective`, once for Node and for WebAssembly: each includes this table into its own
// `objective/losses.rs`, see `bindings/faces/tensor.rs`. A batch crosses column by column, then any loss is asked for.

use std::collections::BTreeMap;

use fulmar::core::{Error, ErrorKind, Result as CoreResult, options_from_json};
use fulmar::objective::{
    self, Advantage, BradleyTerryLoss, DistillationLoss, DpoLoss, GrpoLoss, GrpoOptions, KtoBatch, KtoLoss, LossBatch,
    PreferenceBatch, RewardPairs, SftBatch, SftLoss,
};

face! {
    /// The columns of a batch, for losses.
    LossColumns(Columns)
    make {
        /// Takes `mask`, `[T]`, of the trained tokens, and `offsets`, `[S + 1]`, of the sequences.
        fn create as create(mask: &[u8], offsets: &[u32]) {
            Ok(Columns { numbers: BTreeMap::new(), labels: Vec::new(), mask: mask.to_vec(), offsets: offsets.to_vec() })
        }
    }
    call {
        /// Sets a column of numbers.
        fn set as set(name: String, values: &[f32]) -> (()) {
            |columns| { columns.numbers.insert(name, values.to_vec()); Ok(()) }
        }
        /// Sets the labels: whether each sequence is desirable.
        fn label as label(desirable: &[u8]) -> (()) { |columns| { columns.labels = desirable.to_vec(); Ok(()) } }
        /// Computes a policy gradient loss.
        fn grpo as grpo(options: String) -> (LossOutput) { |columns| columns.grpo(&options) }
        /// Computes the loss of supervised fine-tuning.
        fn sft as sft(options: String) -> (LossOutput) {
            |columns| SftLoss::new(options_from_json("SFTLoss", &options)?)?.forward(&columns.supervised("refLogProb")?)
        }
        /// Computes the loss of distillation from a teacher's log-probabilities.
        fn distillation as distillation(options: String) -> (LossOutput) {
            |columns| DistillationLoss::new(options_from_json("DistillationLoss", &options)?)?.forward(&columns.supervised("teacherLogProb")?)
        }
        /// Computes the DPO loss of pairs of answers.
        fn dpo as dpo(options: String) -> (LossOutput) { |columns| columns.dpo(&options) }
        /// Computes the KTO loss of single answers.
        fn kto as kto(options: String) -> (LossOutput) { |columns| columns.kto(&options) }
        /// Computes the Bradley-Terry loss of pairs of rewards; without offsets each entry is a pair.
        fn bradley_terry as bradleyTerry(options: String) -> (RewardLossOutput) { |columns| columns.bradley_terry(&options) }
    }
}

/// Checks options for the loss called `loss`.
fn check_options(loss: &str, json: &str) -> CoreResult<()> {
    match loss {
        "GRPOLoss" => GrpoLoss::new(GrpoOptions::from_json(loss, json)?).map(drop),
        "SFTLoss" => SftLoss::new(options_from_json(loss, json)?).map(drop),
        "DistillationLoss" => DistillationLoss::new(options_from_json(loss, json)?).map(drop),
        "DPOLoss" => DpoLoss::new(options_from_json(loss, json)?).map(drop),
        "KTOLoss" => KtoLoss::new(options_from_json(loss, json)?).map(drop),
        "BradleyTerryLoss" => BradleyTerryLoss::new(options_from_json(loss, json)?).map(drop),
        other => Err(Error::new(ErrorKind::UnknownName, format!("loss must be a known one: got '{other}'"))),
    }
}

/// The columns of a batch, unchecked.
#[derive(Clone)]
pub struct Columns {
    numbers: BTreeMap<String, Vec<f32>>,
    labels: Vec<u8>,
    mask: Vec<u8>,
    offsets: Vec<u32>,
}

impl Columns {
    fn given(&self, name: &str) -> Option<&[f32]> {
        self.numbers.get(name).map(Vec::as_slice)
    }

    fn needed(&self, name: &str) -> CoreResult<&[f32]> {
        self.given(name).ok_or_else(|| Error::new(ErrorKind::Empty, format!("{name} must be given")))
    }

    fn grpo(&self, options: &str) -> CoreResult<objective::LossOutput> {
        GrpoLoss::new(GrpoOptions::from_json("GRPOLoss", options)?)?.forward(&LossBatch {
            log_prob: self.needed("logProb")?,
            old_log_prob: self.needed("oldLogProb")?,
            ref_log_prob: self.given("refLogProb"),
            sampler_log_prob: self.given("samplerLogProb"),
            entropy: self.given("entropy"),
            advantage: Advantage::infer(self.needed("advantage")?, &self.offsets)?,
            mask: &self.mask,
            offsets: &self.offsets,
        })
    }

    fn supervised(&self, reference: &str) -> CoreResult<SftBatch<'_>> {
        let (log_prob, ref_log_prob) = (self.needed("logProb")?, self.given(reference));
        Ok(SftBatch { log_prob, ref_log_prob, mask: &self.mask, offsets: &self.offsets })
    }

    fn dpo(&self, options: &str) -> CoreResult<objective::LossOutput> {
        DpoLoss::new(options_from_json("DPOLoss", options)?)?.forward(&PreferenceBatch {
            log_prob: self.needed("logProb")?,
            ref_log_prob: self.needed("refLogProb")?,
            log_sum_sq_prob: self.given("logSumSqProb"),
            mask: &self.mask,
            offsets: &self.offsets,
        })
    }

    fn kto(&self, options: &str) -> CoreResult<objective::LossOutput> {
        KtoLoss::new(options_from_json("KTOLoss", options)?)?.forward(&KtoBatch {
            log_prob: self.needed("logProb")?,
            ref_log_prob: self.needed("refLogProb")?,
            desirable: &self.labels,
            kl_log_ratio: self.given("klLogRatio"),
            mask: &self.mask,
            offsets: &self.offsets,
        })
    }

    fn bradley_terry(&self, options: &str) -> CoreResult<objective::BradleyTerryOutput> {
        BradleyTerryLoss::new(options_from_json("BradleyTerryLoss", options)?)?.forward(&RewardPairs {
            chosen: self.needed("chosen")?,
            rejected: self.needed("rejected")?,
            margin: self.given("margin"),
            offsets: (!self.offsets.is_empty()).then_some(&self.offsets),
        })
    }
}
