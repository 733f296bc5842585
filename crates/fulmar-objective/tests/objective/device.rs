//! Every operation has a device, and a missing device is refused with the reason.

use fulmar_compute::Compute;
use fulmar_core::{Device, Error, ErrorKind, options_from_json};
use fulmar_objective::{
    AdvantageOptions, BradleyTerryLoss, BradleyTerryOptions, DistillationLoss, DistillationOptions, DpoLoss,
    DpoOptions, DrawContext, DrawOptions, Groups, GrpoLoss, GrpoOptions, KlRewardOptions, KtoLoss,
    KtoOptions, McAdvantage, McAdvantageOptions, RewardAggregation, RewardTable, SftLoss, SftOptions, draw,
    draw_probabilities, draw_rng, group_advantage, kl_reward, multi_reward_advantage,
};

/// A GPU number that no machine has.
const GPU: Device = Device::Cuda { ordinal: 9999 };

/// The expected refusal of the GPU.
fn reason() -> Error {
    Compute::on(GPU)
        .err()
        .unwrap_or_else(|| Error::new(ErrorKind::Incompatible, "GPU 9999 must not be there"))
}

#[test]
fn losses_refuse_a_device_that_is_not_there_when_they_are_made() {
    let refusals = [
        GrpoLoss::new(GrpoOptions { device: GPU, ..Default::default() }).map(|_| ()),
        SftLoss::new(SftOptions { device: GPU, ..Default::default() }).map(|_| ()),
        DpoLoss::new(DpoOptions { device: GPU, ..Default::default() }).map(|_| ()),
        KtoLoss::new(KtoOptions { device: GPU, ..Default::default() }).map(|_| ()),
        DistillationLoss::new(DistillationOptions { device: GPU, ..Default::default() }).map(|_| ()),
        BradleyTerryLoss::new(BradleyTerryOptions { device: GPU, ..Default::default() }).map(|_| ()),
        McAdvantage::new(McAdvantageOptions { device: GPU, ..McAdvantageOptions::of_size(2) }).map(|_| ()),
    ];
    assert_eq!(reason().kind(), ErrorKind::Unavailable);
    for refused in refusals {
        assert_eq!(refused, Err(reason()));
    }
}

#[test]
fn advantages_rewards_and_draws_refuse_it_when_they_are_asked() {
    let options = AdvantageOptions { device: GPU, ..Default::default() };
    assert_eq!(group_advantage(&[0.0, 1.0], None, Groups::Size(2), &options), Err(reason()));
    let table = RewardTable { reward: &[0.0, 1.0], scored: None, weights: &[1.0] };
    let how = RewardAggregation::default();
    assert_eq!(multi_reward_advantage(table, Groups::Size(2), how, &options), Err(reason()));
    let options = KlRewardOptions { device: GPU, ..Default::default() };
    assert_eq!(kl_reward(&[-1.0_f32], &[-1.0], &[1], &[0, 1], &[1.0], &options), Err(reason()));
    let options = DrawOptions { device: GPU, ..Default::default() };
    let mut rng = draw_rng(1, 0);
    let before = rng.state();
    assert_eq!(draw(&[0.0, 1.0], &options, &mut rng), Err(reason()));
    assert_eq!(rng.state(), before, "no word is taken");
    assert_eq!(draw_probabilities(&[0.0], &options, &DrawContext::default()), Err(reason()));
}

#[test]
fn options_name_their_device_and_mean_the_cpu_without_a_name() {
    let read = |json: &str| options_from_json::<SftOptions>("SFTLoss", json).map(|options| options.device);
    assert_eq!(read("{}"), Ok(Device::Cpu));
    assert_eq!(read(r#"{"device": "cpu"}"#), Ok(Device::Cpu));
    assert_eq!(read(r#"{"device": "cuda:9999"}"#), Ok(GPU));
    assert_eq!(read(r#"{"device": "gpu"}"#).unwrap_err().kind(), ErrorKind::UnknownName);
    let preset = GrpoOptions::from_json("GRPOLoss", r#"{"preset": "dapo", "device": "cuda:9999"}"#).unwrap();
    assert_eq!(GrpoLoss::new(preset).unwrap_err(), reason());
}
