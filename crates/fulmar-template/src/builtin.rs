//! The built-in chat templates, and the stock templates that they replace.

/// Name, source, and parts of a tokenizer's name by which TorchRL would choose it. In TorchRL's order of
/// search.
///
/// A variant is its family's source after one line that sets a switch.
pub const TEMPLATES: &[(&str, &str, &[&str])] = &[
    ("qwen", include_str!("builtin/qwen.jinja"), &["qwen"]),
    ("dialogpt", include_str!("builtin/dialogpt.jinja"), &["dialogpt", "microsoft/dialo"]),
    ("falcon", include_str!("builtin/falcon.jinja"), &["falcon"]),
    ("deepseek", include_str!("builtin/deepseek.jinja"), &["deepseek"]),
    ("llama", include_str!("builtin/llama.jinja"), &["llama"]),
    ("chatml_format", include_str!("builtin/chatml_format.jinja"), &[]),
    ("deepseek_r1", include_str!("builtin/deepseek_r1.jinja"), &[]),
    (
        "deepseek_r1_training",
        concat!("{%- set keep_reasoning = true -%}\n", include_str!("builtin/deepseek_r1.jinja")),
        &[],
    ),
    ("deepseek_v3", include_str!("builtin/deepseek_v3.jinja"), &[]),
    (
        "deepseek_v3_training",
        concat!("{%- set arguments_to_json = true -%}\n", include_str!("builtin/deepseek_v3.jinja")),
        &[],
    ),
    ("gemma", include_str!("builtin/gemma.jinja"), &[]),
    ("gemma3", include_str!("builtin/gemma3.jinja"), &[]),
    ("glm4", include_str!("builtin/glm4.jinja"), &[]),
    ("glm4_training", concat!("{%- set close_turns = true -%}\n", include_str!("builtin/glm4.jinja")), &[]),
    ("gpt_oss", include_str!("builtin/gpt_oss.jinja"), &[]),
    ("kimi_k2", include_str!("builtin/kimi_k2.jinja"), &[]),
    ("llama2", include_str!("builtin/llama2.jinja"), &[]),
    ("llama3", include_str!("builtin/llama3.jinja"), &[]),
    ("llama3_1", include_str!("builtin/llama3_1.jinja"), &[]),
    ("llama3_2", concat!("{%- set llama3_2 = true -%}\n", include_str!("builtin/llama3_1.jinja")), &[]),
    ("llama4", include_str!("builtin/llama4.jinja"), &[]),
    ("minimax_m2", include_str!("builtin/minimax_m2.jinja"), &[]),
    ("mistral", include_str!("builtin/mistral.jinja"), &[]),
    ("phi3", include_str!("builtin/phi3.jinja"), &[]),
    ("phi3_5", include_str!("builtin/phi3_5.jinja"), &[]),
    ("phi4", include_str!("builtin/phi4.jinja"), &[]),
    ("qwen2_5", include_str!("builtin/qwen2_5.jinja"), &[]),
    ("qwen3", include_str!("builtin/qwen3.jinja"), &[]),
    (
        "qwen3_instruct_2507",
        concat!("{%- set no_reasoning = true -%}\n", include_str!("builtin/qwen3.jinja")),
        &[],
    ),
    (
        "qwen3_training",
        concat!("{%- set keep_reasoning = true -%}\n", include_str!("builtin/qwen3.jinja")),
        &[],
    ),
    ("smollm2", include_str!("builtin/smollm2.jinja"), &[]),
];

/// Length in bytes and FNV-1a hash of a model's stock template, and the built-in one that renders the same
/// text with `generation` blocks. A newline at the end is not counted, as Jinja drops it.
const STOCK: &[(usize, u128, &str)] = &[
    (389, 0x526a_59e1_11c4_af23_0437_e5a3_ae2f_aeae, "llama3"),
    (4613, 0xa2ed_498f_9cb6_23ed_f73b_2f79_9c52_5fc0, "llama3_1"),
    (3826, 0x1442_3734_ce0a_2aba_215f_23c3_635d_2884, "llama3_2"),
    (2506, 0xed7f_78b3_8106_0efb_0155_9bfa_504c_74bd, "qwen2_5"),
    (4168, 0x585f_3954_8758_c6e1_c5c9_eb74_a85d_61e9, "qwen3"),
    (2630, 0x7d60_d674_e316_66b6_9b14_0f39_efdf_ccb3, "qwen3_instruct_2507"),
    (591, 0x1eab_80e6_ba0d_e4cf_4c1a_7d17_ce11_bbc3, "gemma"),
    (1531, 0xb2db_6709_45fc_42d3_f56d_7ac2_d3cf_9975, "gemma3"),
    (407, 0xca5f_3d30_c4f0_d302_1078_522b_445b_596d, "phi3"),
    (430, 0xe9c7_ee9c_a723_f5c2_e073_c219_1944_72b0, "phi3_5"),
    (2765, 0xcb4a_bf41_4b45_cabe_0db9_52e2_4a5b_0c95, "deepseek_v3"),
    (2246, 0x5687_f00d_7685_74c9_2050_28f7_17c9_2b4a, "deepseek_r1"),
    (3242, 0xea29_5045_2ecc_b380_9f96_f2d6_0753_ed79, "glm4"),
    (16738, 0xf75c_1077_24fd_d829_b668_f9c9_8a46_9aec, "gpt_oss"),
    (368, 0xf52a_5160_01c2_d4e9_900d_a075_fb14_b11a, "smollm2"),
];

/// Returns the name of the built-in template that renders the same text as the stock template `source`.
pub fn twin(source: &str) -> Option<&'static str> {
    let source = source.strip_suffix('\n').unwrap_or(source);
    let mut candidates = STOCK.iter().filter(|(length, ..)| *length == source.len()).peekable();
    candidates.peek()?;
    let hash = fnv1a(source.as_bytes());
    candidates.find(|(_, stock, _)| *stock == hash).map(|&(_, _, name)| name)
}

/// Returns the 128-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::{TEMPLATES, fnv1a, twin};

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn only_known_stock_texts_have_a_twin() {
        let stock = concat!(
            "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}",
            "{{ '<|im_start|>system\nYou are a helpful AI assistant",
        );
        assert_eq!(twin(stock), None);
        assert_eq!(twin(""), None);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TEMPLATES.iter().map(|(name, ..)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TEMPLATES.len());
    }
}
