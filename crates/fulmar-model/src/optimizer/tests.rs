//! Optimizers against PyTorch's, and their state.

use std::path::PathBuf;

use serde_json::Value;

use super::*;

/// Returns parameters that are adjacent in the buffer.
fn layout(shapes: &serde_json::Map<String, Value>) -> Vec<Parameter> {
    let mut len = 0;
    let mut place = |(name, shape): (&String, &Value)| {
        let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
        let range = len..len + shape.iter().product::<usize>();
        len = range.end;
        Parameter { name: name.clone(), shape, range }
    };
    shapes.iter().map(&mut place).collect()
}

fn flat(parameters: &[Parameter], values: &Value) -> Vec<f32> {
    let of = |parameter: &Parameter| -> Vec<f32> {
        serde_json::from_value(values[parameter.name.as_str()].clone()).unwrap()
    };
    parameters.iter().flat_map(of).collect()
}

/// Returns the allowed difference of a weight from PyTorch's after one more step.
fn tolerance(row: &Value, parameter: &Parameter) -> f32 {
    let is_muon = row["optimizer"] == "muon" && MuonOptions::holds(parameter);
    match (is_muon, row["precision"].as_str()) {
        (false, _) => 2e-6,
        (true, Some("float32")) => 2e-5,
        (true, _) => {
            let scale: MuonScale = serde_json::from_value(row["options"]["scale"].clone()).unwrap();
            let factor = scale.factor(parameter.shape[0], parameter.shape[1]);
            (0.03 * factor * row["options"]["learningRate"].as_f64().unwrap()) as f32
        }
    }
}

#[test]
fn every_row_of_pytorchs_optimizers_is_stepped_alike() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/model/optimizers.jsonl");
    let rows = std::fs::read_to_string(path).unwrap();
    assert_eq!(rows.lines().count(), 13);
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let parameters = layout(row["shapes"].as_object().unwrap());
        let name = row["optimizer"].as_str().unwrap();
        let options = OptimizerOptions::from_json(name, &row["options"].to_string()).unwrap();
        let learning_rate = options.learning_rate();
        let mut optimizer =
            Optimizer::over(&parameters, Floats::from(&[][..] as &[f32]), options, Compute::Cpu).unwrap();
        let mut weights = flat(&parameters, &row["first"]);
        let mut workspace = Compute::Cpu.zeros(optimizer.workspace_len()).unwrap();
        let steps = row["gradients"].as_array().unwrap().iter().zip(row["weights"].as_array().unwrap());
        for (index, (gradients, expected)) in steps.enumerate() {
            let gradients = flat(&parameters, gradients);
            let norm = Compute::Cpu.sum_of_squares(&gradients).sqrt();
            let scale = (row["maxNorm"].as_f64().unwrap() / (norm + 1e-6)).min(1.0);
            assert!(scale < 1.0, "or nothing is clipped");
            let updated = (&mut weights).into();
            optimizer.update(updated, (&gradients).into(), learning_rate, scale, &mut workspace);
            let expected = flat(&parameters, expected);
            for parameter in &parameters {
                let most = tolerance(&row, parameter) * (index + 1) as f32;
                for at in parameter.range.clone() {
                    let (ours, theirs) = (weights[at], expected[at]);
                    assert!(
                        (ours - theirs).abs() <= most,
                        "{name} {} {}, step {index}: {ours} and {theirs}\n{}",
                        row["precision"],
                        parameter.name,
                        row["options"]
                    );
                }
            }
        }
    }
}

#[test]
fn an_optimizer_keeps_no_more_than_its_rule_needs() {
    let shapes =
        serde_json::json!({"embed_tokens.weight": [5, 2], "up_proj.weight": [3, 2], "norm.weight": [2]});
    let parameters = layout(shapes.as_object().unwrap());
    let floats = |options: OptimizerOptions| {
        Optimizer::over(&parameters, Floats::from(&[][..] as &[f32]), options, Compute::Cpu)
            .unwrap()
            .num_floats()
    };
    assert_eq!(floats(AdamWOptions::default().into()), 2 * 18);
    assert_eq!(floats(SgdOptions::default().into()), 0);
    assert_eq!(floats(SgdOptions { momentum: 0.9, ..SgdOptions::default() }.into()), 18);
    assert_eq!(floats(MuonOptions::default().into()), 6 + 2 * 12);
}

#[test]
fn parameters_that_are_stepped_alike_are_one_group() {
    let shapes =
        serde_json::json!({"a.weight": [2, 2], "b.weight": [2, 2], "norm.weight": [2], "c.weight": [2, 2]});
    let parameters = layout(shapes.as_object().unwrap());
    let groups = |options: OptimizerOptions| {
        let optimizer =
            Optimizer::over(&parameters, Floats::from(&[][..] as &[f32]), options, Compute::Cpu).unwrap();
        optimizer.groups.into_iter().map(|group| (group.weights, group.decays)).collect::<Vec<_>>()
    };
    assert_eq!(groups(AdamWOptions::default().into()), [(0..8, true), (8..10, false), (10..14, true)]);
    assert_eq!(groups(AdamWOptions { decay: Decay::All, ..AdamWOptions::default() }.into()), [(0..14, true)]);
    assert_eq!(groups(MuonOptions::default().into()).len(), 4);
}
