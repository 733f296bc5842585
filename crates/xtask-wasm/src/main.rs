//! `cargo xtask wasm`: compiles `bindings/wasm`, generates its JavaScript, and shrinks it with binaryen's `wasm-opt`.
//!
//! The result lies in `wasm/`: `fulmar_wasm.js`, `fulmar_wasm.d.ts`, `fulmar_wasm_bg.wasm`.
//! `FULMAR_WASM_RUSTC` may name a compiler that has a standard library for the target, see `scripts/wasm-toolchain.sh`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";

/// Vector instructions, and where `ahash` (by way of `tokenizers`) gets its random numbers.
const RUSTFLAGS: &str = "-Ctarget-feature=+simd128 --cfg getrandom_backend=\"wasm_js\"";

/// What rustc may emit for this target, which `wasm-opt` must be told.
const FEATURES: [&str; 7] = [
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-nontrapping-float-to-int",
    "--enable-sign-ext",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize()?;
    let module = compile(&root)?;
    let place = root.join("wasm");
    let source = root.join("target/wasm/generated-from.wasm");
    if place.exists() && is_generated_from(&source, &module)? {
        return Ok(());
    }
    // Made beside its place and moved there whole, so that nobody loads half of it.
    let staged = root.join("target/wasm-staged");
    if staged.exists() {
        std::fs::remove_dir_all(&staged)?;
    }
    generate(&module, &staged)?;
    shrink(&root, &staged.join("fulmar_wasm_bg.wasm"))?;
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::rename(&staged, &place)?;
    std::fs::copy(&module, &source)?;
    Ok(())
}

/// Whether `source`, the module of the last run, is `module`, and this program was not compiled anew since.
fn is_generated_from(source: &Path, module: &Path) -> Outcome<bool> {
    let program = std::env::current_exe()?.metadata()?.modified()?;
    let is_newer = source.metadata().and_then(|data| data.modified()).is_ok_and(|time| time > program);
    Ok(is_newer && std::fs::read(source)? == std::fs::read(module)?)
}

/// The module as rustc makes it, with vector instructions.
fn compile(root: &Path) -> Outcome<PathBuf> {
    let target_dir = root.join("target/wasm");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args([
        "build",
        "--package",
        "fulmar-wasm",
        "--profile",
        "wasm",
        "--target",
        TARGET,
    ]);
    cargo.arg("--target-dir").arg(&target_dir);
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", RUSTFLAGS);
    if let Some(rustc) = std::env::var_os("FULMAR_WASM_RUSTC") {
        cargo.env("RUSTC", rustc);
    }
    run(&mut cargo)?;
    Ok(target_dir.join(TARGET).join("wasm/fulmar_wasm.wasm"))
}

fn generate(module: &Path, place: &Path) -> Outcome<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("fulmar_wasm").typescript(true).web(true)?;
    bindgen.keep_debug(false).remove_name_section(true).remove_producers_section(true);
    Ok(bindgen.generate(place)?)
}

fn shrink(root: &Path, module: &Path) -> Outcome<()> {
    let mut optimizer = Command::new("node");
    optimizer.arg(root.join("node_modules/binaryen/bin/wasm-opt"));
    optimizer.args(["-O3", "--strip-debug"]).args(FEATURES).arg(module).arg("-o").arg(module);
    run(&mut optimizer)
}

fn run(command: &mut Command) -> Outcome<()> {
    let status = command.status().map_err(|error| format!("{command:?} must start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} must succeed: got {status}").into()) }
}
