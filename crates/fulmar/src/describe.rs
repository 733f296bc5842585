//! A description of this build and of the machine.

/// One JSON object with what is built in: `version`, `backend` as given, `lanes` of this processor, `threads`.
///
/// ```
/// let text = fulmar::describe("native");
/// assert!(text.starts_with(r#"{"version":"0."#) && text.contains(r#""backend":"native""#));
/// ```
#[must_use]
pub fn describe(backend: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let lanes = lanes().map(|lane| format!("\"{lane}\"")).collect::<Vec<_>>().join(",");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(r#"{{"version":"{version}","backend":"{backend}","lanes":[{lanes}],"threads":{threads}}}"#)
}

/// Returns the vector instruction sets that this build may use here, the plain one first.
fn lanes() -> impl Iterator<Item = &'static str> {
    #[cfg(target_arch = "x86_64")]
    let vector = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(target_arch = "aarch64")]
    let vector = [("neon", true)];
    #[cfg(target_family = "wasm")]
    let vector = [("simd128", cfg!(target_feature = "simd128"))];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_family = "wasm")))]
    let vector: [(&str, bool); 0] = [];
    std::iter::once("scalar").chain(vector.into_iter().filter(|lane| lane.1).map(|lane| lane.0))
}
