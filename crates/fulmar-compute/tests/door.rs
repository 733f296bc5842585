//! Checks that `fulmar-compute` is the only way to the kernels, offers all of them, and changes no result.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_compute::{
    AttentionSaved, AttentionShape, Compute, Floats, FloatsMut, MatRef, Memory, RopeTable, Spans,
    rope_frequencies,
};

/// Crates that may name the kernels: the facade, which re-exports every crate, and `fulmar-compute` itself.
const BESIDE_THE_DOOR: [&str; 2] = ["fulmar", "fulmar-compute"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source(path: &str) -> String {
    fs::read_to_string(crates().join(path)).unwrap_or_default()
}

/// Returns the words of `text` that look like functions.
fn function_names(text: &str) -> BTreeSet<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(|letter| !is_word(letter))
        .filter(|word| word.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect()
}

#[test]
fn every_kernel_is_an_operation_or_a_function_of_no_memory() {
    let kernels = source("fulmar-kernel/src/lib.rs");
    let lists = kernels.split("pub use ").skip(1).map(|line| line.split_once(';').unwrap().0);
    let public: BTreeSet<&str> =
        lists.flat_map(|list| function_names(list.split_once("::").unwrap().1)).collect();
    assert!(public.contains("matmul") && public.len() > 25, "the kernels were not read: {public:?}");

    let table = source("fulmar-compute/src/operation.rs");
    let door = source("fulmar-compute/src/lib.rs") + &source("fulmar-compute/src/cpu.rs");
    let behind: Vec<_> = public
        .into_iter()
        .filter(|name| ["(", "<"].iter().all(|end| !table.contains(&format!("fn {name}{end}"))))
        .filter(|name| !function_names(&door).contains(name))
        .collect();
    assert_eq!(behind, [""; 0], "add these to the table of fulmar-compute's operation.rs");
}

#[test]
fn no_crate_takes_kernels_past_the_door() {
    let mut takers = BTreeSet::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        if manifest.lines().any(|line| line.starts_with("fulmar-kernel")) {
            takers.insert(folder.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    assert_eq!(
        takers,
        BESIDE_THE_DOOR.map(str::to_owned).into(),
        "take fulmar-compute in place of the kernels"
    );
}

/// Returns distinct numbers that are not whole.
fn floats(len: usize) -> Vec<f32> {
    (0..len).map(|index| (index as f32 * 0.37 + 0.1).sin()).collect()
}

/// Runs both calls on separate buffers and asserts equal bits.
fn same<R: PartialEq + std::fmt::Debug>(
    len: usize,
    door: impl Fn(&mut [f32]) -> R,
    kernel: impl Fn(&mut [f32]) -> R,
) {
    let (mut through, mut direct) = (floats(len), floats(len));
    assert_eq!(door(&mut through), kernel(&mut direct));
    assert!(through.iter().zip(&direct).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn products_norms_and_probabilities_have_the_bits_of_a_direct_call() {
    let on = Compute::Cpu;
    let (x, w) = (floats(40 * 24), floats(24 * 32));
    let (left, right) = (MatRef::new(&x, 40, 24), MatRef::new(&w, 24, 32));
    same(
        40 * 32,
        |out| on.matmul(out, left, right, true),
        |out| fulmar_kernel::matmul(out, left.cpu(), right.cpu(), true),
    );
    same(
        40 * 32,
        |out| on.matmul_each(left, [(out.into(), right, Some(w[..32].into()))]),
        |out| {
            fulmar_kernel::matmul_each(left.cpu(), &mut [(&mut *out, right.cpu())]);
            fulmar_kernel::add_bias(out, &w[..32]);
        },
    );
    same(
        40 * 32,
        |out| {
            let (mut gate, mut up) = (vec![0.0; out.len()], vec![0.0; out.len()]);
            on.matmul_gated(
                left,
                ((&mut gate).into(), right),
                ((&mut up).into(), right),
                FloatsMut::F32(out.into()),
            );
        },
        |out| {
            let mut gate = vec![0.0; out.len()];
            fulmar_kernel::matmul(&mut gate, left.cpu(), right.cpu(), false);
            fulmar_kernel::swiglu(&gate, &gate, out);
        },
    );
    let norm = |out: &mut [f32], of: &dyn Fn(&mut [f32], &mut [f32])| {
        let mut scales = vec![0.0; 40];
        of(out, &mut scales);
        scales
    };
    same(
        40 * 24,
        |out| norm(out, &|out, scales| on.rms_norm(&x, &w[..24], 1e-5, out, scales)),
        |out| norm(out, &|out, scales| fulmar_kernel::rms_norm(&x, &w[..24], 1e-5, out, scales)),
    );
    let ids: Vec<u32> = (0..40).map(|row| row % 24).collect();
    assert_eq!(on.log_prob_rows(&x, &ids), fulmar_kernel::log_prob_rows(&x, &ids));
    same(
        40 * 24,
        |logits| on.cross_entropy(logits, &ids),
        |logits| fulmar_kernel::cross_entropy(logits, &ids),
    );
    assert_eq!(on.top_k_log_probs(&x, 7), fulmar_kernel::top_k_log_probs(&x, 7));
    same(40, |x| on.softmax_row(x), fulmar_kernel::softmax_row);
}

#[test]
fn attention_and_its_backward_have_the_bits_of_a_direct_call() {
    let on = Compute::Cpu;
    let shape = AttentionShape { num_heads: 4, num_kv_heads: 2, head_dim: 8 };
    let (rows, width, kv_width) = (6, 32, 16);
    let (q, keys, values) = (floats(rows * width), floats(rows * kv_width), floats(rows * kv_width));
    let mut spans = Spans::default();
    (0..rows as u32).for_each(|row| spans.push_row(&[(0, row + 1)]));
    let (mut out, mut log_sum) = (vec![0.0; q.len()], vec![0.0; rows * 8]);
    let mut room = Memory::default();
    on.attention(
        shape,
        &q,
        on.keys_in(&mut room, Floats::from(&keys), kv_width),
        Floats::from(&values),
        &spans,
        &mut out,
        &mut log_sum,
    );
    let direct = |out: &mut [f32]| {
        let mut log_sum = vec![0.0; rows * 8];
        let mut blocks = vec![0.0; fulmar_kernel::key_block_floats(rows, kv_width)];
        fulmar_kernel::fill_key_blocks(&keys, kv_width, kv_width, &mut blocks);
        let (blocks, values) = (blocks[..].into(), values[..].into());
        fulmar_kernel::attention(shape, &q, blocks, values, &spans, out, &mut log_sum);
        log_sum
    };
    let mut expected = vec![0.0; q.len()];
    assert_eq!((&direct(&mut expected), &expected), (&log_sum, &out));
    let rope = || {
        let mut table = RopeTable::new(rope_frequencies(8, 10_000.0));
        table.extend_to(rows);
        table
    };
    let positions: Vec<u32> = (0..rows as u32).collect();
    same(q.len(), |x| on.rotate(&rope(), x, 4, &positions), |x| rope().rotate(x, 4, &positions));
    let [q, keys, values, out] = [&q, &keys, &values, &out].map(Into::into);
    let saved = AttentionSaved { q, keys, values, out, log_sum: (&log_sum).into() };
    let (d_out, blocks) = (floats(q.len()), [(0, rows as u32)]);
    let [mut through, mut direct] =
        [(); 2].map(|()| (vec![0.0; q.len()], vec![0.0; keys.len()], vec![0.0; values.len()]));
    let (d_q, d_keys, d_values) = (&mut through.0, &mut through.1, &mut through.2);
    on.attention_backward(shape, saved, &spans, &blocks, &d_out, d_q, d_keys, d_values);
    let (d_q, d_keys, d_values) = (&mut direct.0, &mut direct.1, &mut direct.2);
    fulmar_kernel::attention_backward(shape, saved.cpu(), &spans, &blocks, &d_out, d_q, d_keys, d_values);
    assert_eq!(through, direct);
    assert!(through.1.iter().any(|value| *value != 0.0));
}
